package commitlog

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever bytes a segment's end is overwritten with: opening refuses, or leaves a store in order, and never panics.
func FuzzOpenWithDamagedSegment(f *testing.F) {
	f.Add(uint16(0), []byte{0})
	f.Add(uint16(300), []byte{0, 0, 0, 100, 0xda, 0xa3, 0x20, 0xa7})
	f.Add(uint16(5000), []byte{0, 0, 0x10, 0, 0xcb, 0xd4, 0x31, 0x94})
	f.Add(uint16(16380), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint16(9000), append(message{topic: "T", body: "x"}.encode(), 1))
	s := openTest(f, quiet(testOptions(tempDir(f))))
	putMany(f, s, "T", 60)
	waitDispatched(f, s)
	f.Fuzz(func(t *testing.T, pos uint16, b []byte) {
		dir := crashCopy(t, s)
		forget(t, dir)
		last := s.End() - s.End()%16384
		at := last + int64(pos)%16384
		overwrite(t, dir, at, b[:min(len(b), int(last+16384-at))])
		s2, err := Open(withDir(s.opt, dir))
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		readAllQueues(t, s2)
		closeTest(t, s2)
	})
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
