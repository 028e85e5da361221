package transfer

import (
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/commitlog"
	"tandem/transfer/rules"
)

// quiet is a master whose frames and calls are all caused by the test.
func quiet() MasterOptions {
	o := masterOptions()
	o.HeartbeatInterval, o.Housekeeping = time.Hour, 3*time.Hour
	return o
}

// turn stores n messages in one append section and lets the master know once.
func turn(t testing.TB, m *Master, n, size int) {
	t.Helper()
	items := make([]*commitlog.Append, n)
	for i := range items {
		items[i] = &commitlog.Append{Bytes: record(make([]byte, size)), Queue: m.store.Queue("T", 1), Count: 1}
	}
	m.store.Append(items, nil)
	for _, item := range items {
		require.NoError(t, item.Err)
	}
	m.NotifyAppended()
}

// onlySession is the session of a master's one slave.
func onlySession(t testing.TB, m *Master) *session {
	t.Helper()
	waitFor(t, "one session", func() bool { return len(*m.sessions.Load()) == 1 })
	return (*m.sessions.Load())[0]
}

// isLevel says that the session's slave was sent all there was, and gets what comes from who appends it.
func (s *session) isLevel() bool {
	return s.level.Load()
}

// levelSlave connects a scripted slave that holds all there is, and waits until appenders send to it themselves.
func levelSlave(t testing.TB, m *Master) (*scripted, *session) {
	t.Helper()
	c := connect(t, m)
	c.report(m.store.End())
	s := onlySession(t, m)
	waitFor(t, "a level slave", s.isLevel)
	return c, s
}

func TestATurnsAppendsLeaveInOneCallAndOneReportEndsThem(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	m := startMaster(t, quiet(), store)
	c, s := levelSlave(t, m)
	for range 5 {
		from, calls, reports := store.End(), s.sends.Load(), s.reports.Load()
		turn(t, m, 10, 100)
		require.EqualValues(t, 1, s.sends.Load()-calls, "system calls of a turn")
		offset, body, err := c.frame()
		require.NoError(t, err)
		require.Equal(t, from, offset)
		require.Len(t, body, int(store.End()-from), "all of the turn in one frame")
		c.report(store.End())
		waitFor(t, "the report", func() bool { return s.acked.Load() == store.End() })
		require.EqualValues(t, 1, s.reports.Load()-reports)
	}
}

func TestASlaveTakesABurstInOneReadAndReportsItInOneWrite(t *testing.T) {
	master, slave := masterStore(t), slaveStore(t)
	put(t, master, 10)
	m := startMaster(t, quiet(), master)
	o := slaveOptions(peerOf(m, "one"))
	o.ReportInterval = time.Hour
	f := startSlave(t, o, slave)
	s := onlySession(t, m)
	waitFor(t, "a level slave", func() bool { return s.isLevel() && s.acked.Load() == master.End() })
	for range 5 {
		reads, reports, calls := f.reads.Load(), f.reports.Load(), s.sends.Load()
		turn(t, m, 10, 100)
		waitFor(t, "the report", func() bool { return s.acked.Load() == master.End() })
		require.EqualValues(t, 1, s.sends.Load()-calls, "calls that send")
		require.EqualValues(t, 1, f.reads.Load()-reads, "calls that read")
		require.EqualValues(t, 1, f.reports.Load()-reports, "calls that report")
	}
	requireSameLog(t, master, slave)
}

func TestNothingWaitsForASlaveThatHasReportedAll(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := quiet()
	o.InFlight = 1
	m := startMaster(t, o, store)
	c, s := levelSlave(t, m)
	for range 3 {
		calls := s.sends.Load()
		turn(t, m, 1, 100)
		require.EqualValues(t, 1, s.sends.Load()-calls, "it leaves before the appender goes on")
		c.report(store.End())
		waitFor(t, "the report", func() bool { return s.acked.Load() == store.End() })
	}
}

func TestAppendsGatherWhileAllFramesAllowedAreOnTheirWay(t *testing.T) {
	for _, allowed := range []int{1, 2, 5} {
		store := masterStore(t)
		put(t, store, 10)
		o := quiet()
		o.InFlight = allowed
		m := startMaster(t, o, store)
		c, s := levelSlave(t, m)
		var first int64 // end of the oldest frame on its way
		for i := range allowed {
			turn(t, m, 1, 100)
			if i == 0 {
				first = store.End()
			}
		}
		calls, sent := s.sends.Load(), store.End()
		turn(t, m, 1, 100)
		turn(t, m, 2, 100)
		require.Equal(t, calls, s.sends.Load(), "they wait for a report")
		require.Equal(t, sent, s.promised.Load())

		c.report(first - 1)
		waitFor(t, "a report of a part", func() bool { return s.acked.Load() == first-1 })
		require.Equal(t, calls, s.sends.Load(), "the oldest frame is not acknowledged yet")
		c.report(first)
		waitFor(t, "what gathered", func() bool { return s.promised.Load() == store.End() })
		for range allowed {
			_, _, err := c.frame()
			require.NoError(t, err)
		}
		offset, body, err := c.frame()
		require.NoError(t, err)
		require.Equal(t, sent, offset)
		require.Len(t, body, int(store.End()-sent), "all that gathered in one frame")
	}
}

