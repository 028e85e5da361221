package transfer

import (
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer/rules"
)

func TestMasterServesEveryPositionFromExactlyThere(t *testing.T) {
	store := masterStore(t)
	first := put(t, store, 500)
	fill(t, store, 7*segmentSize/2)
	whole := logBytes(t, store, 0)
	end := store.End()
	newest := end - end%segmentSize
	for _, mode := range []Mode{Auto, Sendfile, Mapped, Copied} {
		o := masterOptions()
		o.Mode, o.BatchSize, o.MaxBatch = mode, 1000, 5000
		m := startMaster(t, o, store)
		for name, report := range map[string]int64{
			"0 is the newest segment": 0, "whole log but its first byte": 1, "start of a record": first.End,
			"inside a record": first.End + 17, "segment start": 2 * segmentSize, "last byte": end - 1, "inside a record's size": first.End + 2,
		} {
			t.Run(name, func(t *testing.T) {
				c := connect(t, m)
				c.report(report)
				from := report
				if report == 0 {
					from = newest
				}
				require.Equal(t, whole[from:], c.until(from, end))
				require.NoError(t, c.conn.Close())
			})
		}
	}
}

func TestMasterSendsHeartbeatsAtTheNextOffset(t *testing.T) {
	store := masterStore(t)
	put(t, store, 100)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	c.report(store.End())
	for range 3 {
		offset, body, err := c.frame()
		require.NoError(t, err)
		require.Empty(t, body)
		require.Equal(t, store.End(), offset)
	}
}

func TestMasterOfAnEmptyLogWaitsForItsFirstByte(t *testing.T) {
	store := masterStore(t)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	c.report(0)
	offset, body, err := c.frame()
	require.NoError(t, err)
	require.Zero(t, offset)
	require.Empty(t, body)
	put(t, store, 100)
	m.NotifyAppended()
	require.Equal(t, logBytes(t, store, 0), c.until(0, store.End()))
}

func TestMasterEndsSessionsThatCannotBeTrue(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 2*segmentSize)
	end := store.End()
	m := startMaster(t, masterOptions(), store)
	for name, speak := range map[string]func(*scripted){
		"beyond the end": func(c *scripted) { c.report(end + 1) },
		"negative":       func(c *scripted) { c.report(-5) },
		"eight bytes 0xFF, then more": func(c *scripted) {
			c.report(-1)
		},
		"text":       func(c *scripted) { _, _ = c.conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) },
		"backwards":  func(c *scripted) { c.report(end); c.report(end - 1) },
		"never sent": func(c *scripted) { c.report(end); c.report(end + 100) },
		"good, then absurd": func(c *scripted) {
			c.report(end)
			_, _, err := c.frame()
			require.NoError(t, err)
			c.report(math.MaxInt64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := m.Status().Refused
			c := connect(t, m)
			speak(c)
			c.requireClosed()
			waitFor(t, "refusal to be shown", func() bool { return m.Status().Refused > before })
			refusals := m.Status().Refusals
			require.Equal(t, c.conn.LocalAddr().String(), refusals[len(refusals)-1].Addr)
			require.NotEmpty(t, refusals[len(refusals)-1].Reason)
		})
	}
	waitFor(t, "all sessions to end", func() bool { return len(m.Status().Slaves) == 0 })
	require.Equal(t, codec.SlaveNotAvailable, m.Admit())
}

func TestHalfAReportAndSilenceHarmNobody(t *testing.T) {
	store := masterStore(t)
	fill(t, store, segmentSize)
	o := masterOptions()
	o.Housekeeping = 300 * time.Millisecond
	m := startMaster(t, o, store)

	half := connect(t, m)
	_, err := half.conn.Write(make([]byte, 7))
	require.NoError(t, err)
	require.NoError(t, half.conn.Close())

	silent := connect(t, m)
	drip := connect(t, m)
	go func() {
		for {
			if _, err := drip.conn.Write([]byte{0}); err != nil {
				return
			}
			time.Sleep(60 * time.Millisecond) // a whole report would take longer than housekeeping
		}
	}()
	silent.requireClosed()
	drip.requireClosed()
	waitFor(t, "all sessions to end", func() bool { return len(m.Status().Slaves) == 0 })
}

func TestReportsMayComeInAnyCut(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 2*segmentSize)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	var bytes []byte
	for offset := int64(1); offset <= store.End(); offset += 701 {
		report := make([]byte, 8)
		codec.PutHAReport(report, offset)
		bytes = append(bytes, report...)
	}
	c.report(1)
	c.until(1, store.End()) // now all of it was sent
	for len(bytes) > 0 {
		n := min(1+rand.IntN(23), len(bytes))
		_, err := c.conn.Write(bytes[:n])
		require.NoError(t, err)
		bytes = bytes[n:]
	}
	last := 1 + (store.End()-1)/701*701
	waitFor(t, "last report", func() bool { return m.Status().Slaves[0].Acked == last })
}

