package commitlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func TestAppendGivesOffsetsNumbersAndTimes(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	a := put(t, s, message{topic: "T", body: "one"})
	b := put(t, s, message{topic: "T", body: "two", v6: true})
	c := put(t, s, message{topic: "U", body: "three"})
	require.Equal(t, []int64{0, 1, 0}, []int64{a.QueueOffset, b.QueueOffset, c.QueueOffset})
	require.EqualValues(t, 0, a.Offset)
	require.Equal(t, a.End, b.Offset)
	require.Equal(t, c.End, s.End())
	require.Less(t, a.StoreTimestamp, b.StoreTimestamp)
	for _, x := range []*Append{a, b, c} {
		sl, err := s.RecordAt(x.Offset)
		require.NoError(t, err)
		var r codec.Record
		_, err = r.Decode(sl.Bytes)
		require.NoError(t, err)
		require.Equal(t, x.Offset, r.PhysicalOffset)
		require.Equal(t, x.QueueOffset, r.QueueOffset)
		require.Equal(t, x.StoreTimestamp, r.StoreTimestamp)
		sl.Release()
	}
	waitDispatched(t, s)
	require.EqualValues(t, 2, s.Queue("T", 0).MaxOffset())
	start, end, ok := s.LastRecord()
	require.True(t, ok)
	require.Equal(t, []int64{c.Offset, c.End}, []int64{start, end})
}

func TestBatchTakesConsecutiveNumbersAndRollsAsAWhole(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	put(t, s, message{topic: "T", body: strings.Repeat("f", 15000)})
	var b []byte
	for i := range 5 {
		b = append(b, message{topic: "T", body: fmt.Sprint(i) + strings.Repeat("b", 200)}.encode()...)
	}
	a := &Append{Bytes: b, Count: 5, Queue: s.Queue("T", 0)}
	s.Append([]*Append{a}, nil)
	require.NoError(t, a.Err)
	require.EqualValues(t, 16384, a.Offset)
	require.EqualValues(t, 1, a.QueueOffset)
	require.EqualValues(t, 6, s.Queue("T", 0).NextOffset())
	waitDispatched(t, s)
	require.Len(t, readQueue(t, s.Queue("T", 0)), 6)
}

func TestFillerFollowsTheFormatAtEveryRest(t *testing.T) {
	record := len(message{topic: "T"}.encode())
	for rest := record; rest < record+20; rest++ {
		s := openTest(t, testOptions(tempDir(t)))
		put(t, s, message{topic: "T", body: strings.Repeat("x", 16384-rest-record)})
		a := put(t, s, message{topic: "T"})
		if rest >= record+8 {
			require.EqualValues(t, 16384-rest, a.Offset)
		} else {
			require.EqualValues(t, 16384, a.Offset)
			sl, err := s.Read(int64(16384-rest), 8)
			require.NoError(t, err)
			require.EqualValues(t, rest, binary.BigEndian.Uint32(sl.Bytes))
			require.EqualValues(t, 0xCBD43194, binary.BigEndian.Uint32(sl.Bytes[4:]))
			sl.Release()
		}
		waitDispatched(t, s)
		closeTest(t, s)
	}
}

func TestBadItemsFailAloneAndTheOthersStayContiguous(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	good := func() *Append { return item(s, message{topic: "T", body: "ok"}) }
	large := item(s, message{topic: "T", body: strings.Repeat("x", 16384)})
	torn := &Append{Bytes: good().Bytes[:50]}
	miscounted := &Append{Bytes: good().Bytes, Count: 2}
	l := []*Append{good(), large, good(), torn, miscounted, good()}
	s.Append(l, nil)
	require.ErrorIs(t, large.Err, ErrTooLarge)
	require.ErrorIs(t, torn.Err, ErrBadBatch)
	require.ErrorIs(t, miscounted.Err, ErrBadBatch)
	require.Equal(t, l[0].End, l[2].Offset)
	require.Equal(t, l[2].End, l[5].Offset)
	require.Equal(t, []int64{0, 1, 2}, []int64{l[0].QueueOffset, l[2].QueueOffset, l[5].QueueOffset})
}

type hookFunc func(a *Append)

func (f hookFunc) Appended(a *Append) { f(a) }

