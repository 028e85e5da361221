//go:build !race

package commitlog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector makes some of the runtime's own shortcuts allocate, so these promises are kept without it.

func TestAppendReadAndDispatchDoNotAllocate(t *testing.T) {
	s := openTest(t, bigOptions(t))
	var l []*Append
	for i := range 16 {
		m := message{topic: "T", queue: int32(i % 4), body: strings.Repeat("x", 100), tag: "TagA"}
		if l = append(l, item(s, m)); i%2 == 0 {
			noted(l[i], m)
		}
	}
	hook := countingHook{new(int)}
	s.Append(l, hook)
	waitDispatched(t, s)
	require.Zero(t, testing.AllocsPerRun(200, func() { s.Append(l, hook) }))
	waitDispatched(t, s)

	s.SetVisible(func() int64 { return 0 })
	d := s.dispatch
	require.Zero(t, testing.AllocsPerRun(50, func() {
		s.Append(l, hook)
		if _, err := d.round(s.End()); err != nil {
			t.Error(err)
		}
	}))
	s.SetVisible(nil)

	q := s.Queue("T", 0)
	units := make([]Unit, 32)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		n, err := q.Read(5, units)
		if n != 32 || err != nil {
			t.Error(n, err)
		}
		sl, err := s.Read(units[0].Offset, int(units[0].Size))
		if err != nil {
			t.Error(err)
		}
		sl.Release()
	}))
}

func TestSlavesAppendsDoNotAllocate(t *testing.T) {
	o := quiet(slaveOptions(tempDir(t)))
	o.SegmentSize = 64 << 20
	s := openTest(t, o)
	s.SetVisible(func() int64 { return 0 })
	m := openTest(t, bigOptions(t))
	l := benchItems(m, 64, 100)
	for m.End() < 24<<20 {
		m.Append(l, nil)
	}
	src, err := m.Read(0, 24<<20)
	require.NoError(t, err)
	defer src.Release()
	rest := src.Bytes
	require.Zero(t, testing.AllocsPerRun(500, func() { // over several windows
		b, err := s.RawBuffer(s.End(), 32<<10)
		if err != nil {
			t.Error(err)
		}
		n := copy(b, rest)
		rest = rest[n:]
		if err := s.RawCommit(n); err != nil {
			t.Error(err)
		}
	}))
	full(t, s) // the window was at work
	require.NoError(t, s.Reset())
}

type countingHook struct{ n *int }

func (c countingHook) Appended(*Append) { *c.n++ }
