package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/bench"
	"tandem/bench/remote"
)

func TestTheShareOfALogThatIsInMemoryIsFound(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "00000000000001048576"), filepath.Join(dir, "00000000000002097152")}
	for _, path := range files {
		require.NoError(t, writeFile(path, size/2))
		require.NoError(t, os.Truncate(path, size), "a hole that nobody has touched has no pages")
	}
	for _, c := range []struct {
		from, to int64
		want     float64
	}{
		{size, 3 * size, 0.5},
		{size, 2*size + size/2, 2.0 / 3},
		{2 * size, 2*size + 1, 1},
		{size + size/2, 2 * size, 0},
		{3 * size, 3 * size, 0},
	} {
		share, err := residentShare(files, c.from, c.to)
		require.NoError(t, err)
		require.InDelta(t, c.want, share, 1e-9, "%d to %d", c.from, c.to)
	}
	_, err := residentShare([]string{files[0] + "1"}, 0, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDroppedPagesLeaveTheFileAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, writeFile(path, 1<<20))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, dropPages(path))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAPlainReadEndsAtTheLogsEnd(t *testing.T) {
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "0"), filepath.Join(dir, "1")}
	for _, path := range files {
		require.NoError(t, writeFile(path, 3<<20))
	}
	n, err := readFiles(t.Context(), files, 5<<20-7)
	require.NoError(t, err)
	require.EqualValues(t, 5<<20-7, n)
	n, err = readFiles(t.Context(), files, 1<<30)
	require.NoError(t, err)
	require.EqualValues(t, 6<<20, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = readFiles(ctx, files, 1)
	require.ErrorIs(t, err, context.Canceled)
}

// coldRuns are rounds with these producers' p99, without a slave and with one.
func coldRuns(kept float64, pairs ...[2]float64) []catchupRun {
	var out []catchupRun
	for _, p := range pairs {
		r := catchupRun{mbps: 400, cold: coldRun{disk: 800, kept: kept}}
		r.cold.idle.RoundTrip.P99, r.cold.during.RoundTrip.P99 = p[0], p[1]
		out = append(out, r)
	}
	return out
}

func TestProducersAreHeldAgainstTheirIdleTailRoundByRound(t *testing.T) {
	runs := coldRuns(0, [2]float64{100, 150}, [2]float64{1000, 1500}, [2]float64{10, 15})
	c := coldReport(5000, runs, bench.NewSeries([]float64{400, 400, 400}))
	list := CatchupReport{Cold: true, ColdFiles: c}.Figures()
	f := figure(t, list, "catchup_producers_p99")
	require.Equal(t, []float64{1.5, 1.5, 1.5}, f.Values)
	require.Equal(t, bench.Holds, f.Verdict)
	require.Equal(t, bench.Reported, figure(t, list, "catchup_disk").Verdict)
	require.InDelta(t, 0.5, figure(t, list, "catchup_disk").Median, 0)
	require.Empty(t, CatchupReport{ColdFiles: c}.Faults())

	c = coldReport(5000, coldRuns(0, [2]float64{100, 300}), bench.NewSeries([]float64{400}))
	require.Equal(t, bench.Short, figure(t, c.figures(), "catchup_producers_p99").Verdict)
}

func TestFilesThatStayInMemoryAreNoColdOnes(t *testing.T) {
	c := coldReport(5000, coldRuns(0.4, [2]float64{1, 1}), bench.NewSeries([]float64{400}))
	require.Len(t, c.faults(), 1)
	require.Contains(t, c.faults()[0], "40 % of the log stayed in memory")
}

func TestALogThatIsInMemoryWhenTheSlaveStartsIsNoColdOne(t *testing.T) {
	runs := coldRuns(0, [2]float64{1, 1})
	for share, want := range map[float64]bench.Verdict{0: bench.Holds, 0.05: bench.Holds, 0.3: bench.Short} {
		runs[0].cold.resident = share
		list := coldReport(5000, runs, bench.NewSeries([]float64{400})).figures()
		require.Equal(t, want, figure(t, list, "catchup_resident").Verdict, "%g", share)
	}
}

func TestProducersThatAreRefusedMakeAColdReportWorthless(t *testing.T) {
	runs := coldRuns(0, [2]float64{1, 1})
	runs[0].cold.during.Errors = map[string]int64{"SYSTEM_BUSY": 2}
	c := coldReport(5000, runs, bench.NewSeries([]float64{400}))
	require.Len(t, c.faults(), 1)
	require.Contains(t, c.faults()[0], "2 SYSTEM_BUSY")
}

func TestMastersAreAskedForTheirAppendsAfterAllTurns(t *testing.T) {
	times := &remote.AppendTimes{Count: 7, P9999Ns: 4500}
	own := fake(LabelSync, true, allLoads, steady(1, 1))
	own.appends = func(context.Context) (*remote.AppendTimes, error) { return times, nil }
	async := fake(LabelAsync, true, allLoads, steady(1, 1))
	async.appends = func(context.Context) (*remote.AppendTimes, error) { return nil, nil }
	require.NoError(t, turns{rounds: 1, loads: []load{full}}.measure(t.Context(), []*side{async, own}))
	r, err := sizeReport(128, []*side{async, own})
	require.NoError(t, err)
	list := OverheadReport{Sizes: []SizeReport{r}}.Figures()
	require.InDelta(t, 4.5, figure(t, list, "append_p99_99_overhead:"+LabelSync+"_128").Median, 1e-9)
	var out strings.Builder
	OverheadReport{Sizes: []SizeReport{r}}.WriteTable(&out)
	require.Contains(t, out.String(), "7 appends since its start")

	gone := errors.New("gone")
	own.appends = func(context.Context) (*remote.AppendTimes, error) { return nil, gone }
	require.ErrorIs(t, turns{rounds: 1, loads: []load{full}}.measure(t.Context(), []*side{own}), gone)
}

func TestAFullDiskLeavesNoSourceBehind(t *testing.T) {
	o := FloorOptions{Setup: Setup{Dir: t.TempDir()}, Rounds: 1, Bytes: 1 << 20}
	source := filepath.Join(o.Dir, "transfer.source")
	require.NoError(t, os.Symlink("/dev/full", source))
	_, err := o.transfers(t.Context())
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = os.Lstat(source)
	require.ErrorIs(t, err, os.ErrNotExist)
}
