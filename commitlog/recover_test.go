package commitlog

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quiet keeps the store from saving anything by itself.
func quiet(o Options) Options {
	o.FlushInterval, o.QueueFlushInterval = time.Hour, time.Hour
	return o
}

func TestKillLosesNothingThatWasAppended(t *testing.T) {
	for name, change := range map[string]func(Options) Options{"saving": func(o Options) Options { return o }, "quiet": quiet} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, change(testOptions(tempDir(t))))
			for round := range 6 {
				putMany(t, s, "T", 40+round*50)
				if round%2 == 0 {
					waitDispatched(t, s)
				}
				dir := crashCopy(t, s)
				s2 := openTest(t, withDir(s.opt, dir))
				require.False(t, s2.Recovery().Clean)
				require.Equal(t, s.End(), s2.End())
				waitDispatched(t, s)
				for id := range int32(3) {
					require.Equal(t, readQueue(t, s.Queue("T", id)), readQueue(t, s2.Queue("T", id)))
					require.Equal(t, s.Queue("T", id).NextOffset(), s2.Queue("T", id).NextOffset())
				}
				closeTest(t, s2)
				require.Equal(t, filesUpTo(t, s.root, s.End()), filesUpTo(t, dir, s.End()))
			}
		})
	}
}

// filesUpTo reads the segments that hold anything below end.
func filesUpTo(t testing.TB, dir string, end int64) map[string]string {
	m := files(t, dir, "commitlog")
	for name := range m {
		if base, _ := parseSegmentName(name); base >= end {
			delete(m, name)
		}
	}
	return m
}

func TestRecoveryReadsOnlyWhatTheManifestDoesNotCover(t *testing.T) {
	s := openTest(t, quiet(testOptions(tempDir(t))))
	putMany(t, s, "T", 300)
	waitDispatched(t, s)
	require.NoError(t, s.keep.save())
	at := s.End()
	putMany(t, s, "T", 5)
	waitDispatched(t, s)
	s2 := openTest(t, withDir(s.opt, crashCopy(t, s)))
	require.Equal(t, at, s2.Recovery().Start)
	require.EqualValues(t, 5, s2.Recovery().Records)
}

func TestAfterAnotherBrokerRanTheManifestDoesNotCount(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	putMany(t, s, "T", 30)
	closeTest(t, s)
	name := filepath.Join(o.RootDir, "checkpoint")
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Len(t, b, 4096)
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+1)
	require.NoError(t, os.WriteFile(name, b, 0o644))
	s = openTest(t, o)
	require.EqualValues(t, 30, s.Recovery().Records)
}

// A damage is done to the files of a killed store of 200 messages whose last segment is not the first.
type damage struct {
	name string
	harm func(t testing.TB, dir string, l []*Append)
	want func(l []*Append) int // messages that survive, -1: refused with err
	err  error
	says string
}

func segmentFile(dir string, pos int64) string {
	return filepath.Join(dir, "commitlog", segmentName(pos-pos%16384))
}

