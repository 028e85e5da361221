package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/codec"
	"tandem/commitlog"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's worker pool begins with the process
}

const segmentSize = 16384

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

func storeOptions(dir string, slave bool) commitlog.Options {
	return commitlog.Options{
		RootDir: dir, SegmentSize: segmentSize, ConsumeQueueUnits: 50, Slave: slave,
		FlushInterval: 10 * time.Millisecond, QueueFlushInterval: 10 * time.Millisecond,
	}
}

// openStore opens a store that the test's end closes, and finds sound.
func openStore(t testing.TB, o commitlog.Options) *commitlog.Store {
	t.Helper()
	s, err := commitlog.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { closeStore(t, s, o.RootDir) })
	return s
}

func closeStore(t testing.TB, s *commitlog.Store, dir string) {
	empty := s.End() == s.MinOffset()
	err := s.Close()
	if errors.Is(err, commitlog.ErrClosed) || err == nil && empty {
		return
	}
	require.NoError(t, err)
	report, err := commitlog.Verify(dir, io.Discard)
	require.NoError(t, err)
	require.Empty(t, report.Problems)
}

func masterStore(t testing.TB) *commitlog.Store {
	return openStore(t, storeOptions(t.TempDir(), false))
}
func slaveStore(t testing.TB) *commitlog.Store { return openStore(t, storeOptions(t.TempDir(), true)) }

func record(body []byte) []byte {
	r := codec.Record{QueueID: 1, BornTimestamp: 1, BornHost: testHost, StoreHost: testHost, Topic: []byte("T"), Body: body}
	return r.Append(nil)
}

// put stores a message of so many body bytes and gives its place.
func put(t testing.TB, s *commitlog.Store, size int) *commitlog.Append {
	t.Helper()
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 7)
	}
	a := &commitlog.Append{Bytes: record(body), Queue: s.Queue("T", 1), Count: 1}
	s.Append([]*commitlog.Append{a}, nil)
	require.NoError(t, a.Err)
	return a
}

// fill appends messages of many sizes until the log is at least so long.
func fill(t testing.TB, s *commitlog.Store, end int64) {
	t.Helper()
	for i := 0; s.End() < end; i++ {
		put(t, s, i*i*37%3000)
	}
}

// bigStore holds more than the buffers of a socket.
func bigStore(t testing.TB) *commitlog.Store {
	o := storeOptions(t.TempDir(), false)
	o.SegmentSize = 1 << 20
	s := openStore(t, o)
	for s.End() < 12<<20 {
		put(t, s, 60000)
	}
	return s
}

// logBytes reads what a store holds from an offset on.
func logBytes(t testing.TB, s *commitlog.Store, from int64) []byte {
	t.Helper()
	var all []byte
	for end := s.End(); from < end; {
		slice, err := s.Read(from, int(end-from))
		require.NoError(t, err)
		all = append(all, slice.Bytes...)
		from += int64(len(slice.Bytes))
		slice.Release()
	}
	return all
}

// requireSameLog compares all that the slave holds with the master's bytes there. Both must end at the same place.
func requireSameLog(t testing.TB, master, slave *commitlog.Store) {
	t.Helper()
	require.Equal(t, master.End(), slave.End())
	from := slave.MinOffset()
	require.Equal(t, logBytes(t, master, from), logBytes(t, slave, from))
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited in vain", what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func masterOptions() MasterOptions {
	return MasterOptions{
		Addr: "127.0.0.1:0", Sync: true, HeartbeatInterval: 50 * time.Millisecond, Housekeeping: 10 * time.Second,
		SlaveTimeout: 10 * time.Second, SyncFlushTimeout: 10 * time.Second, RingSize: 1024,
	}
}

func startMaster(t testing.TB, o MasterOptions, s *commitlog.Store) *Master {
	t.Helper()
	m, err := servingMaster(o, s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func slaveOptions(p Peer) SlaveOptions {
	return SlaveOptions{
		Peer: p, JoinFrom: JoinOldest, Housekeeping: 5 * time.Second, ReportInterval: 50 * time.Millisecond,
		ReconnectMin: time.Millisecond, ReconnectMax: 20 * time.Millisecond, Identity: "slave",
	}
}

func startSlave(t testing.TB, o SlaveOptions, s *commitlog.Store) *Slave {
	t.Helper()
	slave := NewSlave(o, s)
	slave.Start()
	t.Cleanup(func() { require.NoError(t, slave.Close()) })
	return slave
}

// storePeer answers what a master's remoting port would, straight from its store.
type storePeer struct {
	mu     sync.Mutex
	addr   string // where the HA port is said to be; empty means the master's own
	master *Master
	store  *commitlog.Store
	id     string
	hellos atomic.Int64
	min    int64 // added to the range's minimum
	deaf   bool  // knows no hello
}

func peerOf(m *Master, id string) *storePeer { return &storePeer{master: m, store: m.store, id: id} }

func (p *storePeer) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *storePeer) HAAddr(context.Context) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr != "" {
		return p.addr, nil
	}
	if p.master == nil {
		return "", fmt.Errorf("test: %w", ErrNoMaster)
	}
	return p.master.Addr().String(), nil
}

