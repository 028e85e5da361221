package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/codec"
)

func TestMain(m *testing.M) {
	// The network library starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func TestEveryMessageIsSentOnceAndCounted(t *testing.T) {
	for _, form := range []codec.Serialize{codec.JSON, codec.Binary} {
		s := startScript(t, &script{})
		r, err := Send(t.Context(), SendOptions{
			Addr: s.addr, Conns: 3, Depth: 8, Size: 100, Queues: 4, Messages: 1200, Duration: time.Minute, Form: form,
		})
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.EqualValues(t, 1200, r.Sent)
		require.EqualValues(t, 1200, r.Acked)
		require.Len(t, s.now().keys, 1200, "each has a key of its own")
		require.Equal(t, map[int]int{100: 1200}, s.now().bodies)
		require.Equal(t, map[string]int{"true": 1200}, s.now().waits)
		require.Len(t, s.now().queues, 4)
		require.Positive(t, r.Throughput)
		require.InDelta(t, r.Throughput*100/1e6, r.MBps, 0.001)
		require.Positive(t, r.RoundTrip.P50)
		require.LessOrEqual(t, r.RoundTrip.P50, r.RoundTrip.Max)
		require.Positive(t, r.GeneratorNs)
	}
}

func TestAnswersMayComeInAnyOrder(t *testing.T) {
	s := startScript(t, &script{reverse: true})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 2, Depth: 16, Messages: 1600, Duration: time.Minute})
	require.NoError(t, err)
	require.EqualValues(t, 1600, r.Acked)
}

func TestNoWaitIsSaidInTheMessage(t *testing.T) {
	s := startScript(t, &script{})
	_, err := Send(t.Context(), SendOptions{Addr: s.addr, Messages: 10, NoWait: true})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"false": 10}, s.now().waits)
}

func TestErrorsAreCountedByTheirNames(t *testing.T) {
	s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) {
		switch n % 10 {
		case 0:
			return codec.FlushSlaveTimeout, false
		case 5:
			return codec.SystemBusy, false
		}
		return codec.Success, false
	}})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Messages: 1000, Duration: time.Minute})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"FLUSH_SLAVE_TIMEOUT": 100, "SYSTEM_BUSY": 100}, r.Errors)
	require.EqualValues(t, 800, r.Acked)
	require.EqualValues(t, 1000, r.Sent)
	require.Regexp(t, "SYSTEM_BUSY|FLUSH_SLAVE_TIMEOUT", r.FirstError)
	require.ErrorContains(t, r.Err(), "100 FLUSH_SLAVE_TIMEOUT, 100 SYSTEM_BUSY")
}

func TestUnansweredMessagesAreCountedAtTheEnd(t *testing.T) {
	for _, rate := range []float64{0, 2000} {
		s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) { return 0, n > 20 }})
		r, err := Send(t.Context(), SendOptions{
			Addr: s.addr, Conns: 1, Depth: 4, Rate: rate, Duration: 500 * time.Millisecond, Drain: 50 * time.Millisecond,
		})
		require.NoError(t, err)
		require.LessOrEqual(t, r.Acked, int64(20))
		require.NotZero(t, r.Errors[NoAnswer], "those in flight")
		require.LessOrEqual(t, r.Errors[NoAnswer], int64(4))
		require.Equal(t, r.Sent, r.Acked+r.Errors[NoAnswer]+r.Errors[NotSent])
		if rate > 0 {
			require.EqualValues(t, 1000, r.Sent, "what was due and found no place is not forgotten")
		}
	}
}

func TestABrokenConnectionIsDialledAgain(t *testing.T) {
	for _, rate := range []float64{0, 1200} {
		s := startScript(t, &script{hangUp: func(n int) bool { return n == 300 }})
		r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 1, Depth: 4, Rate: rate, Messages: 1000, Duration: time.Minute})
		require.NoError(t, err)
		lost := r.Errors[ConnectionLost]
		require.True(t, lost >= 1 && lost <= 4, "lost %d", lost)
		require.EqualValues(t, 1000, r.Acked+lost)
	}
}

