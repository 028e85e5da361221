package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func faultOptions(t testing.TB) (Options, *faultFS) {
	o := testOptions(tempDir(t))
	f := newFaultFS()
	o.FS = f
	return o, f
}

func TestFullDiskIsNamedAndHealsByItself(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, o)
	put(t, s, message{topic: "T"})
	var full atomic.Bool
	full.Store(true)
	f.setFail(func(op, name string) error {
		if op == "allocate" && full.Load() {
			return &os.PathError{Op: "fallocate", Path: name, Err: unix.ENOSPC}
		}
		return nil
	})
	big := message{topic: "T", body: strings.Repeat("x", 5000)}
	var err error
	stored := 1
	for range 20 {
		a := item(s, big)
		s.Append([]*Append{a}, nil)
		if err = a.Err; err != nil {
			break
		}
		stored++
	}
	require.ErrorIs(t, err, ErrDiskFull)
	require.ErrorIs(t, err, unix.ENOSPC)
	end := s.End()
	// What still fits is stored; numbers go on without a hole.
	small := put(t, s, message{topic: "T", body: "small"})
	require.Equal(t, end, small.Offset)
	require.EqualValues(t, stored, small.QueueOffset)
	names := files(t, o.RootDir, "commitlog")
	full.Store(false)
	var a *Append
	waitFor(t, "space to be noticed", func() bool {
		a = item(s, big)
		s.Append([]*Append{a}, nil)
		return a.Err == nil
	})
	require.EqualValues(t, stored+1, a.QueueOffset)
	waitDispatched(t, s)
	require.Len(t, readQueue(t, s.Queue("T", 0)), stored+2)
	for name, b := range names {
		require.Len(t, b, 16384, "%s: nothing half-made is left", name)
	}
}

func TestFailingFlushIsReportedAndHealsByItself(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, o)
	var broken atomic.Bool
	broken.Store(true)
	f.setFail(func(op, name string) error {
		if op == "datasync" && strings.Contains(name, "commitlog") && broken.Load() {
			return unix.EIO
		}
		return nil
	})
	a := put(t, s, message{topic: "T"})
	s.FlushTo(a.End)
	waitFor(t, "error", func() bool { return s.Err() != nil })
	require.ErrorIs(t, s.Err(), ErrFlushFailed)
	require.ErrorIs(t, s.Err(), unix.EIO)
	require.Less(t, s.Flushed(), a.End)
	broken.Store(false)
	waitFor(t, "flush", func() bool { return s.Flushed() >= a.End })
	waitFor(t, "no error", func() bool { return s.Err() == nil })
}

func TestFailingQueueWriteHoldsDispatchAndHealsByItself(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, o)
	putMany(t, s, "T", 20)
	waitDispatched(t, s)
	var broken atomic.Bool
	broken.Store(true)
	f.setFail(func(op, name string) error {
		if op == "write" && strings.Contains(name, "consumequeue") && broken.Load() {
			return unix.ENOSPC
		}
		return nil
	})
	putMany(t, s, "T", 100)
	waitFor(t, "error", func() bool { return s.Err() != nil })
	require.ErrorIs(t, s.Err(), unix.ENOSPC)
	require.ErrorIs(t, s.keep.save(), errUnitsPending)
	broken.Store(false)
	waitDispatched(t, s)
	require.NoError(t, s.Err())
	require.Equal(t, 120, readAllQueues(t, s))
}

func TestUnsavedStopKeepsTheMark(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, o)
	putMany(t, s, "T", 20)
	f.setFail(func(op, name string) error {
		if op == "write" && strings.HasSuffix(name, "checkpoint") {
			return unix.EIO
		}
		return nil
	})
	require.ErrorIs(t, s.Close(), unix.EIO)
	require.FileExists(t, filepath.Join(o.RootDir, "abort"))
	f.setFail(nil)
	s = openTest(t, o)
	require.False(t, s.Recovery().Clean)
	require.Equal(t, 20, readAllQueues(t, s))
}

