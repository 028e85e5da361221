package transfer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
	"tandem/transfer/rules"
)

// The listener is the master's own and hands each connection to the event loop: a lack of descriptors, which would end a
// gnet engine that accepts itself, only makes it wait.

const (
	keepAlive       = time.Minute
	shortestBackOff = 5 * time.Millisecond
	longestBackOff  = time.Second
	reportBuffer    = 4 << 10 // read at once: reports are 8 bytes each
)

func (m *Master) listen() error {
	lc := net.ListenConfig{KeepAlive: keepAlive}
	ln, err := lc.Listen(m.ctx, "tcp", m.o.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s: %w: stop what uses it or set another haListenPort (%w)", ErrAddress, m.o.Addr, engine.ErrAddrInUse, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrAddress, m.o.Addr, err)
	}
	m.listener = ln.(*net.TCPListener)
	m.addr = addrPort(ln.Addr())
	if err := m.startPoller(); err != nil {
		_ = ln.Close()
		return fmt.Errorf("%w: event loop: %w", ErrAddress, err)
	}
	return nil
}

func (m *Master) startPoller() error {
	poller, err := gnet.NewClient(&events{m: m},
		gnet.WithNumEventLoop(1),
		gnet.WithReadBufferCap(reportBuffer),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // accepted connections have TCP_NODELAY already
		gnet.WithLogger(pollerLog{m.log.Named("gnet").Sugar()}))
	if err != nil {
		return err
	}
	m.poller = poller
	return poller.Start()
}

// stopPoller ends the loop and with it all connections. The accepting goroutine must be over, or it could wait for the loop
// for ever.
func (m *Master) stopPoller() {
	<-m.accepted
	_ = m.poller.Stop()
}

