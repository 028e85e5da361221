package trial

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/bench"
)

// anonymous is this process's anonymous memory, in bytes.
func anonymous(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	require.Fail(t, "no RssAnon")
	return 0
}

func TestWhatIsWarmedIsGivenBack(t *testing.T) {
	m := NewMemory(256 << 20)
	before := anonymous(t)
	require.NoError(t, m.warm(t.Context(), 256<<20))
	require.Less(t, anonymous(t)-before, int64(128<<20))
	r := m.Report()
	require.True(t, r.Warmed)
	require.EqualValues(t, 256<<20, r.Bytes)
	require.Positive(t, r.PageNs)
	require.Empty(t, r.Failed)
}

func TestNoMoreIsWarmedThanTheRunNeedsOrIsAllowed(t *testing.T) {
	for _, c := range []struct{ most, need, want int64 }{
		{128 << 20, 64 << 20, 64 << 20},
		{128 << 20, 1 << 40, 128 << 20},
		{128 << 20, 1, leastNeeded},
		{1 << 20, 1, largePage},
		{0, 40 << 20, 40 << 20},
	} {
		m := NewMemory(c.most)
		require.NoError(t, m.warm(t.Context(), c.need))
		require.Equal(t, c.want, m.Report().Most, "%+v", c)
	}
}

func TestMemoryIsWarmedBeforeEachTurnOfEachSide(t *testing.T) {
	m := NewMemory(1 << 20)
	var warmed []int // by then, at each run
	s := func(label string) *side {
		return fake(label, false, allLoads, func(int, load) bench.SendReport {
			warmed = append(warmed, m.Report().Runs)
			return bench.SendReport{}
		})
	}
	tn := turns{Setup: Setup{Memory: m}, rounds: 2, run: time.Second, size: 128, loads: []load{single, full, pacedLoad(10)}}
	require.NoError(t, tn.measure(t.Context(), []*side{s("a"), s("b")}))
	require.Len(t, warmed, 2*2*(singleTurns+fullTurns+1))
	for i, n := range warmed {
		require.Equal(t, i+1, n)
	}
	require.Equal(t, m, Setup{Memory: m}.within("lag").Memory)
}

func TestWithoutMemoryToBeHadTheRunFindsItAsItIs(t *testing.T) {
	m := NewMemory(1 << 60)
	require.NoError(t, m.warm(t.Context(), 1<<60))
	r := m.Report()
	require.False(t, r.Warmed)
	require.Equal(t, 1, r.Missed)
	require.Contains(t, r.String(), "left as it was found; 1 times it could not be warmed: take ")
}

func TestWarmingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := NewMemory(1 << 30)
	require.ErrorIs(t, m.warm(ctx, 1<<30), context.Canceled)
	require.Zero(t, m.Report(), "that is no failure of the memory")
	require.ErrorIs(t, Setup{}.warm(ctx, 1), context.Canceled)
}

func TestWithoutWarmingNothingIsTouched(t *testing.T) {
	require.NoError(t, Setup{}.warm(t.Context(), 1<<62))
	var none *Memory
	require.Equal(t, MemoryReport{}, none.Report())
	require.Equal(t, "memory: left as it was found", none.Report().String())
}

func TestALoadDirtiesMoreTheFasterLongerAndLargerItIs(t *testing.T) {
	const second = time.Second
	require.Less(t, single.dirties(second, 128, 1), full.dirties(second, 128, 1))
	require.Less(t, full.dirties(second, 128, 1), full.dirties(2*second, 128, 1))
	require.Less(t, full.dirties(second, 128, 1), full.dirties(second, 1024, 1))
	require.Less(t, pacedLoad(1000).dirties(second, 128, 1), pacedLoad(2000).dirties(second, 128, 1))
	require.EqualValues(t, 3*1000*(100+recordOverhead+queueEntry), pacedLoad(1000).dirties(second, 100, 3))
	require.Zero(t, full.dirties(second, 128, 0), "a bare exchange keeps nothing")
	require.Equal(t, full.dirties(warmLasts, 128, 1), full.dirties(time.Hour, 128, 1), "warm memory does not last for an hour")
	require.EqualValues(t, 2*fastLog, full.dirties(second, 4<<20, 2), "a log has its limits")
}

func TestTheAvailableMemoryIsRead(t *testing.T) {
	n, err := availableOf("MemTotal:       24684092 kB\nMemFree:        18199264 kB\nMemAvailable:   24019580 kB\n")
	require.NoError(t, err)
	require.EqualValues(t, 24019580<<10, n)
	for _, text := range []string{"", "MemTotal: 1 kB\n", "MemAvailable: x kB\n", "MemAvailable: -1 kB\n", "MemAvailable: 99999999999999999999 kB\n"} {
		_, err := availableOf(text)
		require.ErrorIs(t, err, errNoMeminfo, "%q", text)
	}
	n, err = availableMemory()
	require.NoError(t, err)
	require.Positive(t, n)
}

func TestTheStateOfMemoryIsTold(t *testing.T) {
	r := MemoryReport{Warmed: true, Runs: 7, Most: 512 << 20, Seconds: 3.21, PageNs: 4000, Highest: 16000, Failed: "why", Missed: 2}
	for _, want := range []string{"each of 7 runs", "512.0 MiB", "3.2 s", "4.00 µs", "16.00 µs", "2 times it could not be warmed: why"} {
		require.Contains(t, r.String(), want)
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(text, &m))
	require.Equal(t, "bytes failed failures most_bytes page_ns page_ns_highest runs seconds warmed", strings.Join(slices.Sorted(maps.Keys(m)), " "))
}
