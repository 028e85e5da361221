package trial

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tandem/bench"
)

func TestMain(m *testing.M) {
	// The network library starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// fake is a side whose runs come out as the function says.
func fake(label string, own bool, loads []string, run func(n int, l load) bench.SendReport) *side {
	n := 0
	return &side{label: label, loads: loads, broker: own, measure: func(_ context.Context, l load, _, _ time.Duration) (bench.SendReport, error) {
		n++
		return run(n, l), nil
	}}
}

func steady(throughput, p50 float64) func(int, load) bench.SendReport {
	return func(int, load) bench.SendReport {
		return bench.SendReport{
			Throughput: throughput, RoundTrip: bench.Latency{P50: p50, P99: 2 * p50, P999: 3 * p50}, GeneratorNs: 500,
			Curve:     []bench.CurvePoint{{Percentile: 50, Micros: p50}, {Percentile: 99, Micros: 2 * p50}},
			Processes: []bench.ProcessReport{{Name: "master", RssAnon: 5 << 20, CPU: 1, CPUNs: 900}},
		}
	}
}

var allLoads = []string{LoadSingle, LoadFull, LoadPaced}

func TestSidesTakeTurnsEveryOtherRoundInReverse(t *testing.T) {
	var steps []string
	s := Setup{Progress: func(_, _ int64, what string) { steps = append(steps, what) }}
	sides := []*side{
		fake("a", true, allLoads, steady(1, 1)), fake("b", true, allLoads, steady(1, 1)),
		fake("ping", false, []string{LoadSingle}, steady(1, 1)), fake("stub", false, []string{LoadFull}, steady(1, 1)),
	}
	alone := single
	alone.turns = 3
	tn := turns{Setup: s, rounds: 2, warmup: 30, run: 300, loads: []load{alone, full}, prefix: "x: "}
	require.NoError(t, tn.measure(t.Context(), sides))
	forth := []string{"x: a, 1 in flight", "x: b, 1 in flight", "x: ping, 1 in flight"}
	back := []string{"x: ping, 1 in flight", "x: b, 1 in flight", "x: a, 1 in flight"}
	fullForth := []string{"x: a, 4 × 64 in flight", "x: b, 4 × 64 in flight", "x: stub, 4 × 64 in flight"}
	fullBack := []string{"x: stub, 4 × 64 in flight", "x: b, 4 × 64 in flight", "x: a, 4 × 64 in flight"}
	require.Equal(t, slices.Concat(
		forth, back, forth, fullForth, fullBack,
		back, forth, back, fullForth, fullBack,
		[]string{"done"},
	), steps)
	require.Len(t, sides[0].reports[LoadSingle], 6)
	require.Len(t, sides[0].reports[LoadFull], 4)
	require.Equal(t, len(steps)-1, tn.steps(sides))
}

func TestOfARoundsTurnsTheMedianCounts(t *testing.T) {
	l := load{turns: 3}
	s := byRound(bench.NewSeries([]float64{1, 9, 2, 4, 4, 40, 7}), l)
	require.Equal(t, []float64{2, 4, 7}, s.Values)
	require.InDelta(t, 4, s.Median, 0)
	require.Empty(t, byRound(bench.NewSeries(nil), l).Values)
	require.Equal(t, []float64{1, 2}, byRound(bench.NewSeries([]float64{1, 2}), pacedLoad(1)).Values)
}

func TestTheTurnsOfARoundShareItsTime(t *testing.T) {
	var warmups, runs []time.Duration
	s := &side{label: "a", loads: allLoads, measure: func(_ context.Context, _ load, warmup, run time.Duration) (bench.SendReport, error) {
		warmups, runs = append(warmups, warmup), append(runs, run)
		return bench.SendReport{}, nil
	}}
	l := load{name: LoadSingle, turns: 2}
	require.NoError(t, turns{rounds: 1, warmup: 10, run: 100, loads: []load{l, pacedLoad(1)}}.measure(t.Context(), []*side{s}))
	require.Equal(t, []time.Duration{5, 5, 10}, warmups)
	require.Equal(t, []time.Duration{50, 50, 100}, runs)
}

func TestAnErrorEndsTheTurnsAndNamesTheSide(t *testing.T) {
	broken := errors.New("broken")
	s := &side{label: "b", loads: allLoads, measure: func(context.Context, load, time.Duration, time.Duration) (bench.SendReport, error) {
		return bench.SendReport{}, broken
	}}
	err := turns{rounds: 1, loads: []load{single}}.measure(t.Context(), []*side{s})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "b: ")
}

