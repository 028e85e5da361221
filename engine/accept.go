package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// The listeners are the server's own, each with a goroutine that accepts and hands over to a loop: so the server can stop
// accepting and go on serving, and a lack of descriptors, which would end the poller, only makes it refuse and wait.

const (
	keepAlive       = time.Minute
	shortestBackOff = 5 * time.Millisecond
	longestBackOff  = time.Second
)

func (s *Server) listen() error {
	lc := net.ListenConfig{KeepAlive: keepAlive}
	for _, addr := range s.o.Addrs {
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			s.closeListeners()
			return listenError(addr, err)
		}
		tcp := ln.(*net.TCPListener)
		s.listeners = append(s.listeners, tcp)
		s.addrs = append(s.addrs, unmapped(tcp.Addr()))
	}
	return nil
}

var errNotPolled = errors.New("the system does not let the event loop watch it")

func listenError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("engine: cannot listen on %s: %w: stop what uses it or choose another port (%w)", addr, ErrAddrInUse, err)
	}
	return fmt.Errorf("engine: cannot listen on %s: %w", addr, err)
}

func (s *Server) closeListeners() {
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
}

// accept is the goroutine of one listener.
func (s *Server) accept(ln *net.TCPListener) {
	backOff := shortestBackOff
	for {
		nc, err := ln.AcceptTCP()
		switch {
		case err == nil:
			backOff = shortestBackOff
			s.take(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			if outOfDescriptors(err) {
				s.refuseWithSpare(ln)
			}
			s.logRefusal("cannot accept a connection", err)
			if !s.waitToAccept(backOff) {
				return
			}
			backOff = min(2*backOff, longestBackOff)
		}
	}
}

func (s *Server) waitToAccept(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.acceptEnd:
		return false
	}
}

// take hands an accepted connection to a loop, or closes it.
func (s *Server) take(nc *net.TCPConn) {
	if n := s.conns.Add(1); n > int64(s.o.MaxConns) {
		s.conns.Add(-1)
		s.stats.refused.Add(1)
		_ = nc.Close()
		s.logRefusal("connection refused", fmt.Errorf("%d connections are open, the limit", s.o.MaxConns))
		return
	}
	c := &conn{id: s.lastID.Add(1), remote: unmapped(nc.RemoteAddr()), local: unmapped(nc.LocalAddr())}
	dropZones(nc)
	_, err := s.poller.EnrollContext(nc, c)
	if err == nil && c.loop == nil { // the poller swallows this failure
		err = errNotPolled
	}
	if err != nil {
		s.conns.Add(-1)
		s.stats.refused.Add(1)
		s.logRefusal("connection refused", err)
		return
	}
	s.stats.accepted.Add(1)
}

// dropZones clears the addresses' zones: the poller recycles the memory of these strings, which is not its own.
func dropZones(nc *net.TCPConn) {
	for _, a := range []net.Addr{nc.LocalAddr(), nc.RemoteAddr()} {
		if a, ok := a.(*net.TCPAddr); ok {
			a.Zone = ""
		}
	}
}

func unmapped(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func (s *Server) logRefusal(what string, err error) {
	s.stats.refuseLog.Do(func() {
		s.o.Logger.Warn(what, zap.String("server", s.o.Name), zap.Error(err), zap.Int64("open", s.conns.Load()),
			zap.Uint64("refused", s.stats.refused.Load()))
	})
}

func (s *Server) openSpare() { s.spare, _ = os.Open(os.DevNull) }

// refuseWithSpare gives the spare descriptor up to take the peers that wait and close them, so that they learn of it now.
func (s *Server) refuseWithSpare(ln *net.TCPListener) {
	s.spareMu.Lock()
	defer s.spareMu.Unlock()
	if s.spare != nil {
		_ = s.spare.Close()
		s.spare = nil
	}
	_ = ln.SetDeadline(time.Now().Add(time.Millisecond))
	for {
		nc, err := ln.AcceptTCP()
		if err != nil {
			break
		}
		_ = nc.Close()
		s.stats.refused.Add(1)
	}
	_ = ln.SetDeadline(time.Time{})
	s.openSpare()
}

// raiseDescriptorLimit sets the soft limit of descriptors to the hard one and returns what holds now.
func raiseDescriptorLimit(log *zap.Logger) int {
	const assumed = 1024
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		log.Warn("cannot read the limit of descriptors", zap.Error(err))
		return assumed
	}
	if lim.Cur < lim.Max {
		raised := syscall.Rlimit{Cur: lim.Max, Max: lim.Max}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
			log.Warn("cannot raise the limit of descriptors", zap.Uint64("from", lim.Cur), zap.Uint64("to", lim.Max), zap.Error(err))
		} else {
			lim = raised
		}
	}
	return int(min(lim.Cur, 1<<30))
}