func TestHookRunsInOrderBeforeBytesCanBeRead(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	last := int64(0)
	hook := hookFunc(func(a *Append) {
		require.GreaterOrEqual(t, a.Offset, last)
		last = a.End
		require.LessOrEqual(t, s.End(), a.Offset)
	})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100 {
				l := []*Append{item(s, message{topic: "T", queue: int32(g), body: fmt.Sprint(i)}), item(s, message{topic: "T", queue: int32(g), body: "second"})}
				s.Append(l, hook)
			}
		})
	}
	wg.Wait()
	waitDispatched(t, s)
	for g := range int32(4) {
		require.Len(t, readQueue(t, s.Queue("T", g)), 200)
	}
}

func TestPreparedAndRolledBackRecordsTakeNoNumber(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	put(t, s, message{topic: "T", body: "a"})
	p := put(t, s, message{topic: "T", body: "prepared", sys: codec.SysTransactionPrepared})
	r := put(t, s, message{topic: "T", body: "rolled back", sys: codec.SysTransactionRollback})
	c := put(t, s, message{topic: "T", body: "committed", sys: codec.SysTransactionCommit})
	require.Zero(t, p.QueueOffset+r.QueueOffset)
	require.EqualValues(t, 1, c.QueueOffset)
	waitDispatched(t, s)
	require.EqualValues(t, 2, s.Queue("T", 0).MaxOffset())
}