func (p *storePeer) Hello(_ context.Context, local netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hellos.Add(1)
	if p.deaf || p.master == nil {
		return ErrNotSupported
	}
	return p.master.Identify(local, p.id)
}

func (p *storePeer) Refuse(_ context.Context, local netip.AddrPort, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf || p.master == nil {
		return ErrNotSupported
	}
	return p.master.Refused(local, p.id, reason)
}

func (p *storePeer) Range(context.Context) (int64, int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil {
		return 0, 0, ErrNoMaster
	}
	return p.store.MinOffset() + p.min, p.store.End(), nil
}

func (p *storePeer) Record(_ context.Context, off int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slice, err := p.store.RecordAt(off)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRecord, err)
	}
	defer slice.Release()
	return append([]byte(nil), slice.Bytes...), nil
}

// scripted is a slave that does what a test says.
type scripted struct {
	t    testing.TB
	conn *net.TCPConn
}

func connect(t testing.TB, m *Master) *scripted {
	t.Helper()
	conn, err := net.Dial("tcp", m.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &scripted{t, conn.(*net.TCPConn)}
}

// connectAs is a slave that first says who it is.
func connectAs(t testing.TB, m *Master, id string) *scripted {
	t.Helper()
	c := connect(t, m)
	require.NoError(t, m.Identify(c.conn.LocalAddr().(*net.TCPAddr).AddrPort(), id))
	return c
}

func (c *scripted) report(offset int64) {
	c.t.Helper()
	_, err := c.conn.Write(binary.BigEndian.AppendUint64(nil, uint64(offset)))
	require.NoError(c.t, err)
}

// frame reads one frame.
func (c *scripted) frame() (offset int64, body []byte, err error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	header := make([]byte, codec.HAHeaderSize)
	if _, err := io.ReadFull(c.conn, header); err != nil {
		return 0, nil, err
	}
	offset, n := codec.ParseHAHeader(header)
	body = make([]byte, n)
	_, err = io.ReadFull(c.conn, body)
	return offset, body, err
}

// until reads frames up to an offset and gives their bytes. Frames must lie one behind the other, in one segment each.
func (c *scripted) until(from, end int64) []byte {
	c.t.Helper()
	var all []byte
	for next := from; next < end; {
		offset, body, err := c.frame()
		require.NoError(c.t, err)
		require.Equal(c.t, next, offset)
		if len(body) > 0 {
			require.Equal(c.t, offset/segmentSize, (offset+int64(len(body))-1)/segmentSize, "frame crosses a segment")
		}
		all = append(all, body...)
		next += int64(len(body))
	}
	return all
}

// requireClosed reads until the master hangs up; nothing but heartbeats and log may come before.
func (c *scripted) requireClosed() {
	c.t.Helper()
	for {
		if _, _, err := c.frame(); err != nil {
			var timeout net.Error
			require.False(c.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")
			return
		}
	}
}

// answer is a waiter that notes what it was told.
type answer struct {
	code  atomic.Int32
	count atomic.Int32
	at    atomic.Int64
}

func newAnswer() *answer {
	a := &answer{}
	a.code.Store(-1)
	return a
}

func (a *answer) Done(code codec.ResponseCode) {
	a.code.Store(code)
	a.at.Store(time.Now().UnixNano())
	a.count.Add(1)
}

func (a *answer) done() bool { return a.count.Load() > 0 }

// ticket is a Hook that puts an item's ticket.
type ticket struct {
	ring    *Ring
	replica bool
	flush   bool
	w       Waiter
}

func (k *ticket) Appended(a *commitlog.Append) { k.ring.Put(a.Offset, a.End, k.flush, k.replica, k.w) }

// send stores a message as a broker in sync mode does. It gives the answer to come, already there if there is none to wait
// for.
func send(t testing.TB, m *Master, size int) *answer {
	t.Helper()
	a := newAnswer()
	item := &commitlog.Append{Bytes: record(make([]byte, size)), Queue: m.store.Queue("T", 1), Count: 1}
	if code := m.Admit(); code != codec.Success {
		m.store.Append([]*commitlog.Append{item}, nil)
		m.NotifyAppended()
		a.Done(code)
		return a
	}
	require.True(t, m.ring.Reserve(1))
	m.store.Append([]*commitlog.Append{item}, &ticket{ring: m.ring, replica: true, w: a})
	require.NoError(t, item.Err)
	m.NotifyAppended()
	return a
}

// servingMaster is a master that serves, on a loop of its own.
func servingMaster(o MasterOptions, store *commitlog.Store) (*Master, error) {
	m, err := NewMaster(o, store)
	if err != nil {
		return nil, err
	}
	return m, m.Serve(nil)
}
