package transfer

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/commitlog"
)

func TestSlaveGetsTheWholeLogAndAcknowledgesIt(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 5*segmentSize/2)
	m := startMaster(t, masterOptions(), store)
	replica := slaveStore(t)
	slave := startSlave(t, slaveOptions(peerOf(m, "b")), replica)

	waitFor(t, "catching up", func() bool { return replica.End() == store.End() })
	waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })
	for i := range 200 {
		a := send(t, m, i*61%8000)
		waitFor(t, "answer", a.done)
		require.EqualValues(t, codec.Success, a.code.Load())
	}
	require.Equal(t, Transfer, slave.Status().State)
	requireSameLog(t, store, replica)
	require.EqualValues(t, 0, replica.MinOffset())
	require.Contains(t, slave.Status().HistoryCheck, "empty")

	status := m.Status()
	require.Len(t, status.Slaves, 1)
	require.Equal(t, "b", status.Slaves[0].ID)
	require.Equal(t, "InSync", status.Slaves[0].State)
	require.EqualValues(t, 200, status.SyncWait.Count)
	require.EqualValues(t, 1, status.Usable)
	require.Zero(t, status.Waiting)
}

func TestSlaveJoinsAtTheNewestSegment(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 5*segmentSize/2)
	m := startMaster(t, masterOptions(), store)
	replica := slaveStore(t)
	o := slaveOptions(peerOf(m, "b"))
	o.JoinFrom = JoinLast
	startSlave(t, o, replica)
	waitFor(t, "catching up", func() bool { return replica.End() == store.End() })
	require.EqualValues(t, 2*segmentSize, replica.MinOffset())
	requireSameLog(t, store, replica)
}

func TestSlaveMayJoinBeforeTheFirstMessage(t *testing.T) {
	for _, join := range []JoinFrom{JoinLast, JoinOldest} {
		store := masterStore(t)
		m := startMaster(t, masterOptions(), store)
		replica := slaveStore(t)
		o := slaveOptions(peerOf(m, "b"))
		o.JoinFrom = join
		startSlave(t, o, replica)
		waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })
		for range 3 {
			a := send(t, m, 7000)
			waitFor(t, "answer", a.done)
			require.EqualValues(t, codec.Success, a.code.Load())
		}
		requireSameLog(t, store, replica)
		require.Zero(t, m.Status().Refused)
	}
}

func TestBothSidesRestartAnywhere(t *testing.T) {
	masterDir, slaveDir := t.TempDir(), t.TempDir()
	peer := &storePeer{id: "b"}
	for round := range 6 {
		store, err := commitlog.Open(storeOptions(masterDir, false))
		require.NoError(t, err)
		replica, err := commitlog.Open(storeOptions(slaveDir, true))
		require.NoError(t, err)
		m, err := servingMaster(masterOptions(), store)
		require.NoError(t, err)
		peer.set(func() { peer.master, peer.store = m, store })
		slave := NewSlave(slaveOptions(peer), replica)
		slave.Start()
		fill(t, store, store.End()+int64(round+1)*segmentSize*2/3)
		m.NotifyAppended()
		if round%2 == 0 || round == 5 {
			waitFor(t, "catching up", func() bool { return replica.End() == store.End() })
			require.Equal(t, logBytes(t, store, 0), logBytes(t, replica, 0))
		}
		if round%3 == 0 {
			require.NoError(t, m.Close())
			require.NoError(t, slave.Close())
		} else {
			require.NoError(t, slave.Close())
			require.NoError(t, m.Close())
		}
		closeStore(t, store, masterDir)
		require.NoError(t, replica.Close())
	}
	report, err := commitlog.Diff(masterDir, slaveDir)
	require.NoError(t, err)
	require.True(t, report.Same())
	require.Equal(t, report.A.End, report.B.End)
}

// cuttingProxy forwards connections and breaks each after a random number of bytes.
type cuttingProxy struct {
	listener net.Listener
	to       string
	most     int
	wg       sync.WaitGroup
	mu       sync.Mutex
	cuts     int
	whole    bool // no more cuts
}

func newCuttingProxy(t testing.TB, to string, most int) *cuttingProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &cuttingProxy{listener: listener, to: to, most: most}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.wg.Wait()
	})
	return p
}

