package engine

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// All that knows gnet's life cycle is here. A gnet "client" is the engine without a listener: it takes connections that
// somebody else accepted, and serves them on its loops.

const readBuffer = 64 << 10

func (s *Server) startLoops() error {
	poller, err := gnet.NewClient(&events{srv: s},
		gnet.WithNumEventLoop(s.o.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithWriteBufferCap(queueChunk),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // the listener's connections have TCP_NODELAY already: no second system call
		gnet.WithLogger(pollerLog{s.o.Logger.Named("gnet").Sugar()}))
	if err != nil {
		return err
	}
	if err := poller.Start(); err != nil {
		return err
	}
	s.poller = poller
	if err := s.findLoops(); err != nil {
		_ = poller.Stop()
		return err
	}
	return nil
}

// findLoops makes a Loop for each of the poller's. These can be reached only by a connection on them, so each gets one half
// of a socket pair, open until all are known: the next one goes to the loop that has fewest.
func (s *Server) findLoops() error {
	var closers []net.Conn
	defer func() {
		for _, c := range closers {
			_ = c.Close()
		}
	}()
	for i := range s.o.Loops {
		a, b, err := socketPair()
		if err != nil {
			return err
		}
		closers = append(closers, b)
		l := newLoop(s, i)
		if _, err := s.poller.EnrollContext(a, l); err != nil {
			return err
		}
		for _, other := range s.loops {
			if other.exec == l.exec {
				return errors.New("two of them are one")
			}
		}
		s.loops = append(s.loops, l)
	}
	return nil
}

func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	files := [2]*os.File{os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair")}
	defer files[0].Close()
	defer files[1].Close()
	if a, err = net.FileConn(files[0]); err != nil {
		return nil, nil, err
	}
	if b, err = net.FileConn(files[1]); err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// events receives gnet's calls, all of them on the loop of the connection they concern. A connection's context is its *conn, a
// *guest, or a *Loop for the halves of the socket pairs.
type events struct {
	gnet.BuiltinEventEngine
	srv *Server
}

func (e *events) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	switch v := gc.Context().(type) {
	case *Loop:
		v.exec = gc.EventLoop()
	case *conn:
		v.gc = gc
		e.srv.loopOf(gc.EventLoop()).opened(v)
	case *guest:
		return nil, v.opened(e.srv.loopOf(gc.EventLoop()), gc)
	}
	return nil, gnet.None
}

func (e *events) OnTraffic(gc gnet.Conn) gnet.Action {
	b, err := gc.Next(-1) // all there is: nothing is ever left from an earlier read
	if err != nil {
		return gnet.Close
	}
	switch v := gc.Context().(type) {
	case *conn:
		v.loop.received(v, b)
	case *guest:
		return v.received(b)
	default:
		return gnet.Close
	}
	return gnet.None
}

func (e *events) OnClose(gc gnet.Conn, err error) gnet.Action {
	switch v := gc.Context().(type) {
	case *conn:
		v.loop.closed(v, err)
	case *guest:
		v.closed(err)
	}
	return gnet.None
}

func (s *Server) loopOf(el gnet.EventLoop) *Loop {
	for _, l := range s.loops {
		if l.exec == el {
			return l
		}
	}
	panic(fmt.Sprintf("engine: event loop %v is not of this server", el))
}

// pollerLog lets gnet's warnings and errors into our log. gnet's logger is one for the process: the last started server's.
type pollerLog struct{ log *zap.SugaredLogger }

func (pollerLog) Debugf(string, ...any)               {}
func (pollerLog) Infof(string, ...any)                {}
func (p pollerLog) Warnf(format string, args ...any)  { p.log.Warnf(format, args...) }
func (p pollerLog) Errorf(format string, args ...any) { p.log.Errorf(format, args...) }
func (p pollerLog) Fatalf(format string, args ...any) { p.log.Errorf(format, args...) }