// Every single I/O call of a life (open, append, roll, save, close) is failed in turn: nothing panics, nothing hangs, and the store
// opens again with every message that was stored.
func TestAnyFailingCallLosesNothing(t *testing.T) {
	for n := 1; ; n++ {
		o, f := faultOptions(t)
		o = quiet(o)
		var calls atomic.Int64
		var hit atomic.Value
		f.setFail(func(op, name string) error {
			if calls.Add(1) == int64(n) {
				hit.Store(op + " " + name)
				return unix.EIO
			}
			return nil
		})
		stored := 0
		s, err := Open(o)
		if err == nil {
			for range 60 {
				a := item(s, message{topic: "T", body: strings.Repeat("x", 500)})
				s.Append([]*Append{a}, nil)
				if a.Err == nil {
					stored++
				}
			}
			_ = s.keep.save()
			err = s.Close()
		}
		f.setFail(nil)
		what := fmt.Sprintf("call %d: %v, error %v", n, hit.Load(), err)
		s, err = Open(o)
		require.NoError(t, err, what)
		require.Equal(t, stored, readAllQueues(t, s), what)
		closeTest(t, s)
		if hit.Load() == nil {
			require.Greater(t, n, 30)
			return
		}
	}
}

// Power fails at any moment: what was reported as flushed is there, queues and log agree.
func TestPowerFailureKeepsWhatWasFlushed(t *testing.T) {
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o, f := faultOptions(t)
		s := openTest(t, quiet(o))
		var l []*Append
		for range 30 + rnd.IntN(60) {
			switch rnd.IntN(12) {
			case 0:
				s.FlushTo(s.End())
			case 1:
				_ = s.keep.save()
			case 2:
				_ = s.keep.syncQueues(1)
			case 3:
				_ = s.flush.flush()
			default:
				for range 1 + rnd.IntN(8) {
					l = append(l, put(t, s, message{topic: fmt.Sprint("T", rnd.IntN(3)), queue: int32(rnd.IntN(2)), body: strings.Repeat("y", rnd.IntN(900))}))
				}
			}
		}
		flushed := s.Flushed()
		dir := f.powerFailure(t, s.root)
		s2, err := Open(withDir(o, dir))
		require.NoError(t, err, "seed %d", seed)
		require.GreaterOrEqual(t, s2.End(), flushed, "seed %d", seed)
		survivors := 0
		for _, a := range l {
			if a.End <= flushed {
				sl, err := s2.RecordAt(a.Offset)
				require.NoError(t, err)
				sl.Release()
			}
			if a.End <= s2.End() {
				survivors++
			}
		}
		require.Equal(t, survivors, readAllQueues(t, s2), "seed %d", seed)
		closeTest(t, s2)
	}
}

func TestWhatWasSavedNeedsNoRebuildAfterPowerFailure(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, quiet(o))
	putMany(t, s, "T", 390)
	waitDispatched(t, s)
	require.NoError(t, s.keep.save())
	s2 := openTest(t, withDir(o, f.powerFailure(t, s.root)))
	require.Equal(t, s.End(), s2.End())
	require.Zero(t, s2.Recovery().Records)
	require.Empty(t, s2.Recovery().Reason)
	require.Equal(t, 390, readAllQueues(t, s2))
}

func TestCutSurvivesPowerFailureAtEachStep(t *testing.T) {
	for n := 1; ; n++ {
		o, f := faultOptions(t)
		s := openTest(t, quiet(o))
		l := putMany(t, s, "T", 150)
		waitDispatched(t, s)
		require.NoError(t, s.keep.save())
		var calls atomic.Int64
		stop := errors.New("power failure")
		f.setFail(func(op, name string) error {
			if calls.Add(1) >= int64(n) {
				return stop
			}
			return nil
		})
		err := s.TruncateTo(l[40].Offset)
		f.setFail(nil)
		for _, dir := range []string{f.powerFailure(t, s.root), crashCopy(t, s)} {
			plain := withDir(o, dir)
			plain.FS = nil
			s2 := openTest(t, plain)
			require.GreaterOrEqual(t, s2.End(), l[40].Offset)
			if err == nil {
				require.Equal(t, l[40].Offset, s2.End(), "the cut is durable")
			}
			want := 0
			for _, a := range l {
				if a.End <= s2.End() {
					want++
				}
			}
			require.Equal(t, want, readAllQueues(t, s2))
			closeTest(t, s2)
		}
		s.Close()
		if err == nil {
			return
		}
	}
}

func TestCloseDoesNotHangOnAFailingDisk(t *testing.T) {
	o, f := faultOptions(t)
	s := openTest(t, o)
	putMany(t, s, "T", 10)
	s.FlushTo(s.End())
	f.setFail(func(op, _ string) error {
		if op == "datasync" || op == "write" {
			return unix.EIO
		}
		return nil
	})
	a := put(t, s, message{topic: "T"})
	s.FlushTo(a.End)
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("close hangs")
	}
}