func (p *cuttingProxy) accept() {
	for {
		slave, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.forward(slave.(*net.TCPConn)) })
	}
}

func (p *cuttingProxy) forward(slave *net.TCPConn) {
	conn, err := net.Dial("tcp", p.to)
	if err != nil {
		_ = slave.Close()
		return
	}
	master := conn.(*net.TCPConn)
	p.mu.Lock()
	limit := int64(1 + rand.IntN(p.most))
	if p.whole {
		limit = 1 << 60
	}
	p.cuts++
	p.mu.Unlock()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(master, slave)
		_ = master.Close()
	})
	_, _ = io.CopyN(slave, master, limit)
	if rand.IntN(2) == 0 {
		_ = slave.SetLinger(0) // a reset
		_ = master.SetLinger(0)
	}
	_ = slave.Close()
	_ = master.Close()
	up.Wait()
}

func TestALinkThatBreaksAtAnyByteLosesNothing(t *testing.T) {
	store := masterStore(t)
	o := masterOptions()
	o.BatchSize, o.MaxBatch, o.HeartbeatInterval = 900, 3000, 5*time.Millisecond
	m := startMaster(t, o, store)
	proxy := newCuttingProxy(t, m.Addr().String(), 2000)
	peer := peerOf(m, "b")
	peer.addr = proxy.listener.Addr().String()
	replica := slaveStore(t)
	so := slaveOptions(peer)
	so.ReconnectMin, so.ReconnectMax = time.Millisecond, 2*time.Millisecond
	startSlave(t, so, replica)
	for range 40 {
		fill(t, store, store.End()+segmentSize/3)
		m.NotifyAppended()
		waitFor(t, "catching up", func() bool { return replica.End() == store.End() })
	}
	requireSameLog(t, store, replica)
	proxy.mu.Lock()
	require.Greater(t, proxy.cuts, 40)
	proxy.mu.Unlock()
	require.Zero(t, m.Status().Refused, m.Status().Refusals)
}

func TestAllThatWaitEndByTheirOwnClockWhenTheSlaveHangs(t *testing.T) {
	store := masterStore(t)
	o := masterOptions()
	o.SlaveTimeout = 500 * time.Millisecond
	m := startMaster(t, o, store)
	c := connect(t, m)
	c.report(0)
	waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })

	var begun [200]time.Time
	var answers [200]*answer
	for i := range answers {
		begun[i] = time.Now()
		answers[i] = send(t, m, 100)
	}
	require.Equal(t, 200, m.Status().Waiting)
	for i, a := range answers {
		waitFor(t, "answer", a.done)
		require.EqualValues(t, codec.FlushSlaveTimeout, a.code.Load())
		require.EqualValues(t, 1, a.count.Load())
		waited := time.Duration(a.at.Load() - begun[i].UnixNano())
		require.GreaterOrEqual(t, waited, o.SlaveTimeout-2*time.Millisecond)
	}
	require.EqualValues(t, 200, m.Status().SyncWait.Failed)

	// The slave goes on, and sends succeed again without a restart of anything.
	c.until(0, store.End())
	c.report(store.End())
	waitFor(t, "report", func() bool { return m.Status().Slaves[0].Acked == store.End() })
	last := send(t, m, 100)
	c.until(store.End()-int64(len(record(make([]byte, 100)))), store.End())
	c.report(store.End())
	waitFor(t, "answer", last.done)
	require.EqualValues(t, codec.Success, last.code.Load())
}

func TestAClosedMasterLeavesNobodyWaiting(t *testing.T) {
	store := masterStore(t)
	m, err := servingMaster(masterOptions(), store)
	require.NoError(t, err)
	c := connect(t, m)
	c.report(0)
	waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })
	a := send(t, m, 10)
	require.NoError(t, m.Close())
	require.EqualValues(t, codec.FlushSlaveTimeout, a.code.Load())
}

