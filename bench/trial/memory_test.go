package trial

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/bench"
)

// inCache tells how many bytes of the file are in the page cache.
func (m *Memory) inCache(t *testing.T) (n int64) {
	mem, err := unix.Mmap(int(m.file.Fd()), 0, int(m.size), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	pages := make([]byte, (m.size+4095)/4096)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	for _, p := range pages {
		n += int64(p&1) * 4096
	}
	return n
}

func TestThePageCacheIsFilledAndTheDiskIsNot(t *testing.T) {
	const most = 128 << 20
	m := NewMemory(most)
	dir := t.TempDir()
	require.NoError(t, m.warm(t.Context(), dir))
	r := m.Report()
	require.True(t, r.Filled)
	require.Empty(t, r.Failed)
	require.EqualValues(t, most, r.Bytes)
	require.Positive(t, r.Free)
	require.Greater(t, m.inCache(t), int64(most/2))
	var info unix.Stat_t
	require.NoError(t, unix.Fstat(int(m.file.Fd()), &info))
	require.EqualValues(t, most, info.Size)
	require.Less(t, info.Blocks*512, int64(1<<20))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names, "nothing is left behind, however the process ends")
	require.NoError(t, m.Close())
}

func TestWhatWasEvictedIsFilledUp(t *testing.T) {
	m := NewMemory(2 * fillStep)
	defer m.Close()
	require.NoError(t, m.warm(t.Context(), t.TempDir()))
	require.NoError(t, unix.Fadvise(int(m.file.Fd()), 0, fillStep, unix.FADV_DONTNEED))
	require.Less(t, m.inCache(t), int64(fillStep+fillStep/2))
	require.NoError(t, m.warm(t.Context(), ""))
	require.Greater(t, m.inCache(t), int64(fillStep+fillStep/2))
	require.Equal(t, 2, m.Report().Runs)
}

func TestThePageCacheIsFilledBeforeEachTurnOfEachSide(t *testing.T) {
	m := NewMemory(1 << 20)
	defer m.Close()
	var filled []int // by then, at each run
	s := func(label string) *side {
		return fake(label, false, allLoads, func(int, load) bench.SendReport {
			filled = append(filled, m.Report().Runs)
			return bench.SendReport{}
		})
	}
	tn := turns{Setup: Setup{Memory: m, Dir: t.TempDir()}, rounds: 2, run: time.Second, loads: []load{single, full, pacedLoad(10)}}
	require.NoError(t, tn.measure(t.Context(), []*side{s("a"), s("b")}))
	require.Len(t, filled, 2*2*(singleTurns+fullTurns+1))
	for i, n := range filled {
		require.Equal(t, i+1, n)
	}
	require.Equal(t, m, Setup{Memory: m}.within("lag").Memory)
}

func TestWhereTheCacheCannotBeFilledTheRunFindsItAsItIs(t *testing.T) {
	m := NewMemory(1 << 20)
	require.NoError(t, m.warm(t.Context(), filepath.Join(t.TempDir(), "missing")))
	r := m.Report()
	require.False(t, r.Filled)
	require.Equal(t, 1, r.Missed)
	require.Contains(t, r.String(), "left as it was found; 1 times it could not be filled: open ")
	require.NoError(t, m.Close())
}

func TestFillingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := NewMemory(1 << 30)
	defer m.Close()
	require.ErrorIs(t, m.warm(ctx, t.TempDir()), context.Canceled)
	require.Zero(t, m.Report().Missed, "that is no failure")
	require.Less(t, m.Report().Bytes, int64(fillStep))
	require.ErrorIs(t, Setup{}.warm(ctx), context.Canceled)
}

func TestWithoutFillingNothingIsTouched(t *testing.T) {
	require.NoError(t, Setup{}.warm(t.Context()))
	var none *Memory
	require.Equal(t, MemoryReport{}, none.Report())
	require.Equal(t, "memory: left as it was found", none.Report().String())
	require.NoError(t, none.Close())
}

func TestTheKernelsMemoryIsRead(t *testing.T) {
	const text = "MemTotal:       24684092 kB\nMemFree:        18199264 kB\nMemAvailable:   24019580 kB\n"
	n, err := meminfoOf(text, "MemFree")
	require.NoError(t, err)
	require.EqualValues(t, 18199264<<10, n)
	for _, text := range []string{"", "MemTotal: 1 kB\n", "MemFree: x kB\n", "MemFree: -1 kB\n", "MemFree: 99999999999999999999 kB\n"} {
		_, err := meminfoOf(text, "MemFree")
		require.ErrorIs(t, err, errNoMeminfo, "%q", text)
	}
	n, err = meminfo("MemTotal")
	require.NoError(t, err)
	require.Positive(t, n)
}

func TestTheStateOfMemoryIsTold(t *testing.T) {
	r := MemoryReport{Filled: true, Runs: 7, Free: 512 << 20, Seconds: 3.21, Failed: "why", Missed: 2}
	for _, want := range []string{"each of 7 runs", "512.0 MiB", "3.2 s", "2 times it could not be filled: why"} {
		require.Contains(t, r.String(), want)
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(text, &m))
	require.Equal(t, "bytes failed failures filled free_bytes_highest runs seconds", strings.Join(slices.Sorted(maps.Keys(m)), " "))
}
