package commitlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// windowSizes are segments smaller and larger than what is prepared at a time, of whole pages and not.
var windowSizes = []int64{16384, 10000, 1 << 20, 700_001}

// slowZeros delays what is written to the log through files, which only the window does while the store runs.
func slowZeros(o *Options) *atomic.Int64 {
	f := newFaultFS()
	o.FS = f
	written := new(atomic.Int64)
	dir := filepath.Join(o.RootDir, "commitlog")
	f.setFail(func(op, name string) error {
		if op == "write" && strings.HasPrefix(name, dir) {
			written.Add(1)
			for range rand.IntN(50) {
				runtime.Gosched()
			}
		}
		return nil
	})
	return written
}

func requireIntact(t *testing.T, s *Store, l []*Append) {
	t.Helper()
	for _, a := range l {
		sl, err := s.RecordAt(a.Offset)
		require.NoError(t, err)
		at := bytes.Index(a.Bytes, []byte("body"))
		require.True(t, bytes.Equal(a.Bytes[at:], sl.Bytes[at:]), "record at %d", a.Offset)
		sl.Release()
	}
}

func TestZerosNeverMeetAppendedBytes(t *testing.T) {
	for _, size := range windowSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(size), 1))
			o := testOptions(tempDir(t))
			o.SegmentSize = size
			written := slowZeros(&o)
			s := openTest(t, o)
			var l []*Append
			for range 150 {
				switch rnd.IntN(20) {
				case 0:
					if len(l) > 0 {
						keep := rnd.IntN(len(l))
						waitDispatched(t, s)
						require.NoError(t, s.TruncateTo(l[keep].Offset))
						l = l[:keep]
					}
				case 1:
					requireIntact(t, s, l)
				case 2:
					closeTest(t, s)
					s = openTest(t, o)
				case 3:
					require.NoError(t, s.Reset())
					l = nil
				default:
					for range 1 + rnd.IntN(8) {
						l = append(l, put(t, s, message{topic: "T", queue: int32(rnd.IntN(3)), body: "body" + strings.Repeat("x", rnd.IntN(int(size)/4))}))
					}
				}
			}
			requireIntact(t, s, l)
			require.Positive(t, written.Load())
		})
	}
}

func TestZerosNeverMeetBytesASlaveMayWrite(t *testing.T) {
	for _, size := range windowSizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(size), 2))
			log, starts := rawLog(t, size)
			o := slaveOptions(tempDir(t))
			o.SegmentSize = size
			written := slowZeros(&o)
			s := openTest(t, o)
			for end := 0; end < len(log); {
				if rnd.IntN(60) == 0 {
					waitDispatched(t, s)
					cut := starts[rnd.IntN(len(starts))]
					if int64(end)-3*size < cut && cut <= s.End() {
						require.NoError(t, s.TruncateTo(cut))
						end = int(cut)
					}
				}
				b, err := s.RawBuffer(int64(end), min(len(log)-end, 1+rnd.IntN(int(size))))
				require.NoError(t, err)
				n := copy(b, log[end:])
				if end == 0 {
					waitFor(t, "the preparer", func() bool { return written.Load() > 0 })
				}
				for range rnd.IntN(20) {
					runtime.Gosched() // the preparer is at work meanwhile
				}
				require.True(t, bytes.Equal(log[end:end+n], b[:n]), "handed out at %d", end)
				n = min(n, recordEnd(starts, end, 1+rnd.IntN(n)))
				require.NoError(t, s.RawCommit(n))
				end += n
			}
			waitDispatched(t, s)
			for pos := int64(0); pos < s.End(); {
				sl, err := s.Read(pos, 1<<20)
				require.NoError(t, err)
				require.True(t, bytes.Equal(log[pos:pos+int64(len(sl.Bytes))], sl.Bytes), "at %d", pos)
				pos += int64(len(sl.Bytes))
				sl.Release()
			}
		})
	}
}

// recordEnd makes n larger so that a commit ends with a record: then the dispatcher can catch up at any time.
func recordEnd(starts []int64, from, n int) int {
	for _, at := range starts {
		if at >= int64(from+n) {
			return int(at) - from
		}
	}
	return 1 << 30
}

// rawLog is a log of a few segments, and where its records begin.
func rawLog(t *testing.T, size int64) (log []byte, starts []int64) {
	o := testOptions(tempDir(t))
	o.SegmentSize = size
	m := openTest(t, o)
	rnd := rand.New(rand.NewPCG(uint64(size), 3))
	for m.End() < 6*size {
		a := put(t, m, message{topic: "T", body: strings.Repeat("r", 1+rnd.IntN(int(size)/9))})
		starts = append(starts, a.Offset)
	}
	for pos := int64(0); pos < m.End(); {
		sl, err := m.Read(pos, 1<<20)
		require.NoError(t, err)
		log = append(log, sl.Bytes...)
		pos += int64(len(sl.Bytes))
		sl.Release()
	}
	return log, starts
}

// full waits until the window is as far ahead as it is kept.
func full(t testing.TB, s *Store) {
	t.Helper()
	waitFor(t, "window", func() bool { return s.window.edge.Load() >= s.End()+windowLeast/2-windowChunk })
}