func TestWithoutASlaveTheAnswerComesAtOnceAndTheMessageIsStored(t *testing.T) {
	store := masterStore(t)
	m := startMaster(t, masterOptions(), store)
	a := send(t, m, 10)
	require.EqualValues(t, codec.SlaveNotAvailable, a.code.Load())
	waitFor(t, "dispatch", func() bool { return store.Queue("T", 1).MaxOffset() == 1 })
	c := connect(t, m)
	waitFor(t, "connection", func() bool { return len(m.Status().Slaves) == 1 })
	require.EqualValues(t, codec.SlaveNotAvailable, send(t, m, 10).code.Load(), "one that has not reported does not count")
	require.NoError(t, c.conn.Close())
}

func TestEachSlaveCountsOnce(t *testing.T) {
	store := masterStore(t)
	o := masterOptions()
	o.InSyncReplicas = 3
	m := startMaster(t, o, store)
	a, again, b := connectAs(t, m, "a"), connectAs(t, m, "a"), connectAs(t, m, "b")
	for _, c := range []*scripted{a, again} {
		c.report(0)
	}
	waitFor(t, "reports", func() bool { return m.Status().Usable == 1 })
	require.Equal(t, codec.SlaveNotAvailable, m.Admit())
	b.report(0)
	waitFor(t, "second slave", func() bool { return m.Admit() == codec.Success })

	waiting := send(t, m, 100)
	for _, c := range []*scripted{a, again, b} {
		c.until(0, store.End())
	}
	a.report(store.End())
	again.report(store.End())
	waitFor(t, "both reports", func() bool {
		acked := 0
		for _, s := range m.Status().Slaves {
			if s.Acked == store.End() {
				acked++
			}
		}
		return acked == 2
	})
	require.False(t, waiting.done(), "two sessions of one slave are one copy")
	b.report(store.End())
	waitFor(t, "answer", waiting.done)
	require.EqualValues(t, codec.Success, waiting.code.Load())
}