func TestRatiosAreTakenRoundByRoundWhateverTheMachineDoes(t *testing.T) {
	slower := func(of float64) func(int, load) bench.SendReport {
		return func(n int, _ load) bench.SendReport {
			mood := 1 / float64(n) // the machine gets slower and slower
			return bench.SendReport{Throughput: of * mood, RoundTrip: bench.Latency{P50: 10 / mood}}
		}
	}
	base, other := fake("base", true, []string{LoadFull}, slower(1000)), fake("other", true, []string{LoadFull}, slower(900))
	require.NoError(t, turns{rounds: 5, loads: []load{full}}.measure(t.Context(), []*side{base, other}))
	got := targetOf(other, base).Loads[0]
	require.InDelta(t, 0.9, got.ThroughputRatio.Low, 1e-9)
	require.InDelta(t, 0.9, got.ThroughputRatio.High, 1e-9)
	require.InDelta(t, 1, got.P50Ratio.Median, 1e-9)
	require.Len(t, got.ThroughputRatio.Values, 10)
}

// The sides go forth and back within a round: in the round's mean none of them has the better half of a change that goes on.
func TestADriftIsNoAdvantageToTheSideThatBegins(t *testing.T) {
	var slots float64
	drifting := func(int, load) bench.SendReport {
		slots++
		return bench.SendReport{Throughput: 1000 + slots}
	}
	a, b := fake("a", true, []string{LoadFull}, drifting), fake("b", true, []string{LoadFull}, drifting)
	require.NoError(t, turns{rounds: 5, loads: []load{full}}.measure(t.Context(), []*side{a, b}))
	for _, round := range byRound(targetOf(b, a).Loads[0].ThroughputRatio, full).Values {
		require.InDelta(t, 1, round, 1e-5)
	}
}

// overheadOf is a report with these medians.
func overheadOf(t *testing.T, peers map[string][]float64) OverheadReport {
	sides := []*side{
		fake(LabelAsync, true, allLoads, steady(100_000, 50)), fake(LabelSync, true, allLoads, steady(96_000, 80)),
		fake(LabelPing2, false, []string{LoadSingle}, steady(0, 25)), fake(LabelPing4, false, []string{LoadSingle}, steady(0, 70)),
		fake(LabelStub, false, []string{LoadFull, LoadPaced}, steady(200_000, 40)),
	}
	for _, label := range slices.Sorted(maps.Keys(peers)) {
		sides = append(sides, fake(label, false, allLoads, steady(peers[label][0], peers[label][1])))
	}
	require.NoError(t, turns{rounds: 3, loads: OverheadOptions{Rate: 10}.loads()}.measure(t.Context(), sides))
	r, err := sizeReport(128, sides)
	require.NoError(t, err)
	return OverheadReport{Base: LabelAsync, Rate: 10, Rounds: 3, Sizes: []SizeReport{r}}
}

