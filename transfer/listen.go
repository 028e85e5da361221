package transfer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
	"tandem/transfer/rules"
)

// The listener is the master's own and hands each connection to a loop: a lack of descriptors only makes it wait.

const (
	keepAlive       = time.Minute
	shortestBackOff = 5 * time.Millisecond
	longestBackOff  = time.Second
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
	return nil
}

// Serve begins to take slaves, on the loops of host: with those that serve the clients, a report completes the answers that waited for it
// without a hand-over between threads. nil gives the replication loops of its own. Call it once. The host must be shut down before Close.
func (m *Master) Serve(host *engine.Server) error {
	if host == nil {
		own, err := engine.NewHost(engine.Options{Name: "replication", Logger: m.log})
		if err != nil {
			return fmt.Errorf("%w: event loop: %w", ErrAddress, err)
		}
		m.own, host = own, own
	}
	m.host = host
	m.serving = true
	m.goroutines.Go(m.accept)
	m.goroutines.Go(m.expireTickets)
	m.goroutines.Go(m.keepHouse)
	m.goroutines.Go(m.feedOthers)
	m.log.Info("serving the log to slaves", zap.Stringer("addr", m.addr),
		zap.String("rule", rules.Text(m.o.Sync, m.o.InSyncReplicas, m.o.MinInSyncReplicas)))
	return nil
}

// StopAccepting closes the HA port; slaves that are connected stay. Call it before the host is shut down, and before Close: a connection
// cannot be handed to loops that end.
func (m *Master) StopAccepting() error {
	err := m.listener.Close()
	if m.serving {
		<-m.accepted
	}
	if errors.Is(err, net.ErrClosed) {
		return nil // it was called before
	}
	return err
}

// stopHost ends the loops, if they are its own, and with them all connections.
func (m *Master) stopHost() error {
	if m.own == nil {
		return nil
	}
	return m.own.Shutdown(m.ctx)
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
	m.mu.Lock()
	m.lastID++
	id := m.lastID
	m.mu.Unlock()
	if err := m.host.Host(conn, &session{id: id, m: m}); err != nil {
		m.refuseAddr(addrPort(conn.RemoteAddr()), err)
	}
}

// OnOpen begins the session.
func (s *session) OnOpen(c engine.Socket) error {
	if err := s.open(c); err != nil {
		s.m.refuseAddr(addrPort(c.RemoteAddr()), err)
		return err
	}
	s.m.join(s)
	s.m.goroutines.Go(s.write)
	return nil
}

// OnData takes reports.
func (s *session) OnData(bytes []byte) error {
	err := s.m.reports(s, bytes)
	if err != nil {
		s.m.refuse(s, err)
	}
	return err
}

// OnClose ends the session.
func (s *session) OnClose(err error) {
	if s.gone == nil {
		return // it never began
	}
	s.hangUp()
	s.m.leave(s, err)
	s.m.offerAppended() // what only this slave was sent
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
	if err == nil {
		m.offerReported(s)
	}
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
	s.acked.Store(offset)
	s.pulse.reported(offset, m.ring.now())
	s.reports.Add(1)
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
