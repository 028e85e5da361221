package transfer

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/commitlog"
)

const farSegment = 4 << 20

func farOptions(t testing.TB, slave bool) commitlog.Options {
	o := storeOptions(t.TempDir(), slave)
	o.SegmentSize = farSegment
	return o
}

// farStore holds so much that an empty slave is far behind.
func farStore(t testing.TB) *commitlog.Store {
	s := openStore(t, farOptions(t, false))
	for s.End() < farBehind+farSegment {
		put(t, s, 60000)
	}
	return s
}

// threadsApart counts this process's threads of the lowest priority.
func threadsApart(t testing.TB) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		attr, err := unix.SchedGetAttr(tid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue // it has just ended
		}
		require.NoError(t, err)
		if attr.Policy == unix.SCHED_IDLE || attr.Nice == leastNice {
			n++
		}
	}
	return n
}

func waitApart(t testing.TB, n int) {
	t.Helper()
	waitFor(t, strconv.Itoa(n)+" threads apart", func() bool { return threadsApart(t) == n })
}

// followTo reads whole frames up to an offset, and nothing beyond.
func (c *scripted) followTo(from, end int64) {
	c.t.Helper()
	for next := from; next < end; {
		offset, body, err := c.frame()
		require.NoError(c.t, err)
		require.Equal(c.t, next, offset)
		next += int64(len(body))
	}
}

func TestApartGivesTheResultAndItsThreadEnds(t *testing.T) {
	for range 100 { // one of them comes to the process's first thread
		lowest := 0
		err := apart(func() error {
			attr, err := unix.SchedGetAttr(0, 0)
			if err == nil && (attr.Policy == unix.SCHED_IDLE || attr.Nice == leastNice) {
				lowest++
			}
			return io.ErrUnexpectedEOF
		})
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.Equal(t, 1, lowest)
	}
	waitApart(t, 0)
}

func TestThreadsThatAreMadeApartAreOrdinaryOnes(t *testing.T) {
	apartNow := 0
	require.NoError(t, apart(func() error {
		done := make(chan int, 64)
		block := make(chan struct{})
		for range cap(done) {
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				done <- unix.Gettid()
				<-block
			}()
		}
		for range cap(done) {
			<-done
		}
		apartNow = threadsApart(t)
		close(block)
		return nil
	}))
	require.Equal(t, 1, apartNow)
}

func TestASlaveFarBehindIsServedApartAndThenAsUsual(t *testing.T) {
	store := farStore(t)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	c.report(1)
	waitApart(t, 1) // its socket is full
	put(t, store, 100)
	m.NotifyAppended() // does not wait for it
	end := store.End()
	c.followTo(1, end)
	waitApart(t, 0)

	put(t, store, 100)
	m.NotifyAppended()
	c.followTo(end, store.End())
	require.Zero(t, threadsApart(t))
}

func TestASlaveThatIsNotFarBehindIsNotServedApart(t *testing.T) {
	store := bigStore(t)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	require.NoError(t, c.conn.SetReadBuffer(4096))
	c.report(1)
	waitFor(t, "full socket", func() bool { return parkedSessions(m) == 1 })
	require.Zero(t, threadsApart(t))
}

func parkedSessions(m *Master) (n int) {
	for _, s := range *m.sessions.Load() {
		if s.parked.Load() {
			n++
		}
	}
	return n
}

func TestASlaveThatFallsFarBehindIsServedApart(t *testing.T) {
	store := openStore(t, farOptions(t, false))
	put(t, store, 100)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	c.report(1)
	c.followTo(1, store.End())
	from := store.End()
	for parkedSessions(m) == 0 {
		put(t, store, 60000)
		m.NotifyAppended()
	}
	for store.End() < from+2*farBehind {
		put(t, store, 60000)
		m.NotifyAppended()
	}
	most := 0
	for next := from; next < store.End(); {
		offset, body, err := c.frame()
		require.NoError(t, err)
		require.Equal(t, next, offset)
		next += int64(len(body))
		most = max(most, threadsApart(t))
	}
	require.Equal(t, 1, most)
	waitApart(t, 0)
}

func TestSlavesThatDieFarBehindLeaveNothing(t *testing.T) {
	store := farStore(t)
	m := startMaster(t, masterOptions(), store)
	for range 3 {
		a, b := connect(t, m), connect(t, m)
		a.report(1)
		b.report(1)
		waitApart(t, 2)
		require.NoError(t, a.conn.SetLinger(0)) // one way and the other
		require.NoError(t, a.conn.Close())
		require.NoError(t, b.conn.Close())
		waitApart(t, 0)
		waitFor(t, "the sessions' end", func() bool { return len(m.Status().Slaves) == 0 })
	}
}

func TestCloseEndsASessionThatIsServedApart(t *testing.T) {
	m := startMaster(t, masterOptions(), farStore(t))
	c := connect(t, m)
	c.report(1)
	waitApart(t, 1)
	require.NoError(t, m.Close())
	waitApart(t, 0)
}

func TestTheLastBytesAreNoWorkForTheThreadApart(t *testing.T) {
	s := &session{m: startMaster(t, masterOptions(), masterStore(t)), next: 1}
	s.follows.Store(true)
	require.True(t, s.goesOnFar(s.m.whole+1))
	require.False(t, s.goesOnFar(s.m.whole))
}

// farSession has lagged, without a byte sent, for a minute, in which its thread waited so long for a processor.
func farSession(t testing.TB, waited time.Duration) *session {
	s := &session{m: startMaster(t, masterOptions(), farStore(t)), next: 1}
	s.follows.Store(true)
	require.False(t, s.isNear(s.m.store.End()-s.next))
	delay, _ := delayed()
	s.far = far{since: time.Now().Add(-time.Minute), next: s.next, end: s.m.store.End(), delayed: delay - waited}
	return s
}

func TestAStarvedSessionIsServedAsOrdinaryWork(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := farSession(t, time.Minute)
	lag := s.m.store.End() - s.next
	require.False(t, s.goesOnFar(lag))
	require.True(t, s.isNear(lag))
}

func TestASlaveThatDoesNotReadIsNoReasonToServeItAsOrdinaryWork(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := farSession(t, 0)
	lag := s.m.store.End() - s.next
	_, known := delayed()
	require.Equal(t, known, s.goesOnFar(lag))
	require.Equal(t, !known, s.isNear(lag))
}

func TestWhatTheKernelTellsOfDelaysIsRead(t *testing.T) {
	d, ok := parseSchedstat([]byte("1086992310 130191607 743\n"))
	require.True(t, ok)
	require.EqualValues(t, 130191607, d)
	for _, bad := range []string{"", "0 0 0\n", "1 2\n", "1 x 3\n", "1 2 3 4\n"} {
		_, ok := parseSchedstat([]byte(bad))
		require.False(t, ok, bad)
	}
}