func figure(t *testing.T, list []bench.Figure, name string) bench.Figure {
	i := slices.IndexFunc(list, func(f bench.Figure) bool { return f.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s", name)
	return list[i]
}

func TestTheFiguresOfOverheadAreWhatTheySay(t *testing.T) {
	r := overheadOf(t, map[string][]float64{"Apache 5.5.0": {8000, 200}, "apache async": {9000, 100}, "other": {1, 1}})
	list := r.Figures()
	for name, want := range map[string]struct {
		value float64
		sense bench.Sense
		bound float64
	}{
		"sync_async_throughput_128":             {0.96, bench.AtLeast, 0.95},
		"sync_stub_throughput_128":              {0.48, bench.AtLeast, 0.4},
		"sync_stub_p99_9_128":                   {2, bench.NoBound, 0},
		"sync_ping4_p50_128":                    {80.0 / 70, bench.AtMost, 1.25},
		"sync_above_async_p50_128":              {(80.0 - 50) / 25, bench.AtMost, 1.25},
		"sync_peer_throughput:Apache 5.5.0_128": {12, bench.AtLeast, 10},
		"sync_peer_p99_9:Apache 5.5.0_128":      {0.4, bench.AtMost, 0.1},
		"sync_peer_throughput:apache async_128": {96.0 / 9, bench.NoBound, 10},
		"sync_peer_p50:other_128":               {80, bench.NoBound, 0},
		"rss_anon_overhead_128":                 {5, bench.AtMost, 64},
	} {
		f := figure(t, list, name)
		require.InDelta(t, want.value, f.Median, 1e-9, name)
		require.Equal(t, want.sense, f.Sense, name)
		if want.sense != bench.NoBound {
			require.InDelta(t, want.bound, f.Bound, 0, name)
		}
	}
	require.Equal(t, bench.Short, figure(t, list, "sync_peer_p99_9:Apache 5.5.0_128").Verdict)
	require.Equal(t, bench.Holds, figure(t, list, "sync_async_throughput_128").Verdict)
}

func TestRedisIsHeldAgainstOrNamedAsMissing(t *testing.T) {
	sides := []*side{
		fake(LabelAsync, true, allLoads, steady(100_000, 50)), fake(LabelSync, true, allLoads, steady(96_000, 80)),
		fake(LabelRedis, false, []string{LoadSingle}, steady(0, 100)),
	}
	require.NoError(t, turns{rounds: 3, loads: []load{single, full}}.measure(t.Context(), sides))
	r, err := sizeReport(128, sides)
	require.NoError(t, err)
	f := figure(t, OverheadReport{Sizes: []SizeReport{r}}.Figures(), "sync_redis_p50_128")
	require.InDelta(t, 0.8, f.Median, 1e-9)
	require.Equal(t, bench.Holds, f.Verdict)

	without, err := sizeReport(128, sides[:2])
	require.NoError(t, err)
	rep := OverheadReport{Sizes: []SizeReport{without}, Absent: map[string]string{LabelRedis: "no redis-server"}}
	require.Equal(t, bench.Unknown, figure(t, rep.Figures(), "sync_redis_p50_128").Verdict)
	var out strings.Builder
	rep.WriteTable(&out)
	require.Contains(t, out.String(), "no redis-server")
}

func TestWithoutRedisTheRestIsMeasured(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var rep OverheadReport
	o := OverheadOptions{Setup: Setup{Dir: t.TempDir()}, Redis: RedisHere}
	stop, err := o.startPeers(t.Context(), &rep)
	require.NoError(t, err)
	require.NoError(t, stop())
	require.Nil(t, o.redis)
	require.Contains(t, rep.absentText(), "not measured: no redis-server")
}

func TestWithoutJavaTheRestIsMeasured(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var rep OverheadReport
	o := OverheadOptions{Setup: Setup{Dir: t.TempDir()}, Apache: "5.5.0"}
	stop, err := o.startPeers(t.Context(), &rep)
	require.NoError(t, err)
	require.NoError(t, stop())
	require.Empty(t, o.Peers)
	require.Contains(t, rep.absentText(), "Apache 5.5.0: not measured: no Java")

	r := overheadOf(t, nil)
	r.Absent = rep.Absent
	f := figure(t, r.Figures(), "sync_peer_throughput:Apache 5.5.0_128")
	require.Equal(t, bench.Unknown, f.Verdict)
	require.Contains(t, f.Why, "no Java")
}

func TestNothingIsHeldAgainstAPeerThatRefusesOrFallsBehind(t *testing.T) {
	for why, run := range map[string]bench.SendReport{
		"3 SYSTEM_BUSY":   {Throughput: 10, Errors: map[string]int64{"SYSTEM_BUSY": 3}},
		"answered 9/s of": {Throughput: 9, Rate: 10},
	} {
		run.RoundTrip = bench.Latency{P50: 1, P999: 1000}
		own := fake(LabelSync, true, allLoads, steady(1000, 1))
		peer := fake("Apache 5.5.0", false, allLoads, func(n int, l load) bench.SendReport {
			if n == 2 {
				return run
			}
			return bench.SendReport{Throughput: 10, Rate: 10, RoundTrip: run.RoundTrip}
		})
		require.NoError(t, turns{rounds: 3, loads: []load{pacedLoad(10)}}.measure(t.Context(), []*side{own, peer}))
		r, err := sizeReport(128, []*side{own, peer})
		require.NoError(t, err)
		f := figure(t, r.against(r.Targets[1]), "sync_peer_p99_9:Apache 5.5.0_128")
		require.Equal(t, bench.Unknown, f.Verdict)
		require.Contains(t, f.VerdictText(), why)
	}
}

func TestPeersThatDoNotRunAreNamedBeforeTheFirstTrial(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, checkPeers(t.Context(), []Peer{{Label: "x", Addr: addr}}, RedisHere))
	require.NoError(t, ln.Close())
	_, err = All(t.Context(), AllOptions{Peers: []Peer{{Label: "gone", Addr: addr}}, Redis: addr})
	require.ErrorContains(t, err, "gone: ")
	require.ErrorContains(t, err, LabelRedis)
}

func TestWhatABrokerCostsIsReportedForOursAndThePeers(t *testing.T) {
	list := overheadOf(t, map[string][]float64{"Apache 5.5.0": {8000, 200}}).Figures()
	for _, label := range []string{LabelSync, LabelAsync, "Apache 5.5.0"} {
		require.InDelta(t, 0.9, figure(t, list, "cpu_per_message:"+label+"_128").Median, 1e-9)
		require.InDelta(t, 5, figure(t, list, "rss_anon_of:"+label+"_128").Median, 1e-9)
	}
	require.False(t, slices.ContainsFunc(list, func(f bench.Figure) bool { return strings.Contains(f.Name, LabelStub) }))
}

func TestOnlyPeersHaveNoFiguresOfOurs(t *testing.T) {
	a := fake("a", false, allLoads, steady(1, 1))
	require.NoError(t, turns{rounds: 1, loads: []load{single, full}}.measure(t.Context(), []*side{a}))
	r, err := sizeReport(128, []*side{a})
	require.NoError(t, err)
	require.Empty(t, OverheadReport{Sizes: []SizeReport{r}}.Figures())
}

func TestOverheadOfNothingIsRefused(t *testing.T) {
	_, err := Overhead(t.Context(), OverheadOptions{NoOwn: true})
	require.ErrorIs(t, err, bench.ErrOptions)
	require.ErrorContains(t, err, "nothing to measure")
}

func TestWhatWasNotAcknowledgedIsAFault(t *testing.T) {
	s := fake("a", true, allLoads, func(int, load) bench.SendReport {
		return bench.SendReport{Errors: map[string]int64{"SLAVE_NOT_AVAILABLE": 3}}
	})
	require.NoError(t, turns{rounds: 2, loads: []load{full}}.measure(t.Context(), []*side{s}))
	r, err := sizeReport(128, []*side{s})
	require.NoError(t, err)
	rep := OverheadReport{Sizes: []SizeReport{r}}
	require.Len(t, rep.Faults(), 1)
	require.Contains(t, rep.Faults()[0], "3 SLAVE_NOT_AVAILABLE")
	s.peer = true
	r, err = sizeReport(128, []*side{s})
	require.NoError(t, err)
	rep.Sizes = []SizeReport{r}
	require.Empty(t, rep.Faults(), "a peer's, which is told all the same")
	var out strings.Builder
	rep.WriteTable(&out)
	require.Contains(t, out.String(), "SLAVE_NOT_AVAILABLE")
}

func TestLagIsHowLongAgoTheLogEndedWhereTheSlaveIs(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name    string
		samples []lagSample
		want    []float64
	}{
		{"level", []lagSample{{0, 100, 100}, {ms, 200, 200}}, []float64{0, 0}},
		{"one sample behind", []lagSample{{0, 100, 100}, {ms, 200, 100}, {2 * ms, 300, 200}}, []float64{0, 1, 1}},
		{"between two samples", []lagSample{{0, 100, 100}, {4 * ms, 200, 150}}, []float64{0, 2}},
		{"a slave that stands", []lagSample{{0, 100, 100}, {ms, 200, 100}, {2 * ms, 300, 100}, {3 * ms, 300, 100}}, []float64{0, 1, 2, 3}},
		{"a log that stands", []lagSample{{0, 100, 100}, {5 * ms, 100, 100}, {6 * ms, 200, 100}}, []float64{0, 0, 1}},
		{"since when, nobody knows", []lagSample{{0, 100, 50}, {ms, 200, 150}}, []float64{0.5}},
		{"none", nil, nil},
	} {
		got := lags(c.samples)
		require.InDeltaSlice(t, c.want, got, 1e-9, c.name)
	}
}

