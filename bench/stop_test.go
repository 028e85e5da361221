package bench

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func TestAnswersAreNotWaitedForLongerThanTheDrainAfterAStop(t *testing.T) {
	for name, o := range map[string]SendOptions{"full": {Depth: 4}, "paced": {Depth: 4, Rate: 1000}, "alone": {Depth: 1}} {
		t.Run(name, func(t *testing.T) {
			stop := make(chan struct{})
			s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) {
				if n == 1 {
					close(stop)
				}
				return 0, true
			}})
			o.Addr, o.Conns, o.Duration, o.Drain, o.Stop = s.addr, 1, time.Hour, 30*time.Millisecond, stop
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r, err := Send(ctx, o)
			require.NoError(t, err)
			require.NoError(t, ctx.Err(), "the run ended by itself")
			require.NotZero(t, r.Errors[NoAnswer])
			require.Zero(t, r.Acked)
		})
	}
}

func TestAStrictRunEndsAtTheFirstRefusal(t *testing.T) {
	s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) {
		return codec.SystemBusy, false
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := Send(ctx, SendOptions{Addr: s.addr, Conns: 1, Depth: 4, Duration: time.Hour, Strict: true})
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	require.ErrorContains(t, r.Err(), "the first: SYSTEM_BUSY")
}

func TestRatesThatNoMachineKeepsAreRefused(t *testing.T) {
	for _, rate := range []float64{-1, 1e10, MaxRate + 1, math.Inf(1), math.NaN()} {
		_, err := Send(t.Context(), SendOptions{Addr: "127.0.0.1:1", Rate: rate})
		require.ErrorIs(t, err, ErrOptions, "%g", rate)
	}
}

func TestWhatWasNotSentIsCountedLikeOneByOne(t *testing.T) {
	for _, rate := range []float64{1e-300, 3, 1999, 7777.7, 1e6} {
		for _, next := range []int64{0, 1, 100} {
			w := window{from: 30_000_001, to: 200_000_000}
			p, q := newPace(rate, DefaultTick), newPace(rate, DefaultTick)
			p.next, q.next = next, next
			want := int64(0)
			for ; q.due() < w.to; q.next++ {
				if w.has(q.due()) {
					want++
				}
			}
			rec := newRecorder(w, nil)
			p.unsent(t.Context(), &run{window: w}, rec)
			require.Equal(t, want, rec.sent, "%g from %d", rate, next)
			require.Equal(t, want, rec.errors[NotSent])
			require.GreaterOrEqual(t, p.due(), w.to)
		}
	}
}

func TestARowWithValuesThatAreNoNumbersIsNotMeasured(t *testing.T) {
	s := NewSeries([]float64{10, math.NaN(), 10, 10, math.Inf(1)})
	require.Zero(t, s.Noise(), "what is missing is no spread")
	require.Equal(t, []int{1, 4}, s.Missing)
	require.True(t, math.IsNaN(s.Raw()[1]))
	require.Equal(t, Unknown, NewFigure("x", "x", "", s, AtLeast, 5).Verdict)
	f := NewFigure("x", "x", "", NewSeries([]float64{10}), AtLeast, 5)
	require.Equal(t, f, f.Unmeasured(""))
	require.Equal(t, "not measured: busy", f.Unmeasured("busy").VerdictText())
}
