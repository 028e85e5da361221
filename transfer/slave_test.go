package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/commitlog"
)

// fakeMaster is a listener that plays a master's HA port as a test says, and what its remoting port would tell.
type fakeMaster struct {
	t        testing.TB
	listener net.Listener
	log      []byte // the whole log; what Range and Record go by
	min, max int64
	conns    chan net.Conn
}

func newFakeMaster(t testing.TB, log []byte) *fakeMaster {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeMaster{t: t, listener: listener, log: log, max: int64(len(log)), conns: make(chan net.Conn, 64)}
	t.Cleanup(func() {
		_ = listener.Close()
		for conn := range f.conns {
			_ = conn.Close()
		}
	})
	go func() {
		defer close(f.conns)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.conns <- conn
		}
	}()
	return f
}

func (f *fakeMaster) HAAddr(context.Context) (string, error)               { return f.listener.Addr().String(), nil }
func (f *fakeMaster) Hello(context.Context, netip.AddrPort) error          { return ErrNotSupported }
func (f *fakeMaster) Refuse(context.Context, netip.AddrPort, string) error { return ErrNotSupported }
func (f *fakeMaster) Range(context.Context) (int64, int64, error)          { return f.min, f.max, nil }
func (f *fakeMaster) Record(_ context.Context, off int64) ([]byte, error) {
	var r codec.Record
	if off < f.min || off >= f.max {
		return nil, ErrNoRecord
	}
	n, err := r.Decode(f.log[off:])
	if err != nil {
		return nil, ErrNoRecord
	}
	return f.log[off : off+int64(n)], nil
}

// next waits for the slave's next connection.
func (f *fakeMaster) next() *fakeSession {
	f.t.Helper()
	select {
	case conn := <-f.conns:
		require.NotNil(f.t, conn)
		f.t.Cleanup(func() { _ = conn.Close() })
		return &fakeSession{f.t, conn}
	case <-time.After(20 * time.Second):
		require.FailNow(f.t, "the slave does not connect")
		return nil
	}
}

type fakeSession struct {
	t    testing.TB
	conn net.Conn
}

func (s *fakeSession) report() int64 {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	b := make([]byte, codec.HAReportSize)
	_, err := io.ReadFull(s.conn, b)
	require.NoError(s.t, err)
	return codec.ParseHAReport(b)
}

// reportOf waits until the slave has reported an offset; no report may go back.
func (s *fakeSession) reportOf(offset int64) {
	s.t.Helper()
	for last := int64(math.MinInt64); last != offset; {
		now := s.report()
		require.GreaterOrEqual(s.t, now, last)
		require.LessOrEqual(s.t, now, offset)
		last = now
	}
}

func (s *fakeSession) requireClosed() {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.Copy(io.Discard, s.conn)
	if err != nil {
		require.NotErrorIs(s.t, err, os.ErrDeadlineExceeded)
	}
}

func frameOf(offset int64, body []byte) []byte {
	header := make([]byte, codec.HAHeaderSize)
	codec.PutHAHeader(header, offset, int32(len(body)))
	return append(header, body...)
}

func (s *fakeSession) send(offset int64, body []byte) { s.sendBytes(frameOf(offset, body)) }

func (s *fakeSession) sendBytes(b []byte) {
	_, _ = s.conn.Write(b) // a slave that closes is what some tests are about
}

// capturedLog is the log of the real master, up to its end.
func capturedLog(t testing.TB, version string) []byte {
	t.Helper()
	names, err := filepath.Glob("testdata/store/" + version + "/*")
	require.NoError(t, err)
	slices.Sort(names)
	var log []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Len(t, b, segmentSize)
		log = append(log, b...)
	}
	var r codec.Record
	end := 0
	for end < len(log) {
		n, err := r.Decode(log[end:])
		if err != nil && n == 0 {
			break
		}
		end += n
	}
	return log[:end]
}

// feed puts bytes into a slave's store as replication does.
func feed(t testing.TB, s *commitlog.Store, log []byte, from int64) {
	t.Helper()
	for at := from; at < int64(len(log)); {
		dst, err := s.RawBuffer(at, len(log)-int(at))
		require.NoError(t, err)
		n := copy(dst, log[at:])
		require.NoError(t, s.RawCommit(n))
		at += int64(n)
	}
}