func TestWindowGoesOverIntoTheNextSegment(t *testing.T) {
	o := testOptions(tempDir(t))
	o.SegmentSize = 6 << 20
	s := openTest(t, o)
	for s.End() < 5<<20 {
		put(t, s, message{topic: "T", body: strings.Repeat("x", 100_000)})
	}
	waitFor(t, "the next segment's pages", func() bool { return s.window.edge.Load() > o.SegmentSize })
	for s.End() < 3*o.SegmentSize {
		put(t, s, message{topic: "T", body: strings.Repeat("x", 100_000)})
	}
	full(t, s)
	require.NoError(t, s.TruncateTo(o.SegmentSize))
	full(t, s)
	require.Less(t, s.window.edge.Load(), 2*o.SegmentSize)
}

func TestOpenPreparesFromThePageBehindTheEnd(t *testing.T) {
	o := testOptions(tempDir(t))
	o.SegmentSize = 16 << 20
	s := openTest(t, o)
	l := putMany(t, s, "T", 50)
	for _, dir := range []string{crashCopy(t, s), o.RootDir} {
		if dir == o.RootDir {
			closeTest(t, s)
		}
		s2 := openTest(t, withDir(o, dir))
		full(t, s2)
		requireMessages(t, s2, l)
		put(t, s2, message{topic: "T", body: "goes on"})
		closeTest(t, s2)
	}
}

func TestAppendsGoOnWhereNothingCanBePrepared(t *testing.T) {
	o, f := faultOptions(t)
	o.SegmentSize = 1 << 20
	var tries atomic.Int64
	f.setFail(func(op, name string) error {
		if op == "write" && strings.HasPrefix(name, filepath.Join(o.RootDir, "commitlog")) {
			tries.Add(1)
			return &os.PathError{Op: "write", Path: name, Err: unix.ENOSPC}
		}
		return nil
	})
	s := openTest(t, o)
	var l []*Append
	for s.End() < 3*o.SegmentSize {
		l = append(l, put(t, s, message{topic: "T", body: "body" + strings.Repeat("x", 50_000)}))
	}
	requireIntact(t, s, l)
	require.NoError(t, s.Err())
	waitFor(t, "a try", func() bool { return tries.Load() > 0 })
	require.LessOrEqual(t, tries.Load(), int64(5), "one per segment")
}

func TestEdgeOfAWriterIsAWholePageOfItsSegment(t *testing.T) {
	o := testOptions(tempDir(t))
	o.SegmentSize = 10_000
	w := newStore(o).window
	for pos, want := range map[int64]int64{0: 0, 1: 4096, 4096: 4096, 4097: 8192, 8193: 10_000, 9999: 10_000, 10_000: 10_000, 10_001: 14_096} {
		require.Equal(t, want, w.pageEnd(pos), "%d", pos)
	}
}

func TestFlushLeavesWhatIsBeingAppendedTo(t *testing.T) {
	o := quiet(testOptions(tempDir(t)))
	o.SegmentSize = 1 << 20
	s := openTest(t, o)
	var l []*Append
	for s.End() < 5*pageSize+100 {
		l = append(l, put(t, s, message{topic: "T", body: strings.Repeat("x", 1000)}))
	}
	f := s.flush
	require.NoError(t, f.atTick(f.thorough))
	require.EqualValues(t, s.End()-s.End()%pageSize, s.Flushed())
	// Nothing was appended since.
	require.NoError(t, f.atTick(f.thorough))
	require.Equal(t, s.End(), s.Flushed())
	put(t, s, message{topic: "T"})
	require.NoError(t, f.atTick(f.thorough))
	require.Equal(t, l[len(l)-1].End, s.Flushed(), "too few pages")
	put(t, s, message{topic: "T"})
	require.NoError(t, f.atTick(f.thorough.Add(s.opt.FlushThorough)))
	require.Equal(t, s.End(), s.Flushed())
	for s.End() < 2*windowChunk+5*pageSize {
		put(t, s, message{topic: "T", body: strings.Repeat("x", 1000)})
	}
	require.NoError(t, f.atTick(f.thorough))
	require.EqualValues(t, 2*windowChunk, s.Flushed())
}

func TestFlushOfARangeIsNoMoreThanThat(t *testing.T) {
	o, f := faultOptions(t)
	o = quiet(o)
	o.SegmentSize = 1 << 20
	s := openTest(t, o)
	put(t, s, message{topic: "T", body: "body"})
	full := func() { waitFor(t, "window", func() bool { return s.window.edge.Load() >= o.SegmentSize }) }
	full()
	require.NoError(t, s.flush.flush())
	kept := f.content
	for s.End() < 20*pageSize {
		put(t, s, message{topic: "T", body: strings.Repeat("x", 1000)})
	}
	require.NoError(t, s.flush.flushTo(8*pageSize))
	f.mu.Lock()
	defer f.mu.Unlock()
	found := false
	for _, b := range kept {
		if int64(len(b)) != o.SegmentSize || b[0] == 0 && b[3] == 0 {
			continue
		}
		found = true
		require.NotEqual(t, "", strings.Trim(b[7*pageSize:8*pageSize], "\x00"))
		require.Zero(t, len(strings.Trim(b[8*pageSize:], "\x00")), "bytes beyond the range")
	}
	require.True(t, found)
}