// accept is the goroutine of the listener.
func (m *Master) accept() {
	defer close(m.accepted)
	backOff := shortestBackOff
	for {
		conn, err := m.listener.AcceptTCP()
		switch {
		case err == nil:
			backOff = shortestBackOff
			m.take(conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		m.mu.Lock()
		m.history.problem("cannot accept a slave", err)
		m.mu.Unlock()
		select {
		case <-time.After(backOff):
		case <-m.ctx.Done():
		}
		backOff = min(2*backOff, longestBackOff)
	}
}

var errTooMany = errors.New("too many connections on the HA port")

// take hands a connection to the event loop, which closes it if that fails.
func (m *Master) take(conn net.Conn) {
	if len(*m.sessions.Load()) >= m.o.MaxSessions {
		m.refuseAddr(addrPort(conn.RemoteAddr()), fmt.Errorf("%w: %d are open", errTooMany, m.o.MaxSessions))
		_ = conn.Close()
		return
	}
	if _, err := m.poller.Enroll(conn); err != nil {
		m.refuseAddr(addrPort(conn.RemoteAddr()), err)
	}
}

// events is what the event loop calls. A panic costs one connection.
type events struct {
	gnet.BuiltinEventEngine
	m *Master
}

func (e *events) OnOpen(c gnet.Conn) (_ []byte, action gnet.Action) {
	defer e.rescue(&action)
	if err := e.m.open(c); err != nil {
		e.m.refuseAddr(addrPort(c.RemoteAddr()), err)
		return nil, gnet.Close
	}
	return nil, gnet.None
}

func (e *events) OnTraffic(c gnet.Conn) (action gnet.Action) {
	defer e.rescue(&action)
	s, ok := c.Context().(*session)
	if !ok {
		return gnet.Close
	}
	bytes, err := c.Next(-1)
	if err == nil {
		err = e.m.reports(s, bytes)
	}
	if err != nil {
		e.m.refuse(s, err)
		return gnet.Close
	}
	return gnet.None
}

func (e *events) OnClose(c gnet.Conn, err error) (action gnet.Action) {
	defer e.rescue(&action)
	if s, ok := c.Context().(*session); ok {
		s.hangUp(c)
		e.m.leave(s, err)
	}
	return gnet.None
}

func (e *events) rescue(action *gnet.Action) {
	if r := recover(); r != nil {
		e.m.log.Error("BUG: panic on the HA port", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
		*action = gnet.Close
	}
}

// open begins a session on the event loop.
func (m *Master) open(c gnet.Conn) error {
	fd, err := c.Dup()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.lastID++
	id := m.lastID
	m.mu.Unlock()
	file := os.NewFile(uintptr(fd), "ha")
	s, err := newSession(m, id, c, file)
	if err != nil {
		_ = file.Close()
		return err
	}
	c.SetContext(s)
	m.join(s)
	m.goroutines.Go(s.write)
	return nil
}

// join makes a session known.
func (m *Master) join(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Open(s.id, s.opened)
	if p, ok := m.pending[s.remote]; ok && p.until >= s.opened {
		m.state.Identify(s.id, p.identity)
	}
	delete(m.pending, s.remote)
	old := *m.sessions.Load()
	list := append(make([]*session, 0, len(old)+1), old...)
	list = append(list, s)
	m.sessions.Store(&list)
	m.log.Info("slave connected", zap.Stringer("addr", s.remote))
}

// leave forgets a session.
func (m *Master) leave(s *session, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.sessions.Load()
	list := make([]*session, 0, len(old))
	for _, other := range old {
		if other != s {
			list = append(list, other)
		}
	}
	m.sessions.Store(&list)
	last, _ := m.state.Session(s.id)
	m.state.Close(s.id)
	m.moved()
	m.history.left(last.Identity, s.remote, err)
	m.log.Info("slave disconnected", zap.Stringer("addr", s.remote), zap.String("id", last.Identity),
		zap.Int64("acked", last.Acked), zap.NamedError("cause", err))
}

// reports takes what a slave sent, in any cut, and judges each complete report. It runs on the event loop.
func (m *Master) reports(s *session, bytes []byte) error {
	if s.have+len(bytes) < len(s.partial) {
		s.have += copy(s.partial[s.have:], bytes)
		return nil
	}
	log := rules.Log{Min: m.store.MinOffset(), SegmentSize: m.store.SegmentSize(), Sent: s.promised.Load()}
	log.End = m.store.End()
	m.mu.Lock()
	err := m.judge(s, bytes, log)
	m.moved()
	m.mu.Unlock()
	m.ring.Advance()
	return err
}

// judge needs mu.
func (m *Master) judge(s *session, bytes []byte, log rules.Log) error {
	now := m.nowMs()
	if s.have > 0 {
		n := copy(s.partial[s.have:], bytes)
		bytes = bytes[n:]
		s.have = 0
		if err := m.report(s, codec.ParseHAReport(s.partial[:]), log, now); err != nil {
			return err
		}
	}
	for ; len(bytes) >= codec.HAReportSize; bytes = bytes[codec.HAReportSize:] {
		if err := m.report(s, codec.ParseHAReport(bytes), log, now); err != nil {
			return err
		}
	}
	s.have = copy(s.partial[:], bytes)
	return nil
}

func (m *Master) report(s *session, offset int64, log rules.Log, now int64) error {
	if err := m.state.Report(s.id, offset, log, now); err != nil {
		return err
	}
	if s.reported {
		return nil
	}
	s.reported = true
	first, _ := m.state.Session(s.id)
	s.start <- first.Start
	m.log.Info("slave follows", zap.Stringer("addr", s.remote), zap.String("id", first.Identity),
		zap.Int64("reported", offset), zap.Int64("from", first.Start), zap.Int64("lag", first.Lag(log.End)))
	return nil
}

// pollerLog drops what the event loop says in the ordinary course of things.
type pollerLog struct{ log *zap.SugaredLogger }

func (pollerLog) Debugf(string, ...any)               {}
func (pollerLog) Infof(string, ...any)                {}
func (p pollerLog) Warnf(format string, args ...any)  { p.log.Warnf(format, args...) }
func (p pollerLog) Errorf(format string, args ...any) { p.log.Errorf(format, args...) }
func (p pollerLog) Fatalf(format string, args ...any) { p.log.Errorf(format, args...) }

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmapped(tcp.AddrPort())
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