func TestTagsCodeIsTheTagsHashOrTheDeliveryTime(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	delay := func(level string) string { return string(codec.AppendProperty(nil, "DELAY", level)) }
	cases := []struct {
		m    message
		code func(a *Append) int64
	}{
		{message{topic: "T"}, func(*Append) int64 { return 0 }},
		{message{topic: "T", tag: "TagA"}, func(*Append) int64 { return codec.TagsCode([]byte("TagA")) }},
		{message{topic: scheduleTopic, props: delay("2")}, func(a *Append) int64 { return a.StoreTimestamp + 5000 }},
		{message{topic: scheduleTopic, props: delay("18")}, func(a *Append) int64 { return a.StoreTimestamp + 7200_000 }},
		{message{topic: scheduleTopic, props: delay("99")}, func(a *Append) int64 { return a.StoreTimestamp + 7200_000 }},
		{message{topic: scheduleTopic, tag: "x", props: delay("zero")}, func(a *Append) int64 { return codec.TagsCode([]byte("x")) }},
		{message{topic: "T", tag: "y", props: delay("3")}, func(a *Append) int64 { return codec.TagsCode([]byte("y")) }},
	}
	for i, c := range cases {
		c.m.queue = int32(i)
		a := put(t, s, c.m)
		waitDispatched(t, s)
		var u [1]Unit
		n, err := s.Queue(c.m.topic, c.m.queue).Read(0, u[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, Unit{Offset: a.Offset, Size: int32(len(a.Bytes)), TagsCode: c.code(a)}, u[0], "case %d", i)
	}
}

func TestReopenGoesOnWhereItStopped(t *testing.T) {
	o := testOptions(tempDir(t))
	numbers := make(map[int32]int64)
	for round := range 5 {
		s := openTest(t, o)
		require.True(t, s.Recovery().Clean)
		require.Zero(t, s.Recovery().Records, "a clean stop leaves nothing to read")
		for _, a := range putMany(t, s, "T", 100) {
			require.Equal(t, numbers[a.Queue.ID()], a.QueueOffset, "round %d", round)
			numbers[a.Queue.ID()]++
		}
		end := s.End()
		closeTest(t, s)
		s = openTest(t, o)
		require.Equal(t, end, s.End())
		require.Equal(t, end, s.Dispatched())
		require.Equal(t, end, s.Flushed())
		closeTest(t, s)
	}
}

func TestCleanCloseLeavesNoUnusedSegment(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	put(t, s, message{topic: "T"})
	waitFor(t, "next segment", func() bool {
		_, err := os.Stat(filepath.Join(s.logDir, segmentName(16384)))
		return err == nil
	})
	closeTest(t, s)
	require.Len(t, files(t, o.RootDir, "commitlog"), 1)
}

func TestReadIsClippedToSegmentAndEnd(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	putMany(t, s, "T", 100)
	end := s.End()
	require.Greater(t, end, int64(16384))
	for _, c := range []struct {
		off  int64
		n    int
		want int64
	}{{0, 10, 10}, {16380, 100, 4}, {0, 1 << 20, 16384}, {end - 5, 100, 5}, {end, 10, 0}} {
		sl, err := s.Read(c.off, c.n)
		require.NoError(t, err)
		require.Len(t, sl.Bytes, int(c.want))
		require.Equal(t, len(sl.Bytes), cap(sl.Bytes))
		sl.Release()
	}
	for _, off := range []int64{-1, end + 1, 1 << 40} {
		_, err := s.Read(off, 1)
		require.ErrorIs(t, err, ErrOutOfRange)
	}
	_, err := s.RecordAt(3)
	require.ErrorIs(t, err, ErrNoRecord)
	_, err = s.RecordAt(end)
	require.ErrorIs(t, err, ErrNoRecord)
	require.False(t, s.Cold(0, 100))
	require.NoError(t, s.Populate(0, int(end)))
}

func TestSlicesOutliveTheStore(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	a := put(t, s, message{topic: "T", body: "still here"})
	sl, err := s.RecordAt(a.Offset)
	require.NoError(t, err)
	ref, err := s.Segment(a.Offset)
	require.NoError(t, err)
	require.EqualValues(t, 0, ref.Base())
	require.NotNil(t, ref.File())
	closeTest(t, s)
	require.True(t, bytes.Contains(sl.Bytes, []byte("still here")))
	require.True(t, bytes.Contains(ref.Bytes(), []byte("still here")))
	sl.Release()
	ref.Release()
	require.Panics(t, sl.Release, "released twice")
	_, err = s.Read(0, 1)
	require.ErrorIs(t, err, ErrClosed)
	x := item(s, message{topic: "T"})
	s.Append([]*Append{x}, nil)
	require.ErrorIs(t, x.Err, ErrClosed)
	require.NoError(t, s.Close())
}

func TestOffsetByTimeFindsTheBounds(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	var times []int64
	for range 120 {
		times = append(times, put(t, s, message{topic: "T", body: "x"}).StoreTimestamp)
	}
	waitDispatched(t, s)
	q := s.Queue("T", 0)
	require.Equal(t, times[0], q.EarliestTime())
	for i, ms := range times {
		require.EqualValues(t, i, q.OffsetByTime(ms, false))
		require.EqualValues(t, i, q.OffsetByTime(ms, true))
		require.EqualValues(t, i+1, q.OffsetByTime(ms+1, false))
		require.EqualValues(t, i, q.OffsetByTime(ms+1, true))
	}
	require.EqualValues(t, 0, q.OffsetByTime(0, false))
	require.EqualValues(t, 0, q.OffsetByTime(0, true))
	require.EqualValues(t, 0, s.Queue("none", 0).OffsetByTime(5, false))
	require.EqualValues(t, -1, s.Queue("none", 0).EarliestTime())
}

func TestStoreTimeNeverFalls(t *testing.T) {
	o := testOptions(tempDir(t))
	clock := int64(2_000_000_000_000)
	o.Now = func() int64 { clock -= 1000; return clock }
	s := openTest(t, o)
	a := put(t, s, message{topic: "T"})
	b := put(t, s, message{topic: "T"})
	require.Equal(t, a.StoreTimestamp, b.StoreTimestamp)
	closeTest(t, s)
	s = openTest(t, o)
	require.Equal(t, a.StoreTimestamp, put(t, s, message{topic: "T"}).StoreTimestamp)
}

func TestVisibleLimitHoldsDispatchBack(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	var mu sync.Mutex
	limit := int64(0)
	s.SetVisible(func() int64 { mu.Lock(); defer mu.Unlock(); return limit })
	a := put(t, s, message{topic: "T", body: "first"})
	put(t, s, message{topic: "T", body: "second"})
	q := s.Queue("T", 0)
	mu.Lock()
	limit = a.End
	mu.Unlock()
	s.WakeDispatch()
	waitFor(t, "first message", func() bool { return q.MaxOffset() == 1 })
	require.Equal(t, a.End, s.Dispatched())
	require.EqualValues(t, 2, q.NextOffset())
	s.SetVisible(nil)
	waitDispatched(t, s)
	require.EqualValues(t, 2, q.MaxOffset())
}

func TestDispatchCallsBackPerQueueThenPerRound(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	type call struct {
		topic string
		max   int64
	}
	var mu sync.Mutex
	var calls []call
	rounds := 0
	s.OnDispatched(func(q *Queue, maxOffset, tagsCode int64) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call{q.Topic(), maxOffset})
	})
	s.OnDispatchRound(func() { mu.Lock(); defer mu.Unlock(); rounds++ })
	put(t, s, message{topic: "T"})
	waitFor(t, "callbacks", func() bool { mu.Lock(); defer mu.Unlock(); return rounds > 0 })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []call{{"T", 1}}, calls)
}