// A slave that is always so much time behind an evenly growing log has just that lag, however often it is looked at.
func TestASteadyLagIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		behind := rapid.IntRange(1, 50).Draw(t, "ms behind")
		rate := rapid.Int64Range(100, 1e6).Draw(t, "bytes per ms")
		var samples []lagSample
		at := time.Duration(behind) * time.Millisecond
		for range rapid.IntRange(100, 300).Draw(t, "looks") {
			at += time.Duration(rapid.IntRange(1, 3000).Draw(t, "pause")) * time.Microsecond
			end := func(d time.Duration) int64 { return int64(float64(rate) * float64(d) / 1e6) }
			samples = append(samples, lagSample{at, end(at), end(at - time.Duration(behind)*time.Millisecond)})
		}
		for _, l := range lags(samples) {
			require.InDelta(t, float64(behind), l, 0.05)
		}
	})
}

func TestQuantilesOfSortedValues(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	require.Zero(t, quantile(nil, 0.5))
	require.InDelta(t, 6, quantile(values, 0.5), 0)
	require.InDelta(t, 10, quantile(values, 0.99), 0)
	require.InDelta(t, 10, quantile(values, 1), 0)
}

func TestProcessesKeepTheirHighestMemory(t *testing.T) {
	a := []bench.ProcessReport{{Name: "m", RSS: 9, RssAnon: 1, CPU: 5}}
	require.Equal(t, a, highest(nil, a))
	require.Equal(t, []bench.ProcessReport{{Name: "m", RSS: 9, RssAnon: 4, CPU: 1}}, highest(a, []bench.ProcessReport{{Name: "m", RSS: 3, RssAnon: 4, CPU: 1}}))
	f := memoryFigure("x", "x", []bench.ProcessReport{{RssAnon: 3 << 20}, {RssAnon: 70 << 20}})
	require.Equal(t, bench.Short, f.Verdict, "one broker above the bound is one too many")
	require.Equal(t, bench.Unknown, memoryFigure("x", "x", nil).Verdict)
}