func overwrite(t testing.TB, dir string, pos int64, b []byte) {
	f, err := os.OpenFile(segmentFile(dir, pos), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(b, pos%16384)
	require.NoError(t, err)
}

func read(t testing.TB, dir string, a *Append) []byte {
	b, err := os.ReadFile(segmentFile(dir, a.Offset))
	require.NoError(t, err)
	return b[a.Offset%16384:][:a.End-a.Offset]
}

func all(l []*Append) int        { return len(l) }
func allButLast(l []*Append) int { return len(l) - 1 }
func refused([]*Append) int      { return -1 }

func lastOf(l []*Append) *Append { return l[len(l)-1] }

// inFirstSegment is a record somewhere in the middle of the first segment.
func inFirstSegment(l []*Append) *Append { return l[20] }

var damages = []damage{
	{name: "nothing", harm: func(testing.TB, string, []*Append) {}, want: all},
	{name: "junk behind the end", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).End, []byte("some junk that is no record"))
	}},
	{name: "half a record behind the end", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).End, read(t, dir, lastOf(l))[:60])
	}},
	{name: "old valid record copied behind the end", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).End, read(t, dir, lastOf(l)))
	}},
	{name: "last record's body", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset+90, []byte{1, 2, 3})
	}},
	{name: "last record's magic", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset+4, []byte{1})
	}},
	{name: "last record's size too large", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset, []byte{0x7f})
	}},
	{name: "last record's size negative", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset, []byte{0xff})
	}},
	{name: "last record zeroed", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset, make([]byte, lastOf(l).End-lastOf(l).Offset))
	}},
	{name: "last record's position", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).Offset+35, []byte{99})
	}},
	{name: "last record's tail missing", want: allButLast, harm: func(t testing.TB, dir string, l []*Append) {
		overwrite(t, dir, lastOf(l).End-20, make([]byte, 20))
	}},
	{name: "empty last segment", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		next := segmentFile(dir, lastOf(l).End+16384)
		_ = os.Remove(next)
		require.NoError(t, os.WriteFile(next, nil, 0o644))
	}},
	{name: "a record in the middle, before other segments", want: refused, err: ErrDamaged, says: "tandem store verify", harm: func(t testing.TB, dir string, l []*Append) {
		forget(t, dir)
		overwrite(t, dir, inFirstSegment(l).Offset+90, []byte{1, 2, 3})
	}},
	{name: "a record in the middle of the last segment, flushed long ago", want: refused, err: ErrDamaged, says: "tandem store verify", harm: func(t testing.TB, dir string, l []*Append) {
		_ = os.Remove(filepath.Join(dir, manifestName))
		overwrite(t, dir, l[len(l)-4].Offset+90, []byte{1, 2, 3})
	}},
	{name: "a record in the middle of the last segment, never known to be flushed", want: func(l []*Append) int { return len(l) - 4 },
		harm: func(t testing.TB, dir string, l []*Append) {
			forget(t, dir)
			overwrite(t, dir, l[len(l)-4].Offset+90, []byte{1, 2, 3})
		}},
	{name: "segment of another length", want: refused, err: ErrSegmentSize, says: "mappedFileSizeCommitLog", harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.Truncate(segmentFile(dir, 0), 16000))
	}},
	{name: "last segment of another length", want: refused, err: ErrSegmentSize, says: "16384", harm: func(t testing.TB, dir string, l []*Append) {
		_ = os.Remove(segmentFile(dir, lastOf(l).End+16384))
		require.NoError(t, os.Truncate(segmentFile(dir, lastOf(l).Offset), 16000))
	}},
	{name: "segment missing", want: refused, err: ErrSegmentMissing, says: segmentName(16384), harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.Remove(segmentFile(dir, 16384)))
	}},
	{name: "log missing", want: refused, err: ErrLogMissing, says: "commitlog", harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "commitlog")))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "commitlog"), 0o755))
	}},
	{name: "checkpoint junk", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), []byte(strings.Repeat("junk", 100)), 0o644))
	}},
	{name: "checkpoint empty", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), nil, 0o644))
	}},
	{name: "manifest junk", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, manifestName), []byte("{junk"), 0o644))
	}},
	{name: "queue unit beyond the log", want: all, harm: func(t testing.TB, dir string, l []*Append) {
		f, err := os.OpenFile(filepath.Join(dir, "consumequeue/T/0", segmentName(1000)), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt(Unit{Offset: 1 << 30, Size: 100}.append(nil), 980)
		require.NoError(t, err)
	}},
}

// forget takes away all knowledge about what is durable.
func forget(t testing.TB, dir string) {
	_ = os.Remove(filepath.Join(dir, manifestName))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), make([]byte, 4096), 0o644))
}

