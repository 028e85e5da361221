package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// dueTimes is a schedule as a driver goes through it whose messages are all written in time.
func dueTimes(p *pace, until int64) (out []int64) {
	for due := p.due(); due < until; due = p.due() {
		out = append(out, due)
		p.written(window{0, until}, due)
	}
	return out
}

func TestMessagesOfATickAreDueTogether(t *testing.T) {
	p := newPace(20_000, 200*time.Microsecond)
	times := dueTimes(p, int64(time.Millisecond))
	require.Len(t, times, 20)
	for i, due := range times {
		require.EqualValues(t, 1+i/4*200_000, due)
	}
	require.EqualValues(t, 5, p.burst)
	require.EqualValues(t, 20, p.late.TotalCount())
}

func TestASlowRateHasItsOwnTimes(t *testing.T) {
	p := newPace(1000, 300*time.Microsecond)
	require.Equal(t, []int64{1, 1_000_001, 2_000_001}, dueTimes(p, int64(3*time.Millisecond)))
	require.EqualValues(t, 3, p.burst, "each is a burst of its own")
}

func TestAScheduleKeepsItsRateAndIsNeverLateByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 2e6).Draw(t, "rate")
		tick := time.Duration(rapid.Int64Range(1, 2e6).Draw(t, "tick"))
		p := newPace(rate, tick)
		for n := range rapid.IntRange(1, 2000).Draw(t, "messages") {
			even := float64(n) / rate * 1e9
			due := float64(p.due())
			require.LessOrEqual(t, due, even+2, "no later than at an even rate")
			require.GreaterOrEqual(t, due, even-float64(tick)-1, "no more than a tick before")
			p.next++
		}
	})
}

func TestHowLateAMessageWasWrittenIsKeptApart(t *testing.T) {
	p := newPace(1000, time.Microsecond)
	w := window{0, int64(time.Second)}
	p.written(w, p.due())
	p.written(w, p.due()+int64(5*time.Millisecond))
	require.EqualValues(t, 2, p.late.TotalCount())
	require.InDelta(t, 5e6, p.late.Max(), 1e4)
	require.EqualValues(t, 2_000_001, p.due(), "the schedule stays as it was")
}

func TestABurstLeavesOverOneConnectionAndTheNextOverTheNext(t *testing.T) {
	s := startScript(t, &script{})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 3, Depth: 1024, Rate: 10_000, Tick: time.Millisecond, Duration: 60 * time.Millisecond})
	require.NoError(t, err)
	require.EqualValues(t, 600, r.Acked)
	perConn := map[string]int{}
	for key, n := range s.now().keys {
		perConn[key[24:26]] += n // the serial's highest digits are the connection's
	}
	require.Len(t, perConn, 3)
	for _, n := range perConn {
		require.Equal(t, 200, n)
	}
}
