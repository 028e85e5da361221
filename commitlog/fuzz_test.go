package commitlog

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever bytes of a segment are overwritten: opening refuses, or leaves a store in which every other record up to the log's
// end has its place, and never panics. No checksum covers what a record says about its queue.
func FuzzOpenWithDamagedSegment(f *testing.F) {
	f.Add(uint16(0), []byte{0})
	f.Add(uint16(300), []byte{0, 0, 0, 100, 0xda, 0xa3, 0x20, 0xa7})
	f.Add(uint16(5000), []byte{0, 0, 0x10, 0, 0xcb, 0xd4, 0x31, 0x94})
	f.Add(uint16(16380), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint16(9000), append(message{topic: "T", body: "x"}.encode(), 1))
	o := quiet(testOptions(tempDir(f)))
	o.ConsumeQueueUnits = 1000
	s := openTest(f, o)
	l := putMany(f, s, "T", 60)
	waitDispatched(f, s)
	f.Fuzz(func(t *testing.T, pos uint16, b []byte) {
		dir := crashCopy(t, s)
		forget(t, dir)
		last := s.End() - s.End()%16384
		at := last + int64(pos)%16384
		b = b[:min(len(b), int(last+16384-at))]
		overwrite(t, dir, at, b)
		s2, err := Open(withDir(s.opt, dir))
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		requireOthers(t, s2, l, at, at+int64(len(b)))
		require.NoError(t, s2.Close())
		requireOthersSound(t, s2.opt, l, at, at+int64(len(b)))
	})
}

// requireOthers checks that each message in front of the log's end that does not touch [from, to) is found through its queue,
// unless one that does has its number.
func requireOthers(t testing.TB, s *Store, l []*Append, from, to int64) {
	t.Helper()
	for _, a := range l {
		if a.End > s.End() || a.touches(from, to) {
			continue
		}
		var u [1]Unit
		n, err := s.Queue(a.Queue.topic, a.Queue.id).Read(a.QueueOffset, u[:])
		require.NoError(t, err)
		require.Equal(t, 1, n, "queue %d number %d at %d", a.Queue.id, a.QueueOffset, a.Offset)
		if !touched(l, u[0].Offset, from, to) {
			require.Equal(t, a.Offset, u[0].Offset, "queue %d number %d", a.Queue.id, a.QueueOffset)
		}
	}
}

func (a *Append) touches(from, to int64) bool { return a.Offset < to && a.End > from }

// touched tells whether pos lies in an item of l that touches [from, to).
func touched(l []*Append, pos, from, to int64) bool {
	return slices.ContainsFunc(l, func(a *Append) bool { return a.touches(from, to) && pos >= a.Offset && pos < a.End })
}

var wrongUnit = regexp.MustCompile(`unit is {Offset:(\d+) .* the record at (\d+) `)

// requireOthersSound checks a closed store like requireSound, but for the records of l that touch [from, to).
func requireOthersSound(t testing.TB, o Options, l []*Append, from, to int64) {
	t.Helper()
	r, err := Verify(o.RootDir, nil)
	require.NoError(t, err)
	for _, p := range r.Problems {
		m := wrongUnit.FindStringSubmatch(p.What)
		require.NotNil(t, m, p)
		require.True(t, slices.ContainsFunc(m[1:], func(digits string) bool {
			pos, err := strconv.ParseInt(digits, 10, 64)
			return err == nil && touched(l, pos, from, to)
		}), p)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(message{topic: "T", body: "hello", tag: "TagA"}.encode(), int64(0), int64(1000))
	f.Add([]byte{0, 0, 0, 16, 0xcb, 0xd4, 0x31, 0x94}, int64(5), int64(16))
	f.Fuzz(func(t *testing.T, b []byte, pos, room int64) {
		room = max(0, room)
		if int64(len(b)) > room {
			b = b[:room]
		}
		var e entry
		switch e.inspect(b, pos, room, true) {
		case findRecord, findBlank:
			require.LessOrEqual(t, e.size, room)
		}
	})
}

// A manifest is only a hint: no content of it may lose a message or stop a start.
func FuzzManifest(f *testing.F) {
	s := openTest(f, quiet(testOptions(tempDir(f))))
	putMany(f, s, "T", 30)
	waitDispatched(f, s)
	require.NoError(f, s.keep.save())
	good, err := os.ReadFile(s.manifestPath())
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version":1,"position":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := crashCopy(t, s)
		require.NoError(t, os.WriteFile(dir+"/"+manifestName, b, 0o644))
		s2, err := Open(withDir(s.opt, dir))
		require.NoError(t, err)
		require.Equal(t, s.End(), s2.End())
		require.NoError(t, s2.Close())
	})
}