func TestDamagedStores(t *testing.T) {
	s := openTest(t, quiet(testOptions(tempDir(t))))
	l := putMany(t, s, "T", 200)
	waitDispatched(t, s)
	require.NoError(t, s.keep.save())
	require.Greater(t, s.End(), int64(2*16384))
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			dir := crashCopy(t, s)
			d.harm(t, dir, l)
			before := files(t, dir, "commitlog")
			s2, err := Open(withDir(s.opt, dir))
			want := d.want(l)
			if want < 0 {
				require.ErrorIs(t, err, d.err)
				require.ErrorContains(t, err, d.says)
				require.Equal(t, before, files(t, dir, "commitlog"), "a refused store is not touched")
				return
			}
			require.NoError(t, err)
			requireMessages(t, s2, l[:want])
			a := put(t, s2, message{topic: "T", queue: 1, body: "goes on"})
			require.Equal(t, l[want-1].End, a.Offset)
			waitDispatched(t, s2)
			closeTest(t, s2)
			s2 = openTest(t, withDir(s.opt, dir))
			requireMessages(t, s2, append(slices.Clone(l[:want]), a))
			closeTest(t, s2)
		})
	}
}

func requireMessages(t testing.TB, s *Store, l []*Append) {
	t.Helper()
	require.Equal(t, lastOf(l).End, s.End())
	numbers := make(map[int32]int64)
	for _, a := range l {
		sl, err := s.RecordAt(a.Offset)
		require.NoError(t, err)
		sl.Release()
		numbers[a.Queue.ID()]++
	}
	for id, n := range numbers {
		q := s.Queue("T", id)
		require.LessOrEqual(t, q.MinOffset(), q.MaxOffset())
		require.Len(t, readQueue(t, q), int(n))
		require.Equal(t, n, q.NextOffset())
	}
}

func TestDamagedQueueFilesAreRebuiltIdentical(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for name, harm := range queueHarm {
			for _, which := range []int64{0, 1000, 2000} { // first, middle and last file
				t.Run(fmt.Sprintf("%s %d clean=%v", name, which, clean), func(t *testing.T) {
					s := openTest(t, quiet(testOptions(tempDir(t))))
					putMany(t, s, "T", 390)
					waitDispatched(t, s)
					require.NoError(t, s.keep.save())
					dir := s.root
					if clean {
						closeTest(t, s)
					} else {
						putMany(t, s, "U", 20) // the scan does not meet T
						waitDispatched(t, s)
						dir = crashCopy(t, s)
					}
					want := files(t, dir, "consumequeue")
					require.Len(t, want["T/1/"+segmentName(2000)], 1000)
					harm(t, filepath.Join(dir, "consumequeue/T/1", segmentName(which)))
					s2 := openTest(t, withDir(s.opt, dir))
					require.NotEmpty(t, s2.Recovery().Reason)
					closeTest(t, s2)
					require.Equal(t, want, files(t, dir, "consumequeue"))
				})
			}
		}
	}
}

func TestWholeQueueDirectoryGoneIsRebuilt(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	putMany(t, s, "T", 100)
	closeTest(t, s)
	want := files(t, o.RootDir, "consumequeue")
	require.NoError(t, os.RemoveAll(filepath.Join(o.RootDir, "consumequeue")))
	s = openTest(t, o)
	closeTest(t, s)
	require.Equal(t, want, files(t, o.RootDir, "consumequeue"))
}

func TestWrongQueueFileSizeIsNamed(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	putMany(t, s, "T", 30)
	closeTest(t, s)
	for _, units := range []int{25, 100} {
		bad := o
		bad.ConsumeQueueUnits = units
		_, err := Open(bad)
		require.ErrorIs(t, err, ErrQueueFileSize)
		require.ErrorContains(t, err, "mappedFileSizeConsumeQueue")
	}
	bad := o
	bad.SegmentSize = 8192
	_, err := Open(bad)
	require.ErrorIs(t, err, ErrSegmentSize)
	require.ErrorContains(t, err, "has 16384 bytes")
	// A wrong setting does not turn a clean store into an aborted one.
	s = openTest(t, o)
	require.True(t, s.Recovery().Clean)
}