func TestSlaveReadsWhatRealMastersSent(t *testing.T) {
	for _, version := range []string{"5.5.0", "4.9.7"} {
		log := capturedLog(t, version)
		for _, c := range []struct {
			name   string
			file   string
			held   int64 // bytes of the log held before
			join   JoinFrom
			report int64
			from   int64 // lowest offset held in the end
		}{
			{"empty, from the newest segment", "0", 0, JoinLast, 0, int64(len(log)) - int64(len(log))%segmentSize},
			{"empty, from the oldest", "1", 0, JoinOldest, 1, 0},
			{"with a prefix", "16384", segmentSize, JoinLast, segmentSize, 0},
		} {
			for _, cut := range []int{1, 100, 1 << 20} {
				t.Run(version+", "+c.name, func(t *testing.T) {
					stream, err := os.ReadFile("testdata/ha/master-" + version + "-report-" + c.file + ".bin")
					require.NoError(t, err)
					store := slaveStore(t)
					feed(t, store, log[:c.held], 0)
					f := newFakeMaster(t, log)
					o := slaveOptions(f)
					o.JoinFrom = c.join
					slave := startSlave(t, o, store)
					session := f.next()
					require.Equal(t, c.report, session.report())
					go func() {
						for len(stream) > 0 {
							n := min(len(stream), 1+rand.IntN(cut))
							session.sendBytes(stream[:n])
							stream = stream[n:]
						}
					}()
					waitFor(t, "the end", func() bool { return store.End() == int64(len(log)) })
					session.reportOf(int64(len(log)))
					require.Equal(t, c.from, store.MinOffset())
					require.Equal(t, log[c.from:], logBytes(t, store, c.from))
					require.Equal(t, Transfer, slave.Status().State)
					waitFor(t, "dispatch", func() bool { return store.Dispatched() == store.End() })
				})
			}
		}
	}
}

func TestSlaveAsksForTheOldestSegmentByItsStart(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	f := newFakeMaster(t, log)
	f.min = segmentSize
	store := slaveStore(t)
	startSlave(t, slaveOptions(f), store)
	session := f.next()
	require.EqualValues(t, segmentSize, session.report())
	session.send(segmentSize, nil)
	session.send(segmentSize, log[segmentSize:2*segmentSize])
	session.reportOf(2 * segmentSize)
	require.EqualValues(t, segmentSize, store.MinOffset())
	require.Equal(t, log[segmentSize:2*segmentSize], logBytes(t, store, segmentSize))
}

func TestSlaveRefusesAMasterThatDoesNotFitAndHarmsNothing(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	other := slices.Clone(log)
	// The same log but for one byte of a body, checksum and all, in the last record.
	last := lastRecordOf(t, log)
	var r codec.Record
	n, err := r.Decode(other[last:])
	require.NoError(t, err)
	copy(other[last:], changed(t, other[last:last+int64(n)]))

	for name, c := range map[string]struct {
		held   []byte
		change func(*fakeMaster)
		why    string
	}{
		"master's log is shorter":           {log, func(f *fakeMaster) { f.max = int64(len(log)) - 1 }, "longer than the master's"},
		"master was made new":               {log, func(f *fakeMaster) { f.max = 0 }, "longer than the master's"},
		"what follows was deleted":          {log[:segmentSize/2], func(f *fakeMaster) { f.min = segmentSize }, "no longer holds"},
		"another last record":               {other, func(*fakeMaster) {}, "different histories"},
		"no record of the master's there":   {log, func(f *fakeMaster) { f.log = make([]byte, len(log)) }, "different histories"},
		"another beginning of a cut record": {append(slices.Clone(log[:last]), other[last:last+90]...), func(f *fakeMaster) {}, "different histories"},
		"something else behind the last whole record": {append(slices.Clone(log[:last]), bytes.Repeat([]byte{0, 0, 0, 99}, 20)...),
			func(f *fakeMaster) {}, "different histories"},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := commitlog.Open(storeOptions(t.TempDir(), true))
			require.NoError(t, err)
			defer store.Close() // may complain about the end that this test gave it
			feed(t, store, c.held, 0)
			waitFor(t, "dispatch of what is whole", func() bool {
				_, end, ok := store.LastRecord()
				return ok && store.Dispatched() >= min(end, store.End())
			})
			f := newFakeMaster(t, log)
			c.change(f)
			slave := startSlave(t, slaveOptions(f), store)
			waitFor(t, "refusal", func() bool { return slave.Status().State == Refused })
			require.Contains(t, slave.Status().LastError, c.why)
			session := f.next()
			session.requireClosed()
			require.Equal(t, c.held, logBytes(t, store, 0))
			require.NoError(t, slave.Close())
		})
	}
}

