package commitlog

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// masterLog is the log of a master with a few segments.
func masterLog(t testing.TB) (s *Store, log []byte, l []*Append) {
	s = openTest(t, testOptions(tempDir(t)))
	l = putMany(t, s, "T", 150)
	put(t, s, message{topic: "T", body: strings.Repeat("large", 2000)})
	l = append(l, putMany(t, s, "U", 30)...)
	waitDispatched(t, s)
	for pos := int64(0); pos < s.End(); {
		sl, err := s.Read(pos, 1<<20)
		require.NoError(t, err)
		log = append(log, sl.Bytes...)
		pos += int64(len(sl.Bytes))
		sl.Release()
	}
	return s, log, l
}

func slaveOptions(dir string) Options {
	o := testOptions(dir)
	o.Slave = true
	return o
}

// feed writes bytes of the master's log in pieces of at most most bytes.
func feed(t testing.TB, s *Store, from int64, b []byte, most int) {
	t.Helper()
	for len(b) > 0 {
		buf, err := s.RawBuffer(from, min(most, len(b)))
		require.NoError(t, err)
		require.NotEmpty(t, buf)
		n := copy(buf, b)
		require.NoError(t, s.RawCommit(n))
		from += int64(n)
		b = b[n:]
	}
	require.Equal(t, from, s.End())
}

func requireSameQueues(t testing.TB, want, got *Store) {
	t.Helper()
	for _, q := range want.Queues() {
		require.Equal(t, readQueue(t, q), readQueue(t, got.Queue(q.topic, q.id)))
	}
}

func TestSlaveTakesTheLogInAnyPieces(t *testing.T) {
	m, log, _ := masterLog(t)
	for _, most := range []int{1, 7, 1000, 1 << 20} {
		s := openTest(t, slaveOptions(tempDir(t)))
		feed(t, s, 0, log, most)
		waitDispatched(t, s)
		requireSameQueues(t, m, s)
		require.NoError(t, s.Err())
		closeTest(t, s)
		require.NoError(t, m.flush.flush())
		d, err := Diff(m.root, s.root)
		require.NoError(t, err)
		require.True(t, d.Identical(), d.String())
	}
}

func TestSlaveWithoutByteZeroHasItAll(t *testing.T) {
	m, log, _ := masterLog(t)
	s := openTest(t, slaveOptions(tempDir(t)))
	feed(t, s, 1, log[1:], 500)
	waitDispatched(t, s)
	requireSameQueues(t, m, s)
	require.Zero(t, s.MinOffset())
}

func TestSlaveJoiningLateStartsAtASegment(t *testing.T) {
	m, log, _ := masterLog(t)
	s := openTest(t, slaveOptions(tempDir(t)))
	for _, bad := range []int64{16385, 2, 16383, -1} {
		_, err := s.RawBuffer(bad, 10)
		require.ErrorIs(t, err, ErrOffsetMismatch, "%d", bad)
	}
	feed(t, s, 32768, log[32768:], 999)
	_, err := s.RawBuffer(s.End()-1, 10)
	require.ErrorIs(t, err, ErrOffsetMismatch)
	waitDispatched(t, s)
	require.EqualValues(t, 32768, s.MinOffset())
	check := func(s *Store) {
		for _, q := range m.Queues() {
			mine := s.Queue(q.topic, q.id)
			require.Equal(t, q.MaxOffset(), mine.MaxOffset())
			require.LessOrEqual(t, mine.MinOffset(), mine.MaxOffset())
			whole, got := readQueue(t, q), readQueue(t, mine)
			require.Equal(t, whole[len(whole)-len(got):], got)
			n, err := mine.Read(mine.MinOffset()-1, make([]Unit, 1))
			require.NoError(t, err)
			require.Zero(t, n)
		}
	}
	check(s)
	// The padding is the one RocketMQ writes.
	b := files(t, s.root, "consumequeue")["T/0/"+segmentName(0)]
	pad := Unit{Size: 0x7fffffff}.append(nil)
	require.True(t, strings.HasPrefix(b, string(pad)))
	for _, killed := range []bool{true, false} {
		dir := s.root
		if killed {
			dir = crashCopy(t, s)
		} else {
			closeTest(t, s)
		}
		s2 := openTest(t, withDir(s.opt, dir))
		check(s2)
		closeTest(t, s2)
	}
}

func TestHalfTailOfASlaveIsCutAtReopenAndFetchedAgain(t *testing.T) {
	m, log, l := masterLog(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		cut := 1 + rnd.Int64N(int64(len(log)))
		s := openTest(t, slaveOptions(tempDir(t)))
		feed(t, s, 0, log[:cut], 1+rnd.IntN(3000))
		dir := s.root
		if rnd.IntN(2) == 0 {
			dir = crashCopy(t, s)
		} else {
			closeTest(t, s)
		}
		s2 := openTest(t, withDir(s.opt, dir))
		require.LessOrEqual(t, s2.End(), max(cut, (cut+16383)/16384*16384))
		for _, a := range l {
			if a.End <= cut {
				require.LessOrEqual(t, a.End, s2.End())
			}
		}
		require.Equal(t, s2.End(), s2.Dispatched())
		feed(t, s2, s2.End(), log[s2.End():], 1000)
		waitDispatched(t, s2)
		requireSameQueues(t, m, s2)
		closeTest(t, s2)
		require.True(t, bytes.Equal(log, logOf(t, dir)[:len(log)]))
	}
}