func TestTailIsCutForGood(t *testing.T) {
	s := openTest(t, quiet(testOptions(tempDir(t))))
	l := putMany(t, s, "T", 60)
	waitDispatched(t, s)
	require.NoError(t, s.keep.save())
	dir := crashCopy(t, s)
	forget(t, dir)
	cut := l[len(l)-5]
	overwrite(t, dir, cut.Offset+4, []byte{0})
	s2 := openTest(t, withDir(s.opt, dir))
	require.Equal(t, cut.Offset, s2.End())
	require.Equal(t, lastOf(l).End-cut.Offset, s2.Recovery().CutBytes)
	b, err := os.ReadFile(segmentFile(dir, cut.Offset))
	require.NoError(t, err)
	require.Zero(t, usedLen(b[cut.Offset%16384:]))
	closeTest(t, s2)
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	o := testOptions(tempDir(t))
	closeTest(t, openTest(t, o))
	for _, name := range []string{"commitlog/notes.txt", "index/20260101000000000", "config/topics.json"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(o.RootDir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(o.RootDir, name), []byte("mine"), 0o644))
	}
	s := openTest(t, o)
	putMany(t, s, "T", 10)
	closeTest(t, s)
	require.Equal(t, "mine", files(t, o.RootDir, "commitlog")["notes.txt"])
	require.Equal(t, "mine", files(t, o.RootDir, "index")["20260101000000000"])
}

func TestManyQueuesOpenFromTheManifest(t *testing.T) {
	o := quiet(testOptions(tempDir(t)))
	s := openTest(t, o)
	for i := range 1200 { // more than there are cached descriptors
		put(t, s, message{topic: fmt.Sprintf("Topic%d", i/4), queue: int32(i % 4), body: "x"})
	}
	closeTest(t, s)
	s = openTest(t, o)
	require.Len(t, s.Queues(), 1200)
	require.Zero(t, s.Recovery().Records)
	require.Equal(t, 1200, readAllQueues(t, s))
}

// No checksum covers a record's place in its queue. Whatever it says there, the work is bounded and the other messages keep
// their places.
func TestWrongPlaceOfOneRecordHurtsNoOther(t *testing.T) {
	const queueAt, numberAt = 12, 20
	number := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	o := quiet(testOptions(tempDir(t)))
	o.ConsumeQueueUnits = 1000
	s := openTest(t, o)
	l := putMany(t, s, "T", 200)
	waitDispatched(t, s)
	for name, c := range map[string]struct {
		which int // of l; its number is a third of that
		at    int64
		b     []byte
	}{
		"one ahead":                {100, numberAt, number(34)},
		"some ahead":               {100, numberAt, number(40)},
		"ahead of all":             {100, numberAt, number(5000)},
		"far ahead":                {100, numberAt, number(33 + maxGap)},
		"too far ahead":            {100, numberAt, number(33 + maxGap + 1)},
		"impossible":               {100, numberAt, number(0x3000000021)},
		"most":                     {100, numberAt, number(1<<63 - 1)},
		"negative":                 {100, numberAt, number(-1)},
		"one behind":               {100, numberAt, number(32)},
		"far behind":               {100, numberAt, number(0)},
		"other queue":              {100, queueAt, []byte{0, 0, 0, 2}},
		"new queue":                {100, queueAt, []byte{0x7f, 0, 0, 0}},
		"negative queue":           {100, queueAt, []byte{0xff, 0, 0, 0}},
		"first one ahead of all":   {1, numberAt, number(5000)},
		"first one impossible":     {1, numberAt, number(1 << 40)},
		"second one ahead":         {4, numberAt, number(5000)},
		"last one ahead":           {199, numberAt, number(80)},
		"last one impossible":      {199, numberAt, number(1 << 40)},
		"first of segment, behind": {53, numberAt, number(1)},
	} {
		for _, queues := range []string{"kept", "gone"} {
			t.Run(name+", queues "+queues, func(t *testing.T) {
				dir, a := crashCopy(t, s), l[c.which]
				forget(t, dir)
				if queues == "gone" {
					require.NoError(t, os.RemoveAll(filepath.Join(dir, "consumequeue")))
				}
				overwrite(t, dir, a.Offset+c.at, c.b)
				for range 2 {
					s2, err := Open(withDir(s.opt, dir))
					require.NoError(t, err)
					require.Equal(t, s.End(), s2.End())
					requireOthers(t, s2, l, a.Offset, a.End)
					require.NoError(t, s2.Close())
					requireOthersSound(t, s2.opt, l, a.Offset, a.End)
					forget(t, dir)
				}
			})
		}
	}
}