func TestOnlyAFewBatchesGather(t *testing.T) {
	o := storeOptions(t.TempDir(), false)
	o.SegmentSize = 1 << 20
	store := openStore(t, o)
	put(t, store, 10)
	mo := quiet()
	mo.InFlight, mo.BatchSize = 1, 1024
	m := startMaster(t, mo, store)
	c, _ := levelSlave(t, m)
	start := store.End()
	turn(t, m, 1, 100)
	for store.End()-start < 64<<10 {
		turn(t, m, 1, 100)
	}
	// The slave never reports, and gets all but what may gather.
	for next := start; store.End()-next >= m.gather; {
		offset, body, err := c.frame()
		require.NoError(t, err)
		require.Equal(t, next, offset)
		next += int64(len(body))
	}
}

func TestWhatGatheredLeavesWithTheHeartbeatAtTheLatest(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := quiet()
	o.HeartbeatInterval, o.InFlight = 50*time.Millisecond, 1
	m := startMaster(t, o, store)
	c, _ := levelSlave(t, m)
	start := store.End()
	for range 3 {
		turn(t, m, 1, 100)
	}
	c.until(start, store.End()) // without a report
}

func TestASlaveThatJoinsAtAnEmptyLogsEndGetsTheFirstMessageAtOnce(t *testing.T) {
	store := masterStore(t)
	o := quiet()
	o.HeartbeatInterval, o.InFlight = 5*time.Millisecond, 1
	m := startMaster(t, o, store)
	c := connect(t, m)
	c.report(0)
	s := onlySession(t, m)
	waitFor(t, "a level slave", s.isLevel)
	for range 2 { // heartbeats are not acknowledged
		_, body, err := c.frame()
		require.NoError(t, err)
		require.Empty(t, body)
	}
	require.False(t, s.gathers())
	turn(t, m, 1, 100)
	require.Len(t, c.until(0, store.End()), int(store.End()))
}

func TestConsumeQueuesAreBuiltWhenTheMasterFallsSilent(t *testing.T) {
	master := masterStore(t)
	o := storeOptions(t.TempDir(), true)
	o.LazyDispatch = true
	slave := openStore(t, o)
	m := startMaster(t, quiet(), master)
	so := slaveOptions(peerOf(m, "one"))
	so.ReportInterval = time.Hour
	startSlave(t, so, slave)
	s := onlySession(t, m)
	for range 3 {
		turn(t, m, 3, 100)
		waitFor(t, "the report", func() bool { return s.acked.Load() == master.End() })
		waitFor(t, "consume queues", func() bool { return slave.Dispatched() == master.End() })
	}
}

func TestEveryModeSendsTheSameBytes(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 6*segmentSize)
	for _, name := range []string{"auto", "sendfile", "mmap", "copy"} {
		mode, err := ParseMode(name)
		require.NoError(t, err)
		o := masterOptions()
		o.Mode = mode
		m := startMaster(t, o, store)
		c := connect(t, m)
		c.report(1)
		require.Equal(t, logBytes(t, store, 1), c.until(1, store.End()), name)
		from := store.End()
		c.report(from)
		turn(t, m, 5, 1000)
		require.Equal(t, logBytes(t, store, from), c.until(from, store.End()), name)
	}
	_, err := ParseMode("paper")
	require.ErrorIs(t, err, ErrOptions)
}

// resident counts the pages of the log's first n bytes, all in one segment, that are in memory.
func resident(t testing.TB, store *commitlog.Store, n int) (count int) {
	t.Helper()
	segment, err := store.Segment(0)
	require.NoError(t, err)
	defer segment.Release()
	pages := make([]byte, n/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&segment.Bytes()[0])), uintptr(n), uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	for _, p := range pages {
		count += int(p & 1)
	}
	return count
}

func TestWhatIsFetchedIsInMemoryBeforeItIsSent(t *testing.T) {
	store := bigStore(t)
	store.FlushTo(store.End())
	m := startMaster(t, quiet(), store)
	forget(t, store)
	const n = 1 << 20
	m.fetch(0, n)
	waitFor(t, "pages in memory", func() bool { return resident(t, store, n) == n/os.Getpagesize() })
	m.fetch(store.End()-10, 1<<20) // what is not there yet is no harm
}

// TestAReadThatWasFilledExactlyIsReportedWhenNothingFollows: nobody can tell from such a read alone whether it took all there was, and a
// report that is kept back keeps the master from sending more.
func TestAReadThatWasFilledExactlyIsReportedWhenNothingFollows(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	master := fds[1]
	f := NewSlave(SlaveOptions{}, slaveStore(t))
	s := newStream(t.Context(), f, &socket{fd: fds[0]}, 0, rules.Position{Next: 500})
	defer s.socket.close()
	s.heardAt, s.reportedAt = time.Now(), time.Now()
	s.drained = false

	_, err = unix.Write(master, []byte("more"))
	require.NoError(t, err)
	require.NoError(t, s.acknowledge())
	require.Zero(t, f.reports.Load(), "what follows is reported with it")

	_, err = unix.Read(fds[0], make([]byte, 16))
	require.NoError(t, err)
	require.NoError(t, s.acknowledge())
	require.EqualValues(t, 1, f.reports.Load())

	s.at.Next, s.bodyLeft = 600, 100
	require.NoError(t, s.acknowledge())
	require.EqualValues(t, 1, f.reports.Load(), "the rest of a frame is on its way")
	require.NoError(t, s.quiet(time.Now()))
	require.EqualValues(t, 2, f.reports.Load(), "or is late")
	require.EqualValues(t, 600, s.reported)
}