func logOf(t testing.TB, dir string) (b []byte) {
	for pos := int64(0); ; pos += 16384 {
		seg, err := os.ReadFile(filepath.Join(dir, "commitlog", segmentName(pos)))
		if err != nil {
			return b
		}
		b = append(b, seg...)
	}
}

func TestCorruptRecordStopsASlaveLoudly(t *testing.T) {
	_, log, l := masterLog(t)
	bad := l[40]
	broken := bytes.Clone(log)
	broken[bad.Offset+95] ^= 0xff
	s := openTest(t, slaveOptions(tempDir(t)))
	feed(t, s, 0, broken, 4096)
	waitFor(t, "error", func() bool { return s.Err() != nil })
	require.ErrorIs(t, s.Err(), ErrCorrupt)
	waitFor(t, "what lies before", func() bool { return s.Dispatched() == bad.Offset })
	require.ErrorIs(t, s.SetSlave(false), ErrCorrupt)
	require.True(t, s.Slave())
	// The way out: cut there and fetch it again.
	require.NoError(t, s.TruncateTo(bad.Offset))
	require.NoError(t, s.Err())
	feed(t, s, bad.Offset, log[bad.Offset:], 4096)
	waitDispatched(t, s)
	closeTest(t, s)
}

func TestResetEmptiesTheStore(t *testing.T) {
	m, log, _ := masterLog(t)
	s := openTest(t, slaveOptions(tempDir(t)))
	feed(t, s, 32768, log[32768:], 4096)
	waitDispatched(t, s)
	require.NoError(t, s.Reset())
	require.Zero(t, s.End()+s.MinOffset()+s.Dispatched()+s.Flushed())
	require.Empty(t, s.Queues())
	_, _, ok := s.LastRecord()
	require.False(t, ok)
	closeTest(t, openTest(t, withDir(s.opt, crashCopy(t, s))))
	feed(t, s, 0, log, 4096)
	waitDispatched(t, s)
	requireSameQueues(t, m, s)
}

func TestRolesRefuseTheOthersWrites(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	_, err := s.RawBuffer(0, 10)
	require.ErrorIs(t, err, ErrNotWritable)
	require.ErrorIs(t, s.RawCommit(0), ErrNotWritable)
	require.NoError(t, s.SetSlave(true))
	a := item(s, message{topic: "T"})
	s.Append([]*Append{a}, nil)
	require.ErrorIs(t, a.Err, ErrNotWritable)
	require.NoError(t, s.SetSlave(false))
	put(t, s, message{topic: "T"})
}

func TestPromotionCutsTheHalfTailAndCountsOn(t *testing.T) {
	_, log, l := masterLog(t)
	for _, cut := range []int64{l[60].Offset + 50, l[60].Offset, 16384, 16384 - 20, l[60].Offset + 3} {
		s := openTest(t, slaveOptions(tempDir(t)))
		feed(t, s, 0, log[:cut], 700)
		require.NoError(t, s.SetSlave(false))
		require.Equal(t, s.End(), s.Dispatched())
		require.LessOrEqual(t, s.End(), cut)
		for id := range int32(3) {
			q := s.Queue("T", id)
			held := q.MaxOffset()
			require.Equal(t, held, q.NextOffset())
			a := put(t, s, message{topic: "T", queue: id, body: "first of the new master"})
			require.Equal(t, held, a.QueueOffset)
		}
		putMany(t, s, "T", 100)
		waitDispatched(t, s)
		// And back again.
		end := s.End()
		require.NoError(t, s.SetSlave(true))
		_, err := s.RawBuffer(end, 10)
		require.NoError(t, err)
		closeTest(t, s)
	}
}

func TestTruncateCutsLogAndQueuesForGood(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	l := putMany(t, s, "T", 250)
	only := put(t, s, message{topic: "Only", body: "this queue becomes empty"})
	waitDispatched(t, s)
	require.NoError(t, s.keep.save())
	require.ErrorIs(t, s.TruncateTo(l[100].Offset+1), ErrNoRecord)
	require.ErrorIs(t, s.TruncateTo(only.End+1), ErrOutOfRange)
	for _, keep := range []int{249, 120, 20} {
		require.NoError(t, s.TruncateTo(l[keep].Offset))
		require.Equal(t, l[keep].Offset, s.End())
		requireMessages(t, s, l[:keep])
		q := s.Queue("Only", 0)
		require.Zero(t, q.MinOffset()+q.MaxOffset()+q.NextOffset())
		s2 := openTest(t, withDir(s.opt, crashCopy(t, s)))
		requireMessages(t, s2, l[:keep])
		closeTest(t, s2)
	}
	l = append(l[:20:20], putMany(t, s, "T", 90)...)
	put(t, s, message{topic: "Only", body: "new"})
	waitDispatched(t, s)
	require.Len(t, readQueue(t, s.Queue("Only", 0)), 1)
	for id := range int32(3) {
		require.EqualValues(t, len(readQueue(t, s.Queue("T", id))), s.Queue("T", id).MaxOffset())
	}
	require.NoError(t, s.TruncateTo(0))
	require.Zero(t, s.End())
	put(t, s, message{topic: "T", body: "from the start"})
	_ = l
}