func TestTheFiguresOfOtherTrialsHaveTheirBounds(t *testing.T) {
	three := func(v float64) bench.Series { return bench.NewSeries([]float64{v, v, v}) }
	load := func(ratio float64) Target {
		return Target{Label: "x", Loads: []TargetLoad{{Load: LoadFull, ThroughputRatio: three(ratio)}}}
	}
	r := Results{
		Lag:     &LagReport{P99: three(6)},
		Fanout:  &FanoutReport{Rows: []FanoutRow{{1, load(1)}, {2, load(0.8)}, {4, load(0.75)}, {8, load(0.3)}}},
		Catchup: &CatchupReport{Ratio: three(0.85)},
		Start:   &StartReport{Bytes: 5 << 30, Empty: three(0.1), Clean: three(0.2), Killed: three(2.5)},
		Soak:    &SoakReport{},
		Floor:   &FloorReport{},
	}
	want := map[string]bench.Verdict{
		"lag_p99": bench.Short, "fanout_2_1": bench.Reported, "fanout_4_1": bench.Holds, "fanout_8_1": bench.Reported,
		"catchup_bare_hot": bench.Holds, "start_empty": bench.Holds, "start_clean": bench.Holds, "start_killed": bench.Short,
	}
	for name, verdict := range want {
		require.Equal(t, verdict, figure(t, r.Figures(), name).Verdict, name)
	}
	require.Empty(t, r.Faults())
	require.Equal(t, bench.Reported, (CatchupReport{Cold: true, Ratio: three(0.1)}).Figures()[0].Verdict, "a disk's speed is no matter of ours")
}