func TestARateIsKept(t *testing.T) {
	s := startScript(t, &script{})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 2, Rate: 2000, Duration: 500 * time.Millisecond})
	require.NoError(t, err)
	require.EqualValues(t, 1000, r.Sent, "every due message counts, whatever the machine's load")
	require.NotNil(t, r.Late)
}

func TestAStallCountsForAllThatWasDueMeanwhile(t *testing.T) {
	const stall = 200 * time.Millisecond
	s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) {
		if n == 100 {
			<-time.After(stall)
		}
		return codec.Success, false
	}})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 1, Depth: 1, Rate: 1000, Duration: 500 * time.Millisecond})
	require.NoError(t, err)
	require.EqualValues(t, 500, r.Sent)
	require.Greater(t, r.RoundTrip.P90, 50_000.0, "of 500 messages some 200 were due while the broker stood still, not one")
}

func TestWarmUpIsNotMeasured(t *testing.T) {
	s := startScript(t, &script{})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 1, Rate: 1000, Warmup: 100 * time.Millisecond, Duration: 200 * time.Millisecond})
	require.NoError(t, err)
	require.EqualValues(t, 200, r.Sent)
	written := int(r.Sent - r.Errors[NotSent])
	require.Equal(t, written+100, s.count(func(s *script) int { return s.n }))
}

func TestTheContextEndsARun(t *testing.T) {
	for _, rate := range []float64{0, 1000} {
		s := startScript(t, &script{})
		ctx, cancel := context.WithCancel(t.Context())
		r, err := Send(ctx, SendOptions{Addr: s.addr, Rate: rate, Duration: time.Hour, Progress: func(p Progress) {
			if p.Answered > 0 {
				cancel()
			}
		}})
		cancel()
		require.NoError(t, err)
		require.Positive(t, r.Acked)
		require.Less(t, r.Seconds, 3000.0)
	}
}

func TestARunCanBeStoppedAndLosesNothing(t *testing.T) {
	for _, c := range []SendOptions{{Depth: 8}, {Depth: 1}, {Rate: 2000}} {
		s := startScript(t, &script{})
		stop := make(chan struct{})
		c.Addr, c.Duration, c.Stop = s.addr, time.Hour, stop
		end := sync.OnceFunc(func() { close(stop) })
		c.Progress = func(p Progress) {
			if p.Answered > 0 {
				end()
			}
		}
		r, err := Send(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.Positive(t, r.Acked)
		require.Less(t, r.Seconds, 3000.0)
	}
}

func TestAnotherBrokersWritingIsUnderstood(t *testing.T) {
	s := startScript(t, &script{write: func(opaque int32) []byte {
		request := jsonFrame(fmt.Sprintf(`{"code":40,"flag":0,"opaque":%d}`, opaque)) // a broker's own, with an opaque of its own
		return append(request, jsonFrame(fmt.Sprintf(`{ "opaque" : %d, "flag": 1, "code" : 0 }`, opaque))...)
	}})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Messages: 500, NoTopic: true})
	require.NoError(t, err)
	require.NoError(t, r.Err())
	require.EqualValues(t, 500, r.Acked)
}

func TestAMessageLargerThanTheSocketsRoomIsSentInParts(t *testing.T) {
	for _, rate := range []float64{0, 500} {
		s := startScript(t, &script{})
		r, err := Send(t.Context(), SendOptions{Addr: s.addr, Conns: 2, Depth: 4, Size: 3 << 20, Rate: rate, Messages: 20, Duration: time.Minute})
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.EqualValues(t, 20, r.Acked)
		require.Equal(t, map[int]int{3 << 20: 20}, s.now().bodies)
	}
}

func TestATopicThatCannotMakeItselfIsCreated(t *testing.T) {
	for name, topics := range map[string]map[string]int{"missing": {}, "too narrow": {"T": 2}} {
		s := startScript(t, &script{topics: topics})
		r, err := Send(t.Context(), SendOptions{Addr: s.addr, Topic: "T", Queues: 6, Messages: 100})
		require.NoError(t, err, name)
		require.NoError(t, r.Err(), name)
		require.Equal(t, []string{"T"}, s.created, name)
	}
}

