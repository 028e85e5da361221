package commitlog

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func mapped(s *Store) (n int) {
	for _, g := range s.segs.all() {
		if g.mem.Load() != nil {
			n++
		}
	}
	return n
}

// manySegments is a flushed log of about n segments.
func manySegments(t *testing.T, n int64) (*Store, []*Append) {
	s := openTest(t, testOptions(tempDir(t)))
	var l []*Append
	for s.End() < n*s.SegmentSize() {
		l = append(l, put(t, s, message{topic: "T", body: "body" + strings.Repeat("x", 2000)}))
	}
	waitDispatched(t, s)
	require.NoError(t, s.flush.flush())
	waitFor(t, "window to let go", func() bool {
		for _, g := range s.segs.all()[:n-1] {
			if g.refs.Load() != 1 {
				return false
			}
		}
		return true
	})
	return s, l
}

func TestIdleSegmentsAreUnmappedAndMappedAgainOnUse(t *testing.T) {
	s, l := manySegments(t, 12)
	all := len(s.segs.all())
	require.Equal(t, all, mapped(s))
	held, err := s.Segment(0)
	require.NoError(t, err)
	s.unmapIdle() // takes the marks of use
	require.Equal(t, all, mapped(s))
	used, err := s.RecordAt(3 * s.SegmentSize())
	require.NoError(t, err)
	used.Release()
	s.unmapIdle()
	require.Equal(t, mappedAlways+2, mapped(s), "the newest, the one held and the one used")
	s.unmapIdle()
	require.Equal(t, mappedAlways+1, mapped(s))
	require.NotEmpty(t, held.Bytes())
	held.Release()
	requireIntact(t, s, l)
	require.Equal(t, all, mapped(s))
	put(t, s, message{topic: "T"})
}

func TestSegmentsNotFlushedStayMapped(t *testing.T) {
	s, _ := manySegments(t, 12)
	s.flushed.Store(s.SegmentSize())
	s.unmapIdle()
	s.unmapIdle()
	require.Equal(t, len(s.segs.all())-1, mapped(s))
}

func TestReadersMeetNoUnmappedSegment(t *testing.T) {
	s, l := manySegments(t, 12)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 7))
			for !stop.Load() {
				a := l[rnd.IntN(len(l))]
				sl, err := s.RecordAt(a.Offset)
				if err != nil {
					t.Error(err)
					return
				}
				sl.Release()
			}
		})
	}
	for range 300 {
		s.unmapIdle()
	}
	for range 20 {
		put(t, s, message{topic: "T", body: strings.Repeat("x", 5000)})
		s.unmapIdle()
	}
	stop.Store(true)
	wg.Wait()
	require.NoError(t, s.TruncateTo(2*s.SegmentSize()))
	s.unmapIdle()
	put(t, s, message{topic: "T"})
}