func lastRecordOf(t testing.TB, log []byte) int64 {
	t.Helper()
	var r codec.Record
	last := int64(0)
	for at := 0; at < len(log); {
		n, err := r.Decode(log[at:])
		if err == nil {
			last = int64(at)
		}
		require.Positive(t, n)
		at += n
	}
	return last
}

// changed gives a record of the same length with another store time.
func changed(t testing.TB, record []byte) []byte {
	t.Helper()
	var r codec.Record
	_, err := r.Decode(record)
	require.NoError(t, err)
	out := slices.Clone(record)
	codec.PatchRecord(out, r.QueueOffset, r.PhysicalOffset, r.StoreTimestamp+1)
	require.NotEqual(t, record, out)
	return out
}

func TestSlaveHangsUpOnFramesThatCannotBe(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	size := int64(1000)
	for name, c := range map[string]struct {
		frame []byte
		state SlaveState
	}{
		"not the next offset":  {frameOf(size+1, log[size+1:2000]), Connecting},
		"an old offset":        {frameOf(size-1, log[size-1:2000]), Connecting},
		"heartbeat elsewhere":  {frameOf(0, nil), Connecting},
		"negative size":        {binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(size)), 1<<31), Connecting},
		"huge size":            {binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(size)), 65<<20), Connecting},
		"over a segment's end": {frameOf(size, log[size:segmentSize+1]), Refused},
		"text":                 {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), Connecting},
	} {
		t.Run(name, func(t *testing.T) {
			store := slaveStore(t)
			feed(t, store, log[:size], 0)
			f := newFakeMaster(t, log)
			slave := startSlave(t, slaveOptions(f), store)
			session := f.next()
			require.Equal(t, size, session.report())
			session.sendBytes(c.frame)
			session.requireClosed()
			waitFor(t, "state", func() bool {
				status := slave.Status()
				return status.LastError != "" && (c.state != Refused || status.State == Refused)
			})
			require.Equal(t, log[:size], logBytes(t, store, 0))
			require.NoError(t, slave.Close())
			require.NoError(t, store.Close()) // half a record at its end
		})
	}
}

func TestTheAssumedFirstByteIsProven(t *testing.T) {
	log := slices.Clone(capturedLog(t, "5.5.0"))
	log[0] = 1 // a master whose first byte is not what is assumed
	f := newFakeMaster(t, log)
	store := slaveStore(t)
	slave := startSlave(t, slaveOptions(f), store)
	for range 2 {
		session := f.next()
		require.EqualValues(t, 1, session.report())
		bad := slices.Clone(log[1:2000])
		bad[100]++
		session.send(1, bad)
		session.requireClosed()
		waitFor(t, "refusal", func() bool { return slave.Status().State == Refused })
		require.Contains(t, slave.Status().LastError, errByteZero.Error())
		require.Zero(t, store.End()-store.MinOffset())
	}
}

func TestNothingIsAcknowledgedBeforeTheFirstByteIsProven(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	f := newFakeMaster(t, log)
	store := slaveStore(t)
	startSlave(t, slaveOptions(f), store)
	session := f.next()
	session.send(1, log[1:60])
	for range 3 {
		require.EqualValues(t, 1, session.report())
	}
	require.NoError(t, session.conn.Close()) // it begins anew
	session = f.next()
	require.EqualValues(t, 1, session.report())
	session.send(1, log[1:1000])
	session.reportOf(1000)
	require.Equal(t, log[:1000], logBytes(t, store, 0))
}

func TestACutFrameIsContinuedWhereItWasCut(t *testing.T) {
	log := capturedLog(t, "4.9.7")
	f := newFakeMaster(t, log)
	store := slaveStore(t)
	startSlave(t, slaveOptions(f), store)
	at := int64(1)
	for at < segmentSize {
		session := f.next()
		require.Equal(t, at, session.report())
		frame := frameOf(at, log[at:segmentSize])
		n := min(len(frame), 3000)
		session.sendBytes(frame[:n])
		at += int64(n - codec.HAHeaderSize)
		waitFor(t, "what came", func() bool { return store.End() == at })
		require.NoError(t, session.conn.Close())
	}
	require.Equal(t, log[:segmentSize], logBytes(t, store, 0))
}