func TestSlowReaderGetsEveryByteOnce(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 20*segmentSize)
	for _, mode := range []Mode{Sendfile, Mapped, Copied} {
		o := masterOptions()
		o.Mode = mode
		m := startMaster(t, o, store)
		c := connect(t, m)
		require.NoError(t, c.conn.SetReadBuffer(16384))
		c.report(1)
		var all []byte
		for next := int64(1); next < store.End(); {
			header := make([]byte, codec.HAHeaderSize)
			_, err := io.ReadFull(c.conn, header)
			require.NoError(t, err)
			offset, n := codec.ParseHAHeader(header)
			require.Equal(t, next, offset)
			body := make([]byte, n)
			for at := 0; at < len(body); {
				read, err := c.conn.Read(body[at:min(len(body), at+1+rand.IntN(3000))])
				require.NoError(t, err)
				at += read
				if rand.IntN(50) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			all = append(all, body...)
			next += int64(n)
		}
		require.Equal(t, logBytes(t, store, 1), all)
	}
}

func TestASlaveThatTakesNothingIsEndedAlthoughItReports(t *testing.T) {
	store := bigStore(t)
	o := masterOptions()
	o.Housekeeping = 500 * time.Millisecond
	m := startMaster(t, o, store)
	c := connect(t, m)
	require.NoError(t, c.conn.SetReadBuffer(4096))
	c.report(1)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = c.conn.Write([]byte{0, 0, 0, 0, 0, 0, 0, 1})
			}
		}
	}()
	waitFor(t, "end of the stuck session", func() bool {
		refusals := m.Status().Refusals
		return len(refusals) > 0 && len(m.Status().Slaves) == 0
	})
	close(stop)
	<-done
	require.Contains(t, m.Status().Refusals[0].Reason, errStuck.Error())
}

func TestIdentityMayComeBeforeOrAfterTheConnection(t *testing.T) {
	store := masterStore(t)
	m := startMaster(t, masterOptions(), store)
	require.ErrorIs(t, m.Identify(netip.AddrPort{}, "x"), ErrOptions)
	require.ErrorIs(t, m.Identify(netip.MustParseAddrPort("127.0.0.1:1"), ""), ErrOptions)

	after := connect(t, m)
	waitFor(t, "connection", func() bool { return len(m.Status().Slaves) == 1 })
	local := after.conn.LocalAddr().(*net.TCPAddr).AddrPort()
	mapped := netip.AddrPortFrom(netip.AddrFrom16(local.Addr().As16()), local.Port())
	require.NoError(t, m.Identify(mapped, "after"))
	require.Equal(t, "after", m.Status().Slaves[0].ID)

	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // to get a free port
	require.NoError(t, err)
	dialer.LocalAddr = listener.Addr()
	require.NoError(t, listener.Close())
	require.NoError(t, m.Identify(listener.Addr().(*net.TCPAddr).AddrPort(), "before"))
	before, err := dialer.Dial("tcp", m.Addr().String())
	require.NoError(t, err)
	defer before.Close()
	waitFor(t, "identity", func() bool {
		slaves := m.Status().Slaves
		return len(slaves) == 2 && slaves[1].ID == "before"
	})
}

func TestOneMoreConnectionThanAllowedIsTurnedAway(t *testing.T) {
	o := masterOptions()
	o.MaxSessions = 2
	m := startMaster(t, o, masterStore(t))
	a, b := connect(t, m), connect(t, m)
	waitFor(t, "two sessions", func() bool { return len(m.Status().Slaves) == 2 })
	connect(t, m).requireClosed()
	require.Len(t, m.Status().Refusals, 1)
	require.NoError(t, a.conn.Close())
	waitFor(t, "room", func() bool { return len(m.Status().Slaves) == 1 })
	b.report(0)
	c := connect(t, m)
	c.report(0)
	_, _, err := c.frame()
	require.NoError(t, err)
}

func TestNoDescriptorsLeftOnlyMakesSlavesWait(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	m := startMaster(t, masterOptions(), store)
	old := connect(t, m)
	old.report(store.End())
	_, _, err := old.frame()
	require.NoError(t, err)

	taken := takeAllDescriptors(t)
	require.NoError(t, unix.Close(taken[0])) // one for the dialler, none for the master
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(m.Addr().Port())}))
	put(t, store, 10)
	m.NotifyAppended()
	for offset := int64(0); offset != store.End(); { // the old slave is served meanwhile
		var body []byte
		offset, body, err = old.frame()
		require.NoError(t, err)
		offset += int64(len(body))
	}
	for _, fd := range taken[1:] {
		require.NoError(t, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "late")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	defer conn.Close()
	late := &scripted{t, conn.(*net.TCPConn)}
	late.report(store.End())
	_, _, err = late.frame()
	require.NoError(t, err)
}