func TestTheReportsKeepTheirNames(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{OverheadReport{}, "base conns depth rate rounds seconds sizes"},
		{SizeReport{}, "frames size targets"},
		{Target{Failed: "x"}, "failed label loads own"},
		{TargetLoad{Processes: []bench.ProcessReport{{}}}, "curve generator_ns_per_message load processes round_trip_p50 round_trip_p99 round_trip_p99_9 round_trip_ratio throughput throughput_ratio"},
		{FloorReport{}, "rounds seconds sizes transfer"},
		{TransferReport{}, "bytes mb_per_s"},
		{CatchupReport{}, "bare_mb_per_s bytes cold copy_seconds fill_seconds generator_ns_per_message mb_per_s messages processes ratio rounds size total_seconds"},
		{FanoutReport{}, "rounds rows seconds size"},
		{FanoutRow{}, "label loads own slaves"},
		{LagReport{Failed: "x"}, "failed generator_ns_per_message lag_max_ms lag_p50_ms lag_p99_ms peak processes rate rounds samples size throughput"},
		{StartReport{}, "bytes clean_seconds empty_seconds fill_seconds generator_ns_per_message killed_seconds messages processes rounds size"},
		{ColdReport{Failed: "x"}, "catchup_p99_us disk_mb_per_s disk_ratio failed generator_ns_per_message idle_p99_us kept_in_memory producer_rate producers_p99 resident_at_start"},
		{Results{
			Floor: &FloorReport{}, Overhead: &OverheadReport{}, Lag: &LagReport{}, Fanout: &FanoutReport{}, Soak: &SoakReport{}, Catchup: &CatchupReport{},
			CatchupCold: &CatchupReport{}, Start: &StartReport{},
		}, "catchup catchup_cold fanout floor lag overhead soak start"},
	} {
		text, err := json.Marshal(c.v)
		require.NoError(t, err)
		var m map[string]any
		require.NoError(t, json.Unmarshal(text, &m))
		require.Equal(t, c.want, strings.Join(slices.Sorted(maps.Keys(m)), " "), "%T", c.v)
	}
}

func TestAPartsAddressIsFoundInItsLog(t *testing.T) {
	require.Equal(t, "127.0.0.1:5", readyAddr("gnet says this\nready 127.0.0.1:5\nand that\n"))
	require.Empty(t, readyAddr("nothing"))
}

func TestAQuickPlanIsShort(t *testing.T) {
	p := AllOptions{Quick: true}.plan()
	require.Equal(t, 1, p.overhead.Rounds)
	require.LessOrEqual(t, p.start.Bytes, int64(64<<20))
	require.LessOrEqual(t, p.soak.Duration, time.Second)
	require.True(t, p.cold.Cold)
	full := AllOptions{Rounds: 7, Peers: []Peer{{Label: "a", Addr: "b:1"}}}.plan()
	require.Equal(t, 7, full.overhead.Rounds)
	require.Len(t, full.overhead.Peers, 1)
	require.True(t, full.cold.Cold)
	require.Equal(t, []int{1, 4}, full.fanout.Slaves)
}

func TestANumberOfSlavesBelowOneIsRefused(t *testing.T) {
	_, err := Fanout(t.Context(), FanoutOptions{Setup: Setup{Dir: t.TempDir()}, Slaves: []int{0}})
	require.ErrorIs(t, err, bench.ErrOptions)
}

func TestALogThatDoesNotFitOnTheDiskIsRefused(t *testing.T) {
	_, err := Start(t.Context(), StartOptions{Setup: Setup{Dir: t.TempDir()}, Bytes: 1 << 60})
	require.ErrorIs(t, err, bench.ErrOptions)
	require.ErrorContains(t, err, "are free")
}