func TestSlaveReportsOncePerBurstAndWhenNothingHappens(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	f := newFakeMaster(t, log)
	store := slaveStore(t)
	o := slaveOptions(f)
	o.ReportInterval = 200 * time.Millisecond
	startSlave(t, o, store)
	session := f.next()
	require.EqualValues(t, 1, session.report())
	var burst []byte
	for at := 1; at < 8001; at += 100 {
		burst = append(burst, frameOf(int64(at), log[at:at+100])...)
	}
	session.sendBytes(burst)
	count := 0
	for last := int64(0); last != 8001; count++ {
		last = session.report()
	}
	require.Less(t, count, 10, "80 frames that came at once")
	for range 2 {
		require.EqualValues(t, 8001, session.report(), "nothing new: the same again")
	}
}

func TestSlaveLeavesASilentMaster(t *testing.T) {
	f := newFakeMaster(t, capturedLog(t, "5.5.0"))
	o := slaveOptions(f)
	o.Housekeeping, o.ReportInterval = 150*time.Millisecond, 20*time.Millisecond
	slave := startSlave(t, o, slaveStore(t))
	f.next().requireClosed()
	waitFor(t, "reason", func() bool { return slave.Status().LastError != "" })
	require.Contains(t, slave.Status().LastError, errMasterSilent.Error())
	f.next() // and tries again
}

func TestHeartbeatsKeepAConnection(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	f := newFakeMaster(t, log)
	f.max = 1000
	store := slaveStore(t)
	feed(t, store, log[:1000], 0)
	o := slaveOptions(f)
	o.Housekeeping, o.ReportInterval = 200*time.Millisecond, 20*time.Millisecond
	slave := startSlave(t, o, store)
	session := f.next()
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(20 * time.Millisecond) {
		session.send(1000, nil)
	}
	require.EqualValues(t, 1, slave.Status().Sessions)
	require.Empty(t, slave.Status().LastError)
	require.NoError(t, slave.Close())
	require.NoError(t, store.Close())
}

// A real master that cannot serve a position sends heartbeats there for ever.
func TestSlaveNoticesThatItIsNotServed(t *testing.T) {
	log := capturedLog(t, "5.5.0")
	f := newFakeMaster(t, log)
	store := slaveStore(t)
	feed(t, store, log[:1000], 0)
	o := slaveOptions(f)
	o.Housekeeping, o.ReportInterval = 100*time.Millisecond, 20*time.Millisecond
	slave := startSlave(t, o, store)
	session := f.next()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			if _, err := session.conn.Write(frameOf(1000, nil)); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	session.requireClosed()
	_ = session.conn.Close()
	<-stop
	waitFor(t, "reason", func() bool { return slave.Status().LastError != "" })
	require.Contains(t, slave.Status().LastError, errNotServed.Error())
	require.NoError(t, slave.Close())
	require.NoError(t, store.Close())
}

func TestSlaveWithoutAMasterWaits(t *testing.T) {
	peer := &storePeer{id: "b"}
	replica := slaveStore(t)
	o := slaveOptions(peer)
	slave := NewSlave(o, replica)
	require.Equal(t, Closed, slave.Status().State)
	slave.Start()
	slave.Start()
	waitFor(t, "waiting", func() bool { return slave.Status().LastError != "" })
	require.Equal(t, Waiting, slave.Status().State)
	require.Empty(t, slave.Status().MasterAddr)

	store := masterStore(t)
	put(t, store, 100)
	m := startMaster(t, masterOptions(), store)
	peer.set(func() { peer.master, peer.store = m, store })
	slave.MasterChanged()
	waitFor(t, "the log", func() bool { return replica.End() == store.End() })
	require.Equal(t, m.Addr().String(), slave.Status().MasterAddr)
	require.NoError(t, slave.Close())
	require.NoError(t, slave.Close())
	require.Equal(t, Closed, slave.Status().State)

	unstarted := NewSlave(o, replica)
	require.NoError(t, unstarted.Close())
	unstarted.Start()
	require.Equal(t, Closed, unstarted.Status().State)
}

func TestJoinFromWords(t *testing.T) {
	for word, want := range map[string]JoinFrom{"last": JoinLast, "": JoinLast, "oldest": JoinOldest} {
		got, err := ParseJoinFrom(word)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ParseJoinFrom("first")
	require.ErrorIs(t, err, ErrOptions)
	require.Equal(t, "oldest", JoinOldest.String())
	require.Equal(t, "last", JoinLast.String())
}