// takeAllDescriptors lowers the limit and uses up what is left.
func takeAllDescriptors(t *testing.T) []int {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	low := unix.Rlimit{Cur: 400, Max: was.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
	var taken []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			return taken
		}
		taken = append(taken, fd)
	}
}

func TestTakenPortAndBadOptionsAreNamed(t *testing.T) {
	store := masterStore(t)
	m := startMaster(t, masterOptions(), store)
	o := masterOptions()
	o.Addr = m.Addr().String()
	_, err := NewMaster(o, store)
	require.ErrorIs(t, err, ErrAddress)
	require.ErrorIs(t, err, engine.ErrAddrInUse)
	require.ErrorContains(t, err, o.Addr)

	for _, change := range []func(*MasterOptions){
		func(o *MasterOptions) { o.Addr = "" },
		func(o *MasterOptions) { o.BatchSize = 4 << 20 },
		func(o *MasterOptions) { o.BatchSize = -1 },
		func(o *MasterOptions) { o.MaxBatch = 1 },
		func(o *MasterOptions) { o.InSyncReplicas = -1 },
		func(o *MasterOptions) { o.SlaveTimeout = -1 },
		func(o *MasterOptions) { o.RingSize = 1 << 30 },
		func(o *MasterOptions) { o.MaxGapNotInSync = -1 },
	} {
		o := masterOptions()
		change(&o)
		_, err := NewMaster(o, store)
		require.ErrorIs(t, err, ErrOptions)
	}
}

func TestTransferLimitHoldsForALaggingSlave(t *testing.T) {
	store := masterStore(t)
	fill(t, store, 10*segmentSize)
	o := masterOptions()
	o.BatchSize, o.MaxBatch, o.MaxBytesPerSecond = 4096, 4096, 400<<10
	m := startMaster(t, o, store)
	c := connect(t, m)
	begun := time.Now()
	c.report(1)
	c.until(1, store.End())
	require.Greater(t, time.Since(begun), 200*time.Millisecond)
}

func TestAPositionThatWasDeletedIsRefusedAndSaysSo(t *testing.T) {
	// A log that begins above 0, as after its first segments were deleted.
	dir := t.TempDir()
	store := openStore(t, storeOptions(dir, true))
	_, err := store.RawBuffer(3*segmentSize, 100)
	require.NoError(t, err)
	require.NoError(t, store.SetSlave(false))
	put(t, store, 1000)
	require.EqualValues(t, 3*segmentSize, store.MinOffset())
	m := startMaster(t, masterOptions(), store)
	_, err = m.pin(segmentSize, 10, true, new(frame))
	require.ErrorIs(t, err, rules.ErrBelowMin)

	for _, report := range []int64{1, segmentSize, 3*segmentSize - 1} {
		c := connectAs(t, m, "old")
		c.report(report)
		c.requireClosed()
	}
	waitFor(t, "refusals", func() bool { return m.Status().Refused == 3 })
	require.Equal(t, "old", m.Status().Refusals[0].ID)
	require.Contains(t, m.Status().Refusals[0].Reason, "oldest")

	c := connectAs(t, m, "old")
	c.report(3 * segmentSize)
	c.until(3*segmentSize, store.End())
	require.Contains(t, m.Status().Slaves[0].LastError, "oldest", "what went wrong before is still to be seen")
}

func TestCloseEndsEverySession(t *testing.T) {
	store := bigStore(t)
	m, err := servingMaster(masterOptions(), store)
	require.NoError(t, err)
	idle, stuck, fresh := connect(t, m), connect(t, m), connect(t, m)
	idle.report(store.End())
	_, _, err = idle.frame()
	require.NoError(t, err)
	require.NoError(t, stuck.conn.SetReadBuffer(4096))
	stuck.report(1)
	waitFor(t, "full socket", func() bool {
		for _, s := range *m.sessions.Load() {
			if s.parked.Load() {
				return true
			}
		}
		return false
	})
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	idle.requireClosed()
	fresh.requireClosed()
}

func TestSendingAllocatesNothing(t *testing.T) {
	store := masterStore(t)
	m := startMaster(t, masterOptions(), store)
	c := connect(t, m)
	c.report(0)
	_, _, err := c.frame()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			if _, err := c.conn.Read(buf); err != nil {
				return
			}
		}
	}()
	require.NoError(t, c.conn.SetDeadline(time.Time{}))
	items := []*commitlog.Append{put(t, store, 10)}
	allocs := testing.AllocsPerRun(500, func() {
		store.Append(items, nil)
		m.NotifyAppended()
	})
	require.Less(t, allocs, 0.5)
	require.NoError(t, c.conn.Close())
	<-done
}