func TestGarbageOnThePortNeverMakesASendSucceed(t *testing.T) {
	store := masterStore(t)
	o := masterOptions()
	o.SlaveTimeout = 300 * time.Millisecond
	m := startMaster(t, o, store)
	hung := connect(t, m)
	hung.report(0)
	waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })
	a := send(t, m, 100)
	for range 20 {
		c := connect(t, m)
		_, err := c.conn.Write([]byte{0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
		require.NoError(t, err)
		c.requireClosed()
	}
	waitFor(t, "answer", a.done)
	require.EqualValues(t, codec.FlushSlaveTimeout, a.code.Load())
	require.Len(t, m.Status().Refusals, keptRefusals)
	require.EqualValues(t, 20, m.Status().Refused)
}

func TestConsumersSeeAMessageWhenItsSendWasAnswered(t *testing.T) {
	store := masterStore(t)
	o := masterOptions()
	o.SlaveTimeout = 300 * time.Millisecond
	m := startMaster(t, o, store)
	store.SetVisible(func() int64 { return m.Ring().Visible(store.End()) })
	m.Ring().OnDrained(store.WakeDispatch)
	c := connect(t, m)
	c.report(0)
	waitFor(t, "usable", func() bool { return m.Admit() == codec.Success })
	queue := store.Queue("T", 1)

	first := send(t, m, 100)
	for !first.done() {
		visible := queue.MaxOffset()
		require.True(t, visible == 0 || first.done())
		time.Sleep(time.Millisecond)
	}
	waitFor(t, "visible after the time-out", func() bool { return queue.MaxOffset() == 1 })

	second := send(t, m, 100)
	c.until(0, store.End())
	require.EqualValues(t, 1, queue.MaxOffset())
	c.report(store.End())
	waitFor(t, "answer", second.done)
	waitFor(t, "visible after the acknowledgement", func() bool { return queue.MaxOffset() == 2 })
}

func TestAMasterThatLostItsStoreHarmsNoSlave(t *testing.T) {
	peer := &storePeer{id: "b"}
	store := masterStore(t)
	fill(t, store, 2*segmentSize)
	m, err := servingMaster(masterOptions(), store)
	require.NoError(t, err)
	peer.set(func() { peer.master, peer.store = m, store })
	replica := slaveStore(t)
	slave := startSlave(t, slaveOptions(peer), replica)
	waitFor(t, "catching up", func() bool { return replica.End() == store.End() })
	before := logBytes(t, replica, 0)
	require.NoError(t, m.Close())

	for _, end := range []int64{0, segmentSize, 4 * segmentSize} { // new and shorter, new and longer
		fresh := masterStore(t)
		for i := 0; fresh.End() < end; i++ {
			put(t, fresh, 777)
		}
		m, err := servingMaster(masterOptions(), fresh)
		require.NoError(t, err)
		slave.update(func(s *SlaveStatus) { s.State, s.LastError = Connecting, "" })
		peer.set(func() { peer.master, peer.store = m, fresh })
		slave.MasterChanged()
		waitFor(t, "refusal", func() bool { return slave.Status().State == Refused })
		require.NotEmpty(t, slave.Status().LastError)
		require.NoError(t, m.Close())
	}
	require.True(t, bytes.Equal(before, logBytes(t, replica, 0)))
}

func TestRolesChangeWithoutARestart(t *testing.T) {
	a, b := masterStore(t), slaveStore(t)
	fill(t, a, segmentSize)
	m, err := servingMaster(masterOptions(), a)
	require.NoError(t, err)
	slave := NewSlave(slaveOptions(peerOf(m, "b")), b)
	slave.Start()
	waitFor(t, "catching up", func() bool { return b.End() == a.End() })
	require.NoError(t, slave.Close())
	require.NoError(t, m.Close())

	require.NoError(t, a.SetSlave(true))
	require.NoError(t, b.SetSlave(false))
	m2 := startMaster(t, masterOptions(), b)
	startSlave(t, slaveOptions(peerOf(m2, "a")), a)
	waitFor(t, "usable", func() bool { return m2.Admit() == codec.Success })
	w := send(t, m2, 5000)
	waitFor(t, "answer", w.done)
	require.EqualValues(t, codec.Success, w.code.Load())
	requireSameLog(t, b, a)
}

// BenchmarkTransfer lets a slave that only reads catch up.
func BenchmarkTransfer(b *testing.B) {
	o := storeOptions(b.TempDir(), false)
	o.SegmentSize = 16 << 20
	store, err := commitlog.Open(o)
	require.NoError(b, err)
	defer store.Close()
	for store.End() < 64<<20 {
		put(b, store, 60000)
	}
	for name, mode := range map[string]Mode{"sendfile": Sendfile, "mapped": Mapped, "copied": Copied} {
		b.Run(name, func(b *testing.B) {
			mo := masterOptions()
			mo.Mode = mode
			m := startMaster(b, mo, store)
			b.SetBytes(store.End())
			for b.Loop() {
				so := storeOptions(b.TempDir(), true)
				so.SegmentSize = o.SegmentSize
				replica, err := commitlog.Open(so)
				require.NoError(b, err)
				slave := NewSlave(slaveOptions(peerOf(m, "b")), replica)
				slave.Start()
				waitFor(b, "catching up", func() bool { return replica.End() == store.End() })
				_ = slave.Close()
				_ = replica.Close()
			}
		})
	}
}

// BenchmarkSyncSend is one message in flight: append, transfer, acknowledgement.
func BenchmarkSyncSend(b *testing.B) {
	o := storeOptions(b.TempDir(), false)
	o.SegmentSize = 64 << 20
	store := openStore(b, o)
	m := startMaster(b, masterOptions(), store)
	so := storeOptions(b.TempDir(), true)
	so.SegmentSize = o.SegmentSize
	startSlave(b, slaveOptions(peerOf(m, "b")), openStore(b, so))
	waitFor(b, "usable", func() bool { return m.Admit() == codec.Success })
	done := make(chan struct{}, 1)
	w := waiterFunc(func(codec.ResponseCode) { done <- struct{}{} })
	items := []*commitlog.Append{{Bytes: record(make([]byte, 128)), Queue: store.Queue("T", 1), Count: 1}}
	hook := &ticket{ring: m.ring, replica: true, w: w}
	b.ReportAllocs()
	for b.Loop() {
		m.ring.Reserve(1)
		store.Append(items, hook)
		m.NotifyAppended()
		<-done
	}
	b.ReportMetric(float64(m.Status().SyncWait.P50Us), "p50-µs")
	b.ReportMetric(float64(m.Status().SyncWait.P99Us), "p99-µs")
}

type waiterFunc func(codec.ResponseCode)

func (f waiterFunc) Done(code codec.ResponseCode) { f(code) }