func TestFlushToMovesTheWatermarkPastSegments(t *testing.T) {
	o := testOptions(tempDir(t))
	o.FlushInterval = 1 << 40
	s := openTest(t, o)
	var seen []int64
	var mu sync.Mutex
	s.OnFlushed(func(off int64) { mu.Lock(); defer mu.Unlock(); seen = append(seen, off) })
	putMany(t, s, "T", 200)
	end := s.End()
	s.FlushTo(end)
	waitFor(t, "flush", func() bool { return s.Flushed() >= end })
	waitFor(t, "callback", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) > 0 && seen[len(seen)-1] == end })
}

func TestAsyncFlushHappensByItself(t *testing.T) {
	o := testOptions(tempDir(t))
	o.FlushThorough = 1
	s := openTest(t, o)
	a := put(t, s, message{topic: "T"})
	waitFor(t, "flush", func() bool { return s.Flushed() >= a.End })
}

func TestSecondBrokerIsKeptOut(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	_, err := Open(o)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, o.RootDir)
	b, err := os.ReadFile(filepath.Join(o.RootDir, "lock"))
	require.NoError(t, err)
	require.Equal(t, "lock", string(b))
	b, err = os.ReadFile(filepath.Join(o.RootDir, "abort"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(os.Getpid()), string(b))
	closeTest(t, s)
	closeTest(t, openTest(t, o))
}

func TestDeletedTopicStaysDeletedAndItsNameBeginsAnew(t *testing.T) {
	o := testOptions(tempDir(t))
	s := openTest(t, o)
	putMany(t, s, "Gone", 90)
	putMany(t, s, "Kept", 30)
	waitDispatched(t, s)
	old := s.Queue("Gone", 0)
	require.NoError(t, s.DeleteTopic("Gone"))
	require.NoError(t, s.DeleteTopic("Gone"))
	require.True(t, old.Deleted())
	n, err := old.Read(0, make([]Unit, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoDirExists(t, filepath.Join(s.queueDir, "Gone"))
	// The old handle still works for appends.
	a := &Append{Bytes: message{topic: "Gone", body: "new"}.encode(), Queue: old}
	s.Append([]*Append{a}, nil)
	require.NoError(t, a.Err)
	require.Zero(t, a.QueueOffset)
	waitDispatched(t, s)
	for _, dir := range []string{crashCopy(t, s), o.RootDir} {
		if dir == o.RootDir {
			closeTest(t, s)
		}
		s2 := openTest(t, withDir(o, dir))
		require.EqualValues(t, 1, s2.Queue("Gone", 0).MaxOffset())
		require.Zero(t, s2.Queue("Gone", 1).MaxOffset())
		require.EqualValues(t, 10, s2.Queue("Kept", 0).MaxOffset())
		require.Len(t, readQueue(t, s2.Queue("Gone", 0)), 1)
		closeTest(t, s2)
	}
}

func TestTopicsThatAreNoDirectoryNamesGetNoQueue(t *testing.T) {
	for topic, ok := range map[string]bool{"T": true, "%RETRY%g": true, "": false, ".": false, "..": false, "a/b": false, "a\x00": false, strings.Repeat("x", 256): false} {
		require.Equal(t, ok, ValidTopic(topic), "%q", topic)
	}
	s := openTest(t, testOptions(tempDir(t)))
	require.Panics(t, func() { s.Queue("../x", 0) })
	a := &Append{Bytes: message{topic: "../x"}.encode()}
	s.Append([]*Append{a}, nil)
	require.NoError(t, a.Err)
	waitDispatched(t, s)
	require.Empty(t, s.Queues())
}