func TestAllMastersOfANameServerAreLoaded(t *testing.T) {
	a, b := startScript(t, &script{}), startScript(t, &script{})
	info := &codec.ClusterInfo{BrokerAddrTable: map[string]codec.BrokerData{
		"a": {BrokerName: "a", BrokerAddrs: map[int64]string{0: a.addr, 1: "127.0.0.1:1"}},
		"b": {BrokerName: "b", BrokerAddrs: map[int64]string{0: b.addr}},
		"c": {BrokerName: "c", BrokerAddrs: map[int64]string{1: "127.0.0.1:1"}}, // its master is gone
	}}
	ns := startScript(t, &script{cluster: info.AppendJSON(nil, false)})
	r, err := Send(t.Context(), SendOptions{Namesrv: ns.addr, Conns: 2, Messages: 1000})
	require.NoError(t, err)
	require.EqualValues(t, 1000, r.Acked)
	require.ElementsMatch(t, []string{a.addr, b.addr}, r.Addrs)
	require.Positive(t, a.count(func(s *script) int { return s.n }))
	require.Positive(t, b.count(func(s *script) int { return s.n }))
}

func TestNobodyThereIsAnErrorThatNamesTheAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	ln.Close()
	_, err = Send(t.Context(), SendOptions{Addr: addr})
	require.ErrorContains(t, err, addr)
}

func TestOptionsThatMakeNoSenseAreNamed(t *testing.T) {
	for text, o := range map[string]SendOptions{
		"address":     {},
		"one of":      {Addr: "a:1", Namesrv: "b:1"},
		"size -1":     {Addr: "a:1", Size: -1},
		"conns 99999": {Addr: "a:1", Conns: 99999},
		"depth -5":    {Addr: "a:1", Depth: -5},
		"rate -1":     {Addr: "a:1", Rate: -1},
		"there alrea": {Namesrv: "a:1", NoTopic: true},
		"stretch -1":  {Addr: "a:1", Every: -1},
	} {
		_, err := Send(t.Context(), o)
		require.ErrorIs(t, err, ErrOptions)
		require.ErrorContains(t, err, text)
	}
}

func TestWatchedProcessesAreReported(t *testing.T) {
	s := startScript(t, &script{})
	r, err := Send(t.Context(), SendOptions{Addr: s.addr, Messages: 60_000, Watch: []Watched{{"me", os.Getpid()}}})
	require.NoError(t, err)
	require.Len(t, r.Processes, 1)
	require.Equal(t, "me", r.Processes[0].Name)
	require.Positive(t, r.Processes[0].RssAnon)
	require.Positive(t, r.Processes[0].CPU)
}

func TestTheJSONOfASendReportKeepsItsNames(t *testing.T) {
	want := []string{
		"acked", "addrs", "conns", "course", "curve", "depth", "errors", "first_error", "generator_ns_per_message", "label", "late_us", "mb_per_s",
		"no_wait", "processes", "rate", "round_trip_us", "seconds", "sent", "size", "throughput", "topic",
	}
	r := SendReport{Label: "x", FirstError: "x", Late: &Latency{}, Processes: []ProcessReport{{}}, Curve: []CurvePoint{{}}, Course: []Stretch{{}}}
	require.Equal(t, want, keys(t, r))
	require.Equal(t, []string{"max", "mean", "p50", "p90", "p99", "p99_9", "p99_99"}, keys(t, r.RoundTrip))
	require.Equal(t, []string{"percentile", "us"}, keys(t, r.Curve[0]))
	require.Equal(t, []string{"acked", "max", "p50", "p99", "p99_9", "second", "throughput"}, keys(t, r.Course[0]))
	require.Equal(t, []string{"cpu_ns_per_message", "cpu_seconds", "name", "rss_anon_bytes", "rss_bytes"}, keys(t, r.Processes[0]))
}

func keys(t *testing.T, v any) []string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(text, &m))
	return slices.Sorted(maps.Keys(m))
}
