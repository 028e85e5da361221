package engine

import (
	"fmt"
	"net"
	"runtime/debug"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"

	"tandem/codec"
)

// Guest is one connection of another protocol that shares a server's loops: replication, whose reports complete answers that
// wait on those very loops. What it posts to its loop while it is called runs in the same turn, without a wake-up. All methods are called on
// the loop and must not block. A panic costs the connection.
type Guest interface {
	// OnOpen is the first call. An error closes the connection; OnClose follows with it.
	OnOpen(s Socket) error
	// OnData hands in what came, in any cut. b dies on return. An error closes the connection.
	OnData(b []byte) error
	// OnClose is the last call, before the descriptor is closed. err is nil or io.EOF for an orderly close.
	OnClose(err error)
}

// Socket is a guest's connection. Dup and Fd may be called on the loop only, until OnClose has returned; Close from any goroutine, before OnClose
// has returned. The server writes nothing to it: the guest does, by a descriptor of its own.
type Socket interface {
	Dup() (fd int, err error)
	Fd() int
	RemoteAddr() net.Addr
	Close() error
}

// NewHost starts loops for guests alone: a server that listens nowhere. Options.Addrs is not used.
func NewHost(o Options) (*Server, error) {
	o = o.withDefaults()
	return start(o, noHandler{})
}

// Host serves a connection that somebody else accepted, from any goroutine but a loop's. It owns nc, also if it fails.
func (s *Server) Host(nc net.Conn, g Guest) error {
	if _, err := s.poller.EnrollContext(nc, &guest{g: g}); err != nil {
		return fmt.Errorf("engine: handing a connection to the loops of %s: %w", s.o.Name, err)
	}
	return nil
}

// guest is a Guest's connection as the poller knows it.
type guest struct {
	g     Guest
	loop  *Loop
	cause error // why this side closes it
}

func (v *guest) opened(l *Loop, gc gnet.Conn) gnet.Action {
	v.loop = l
	return v.call(func() error { return v.g.OnOpen(gc) })
}

func (v *guest) received(b []byte) gnet.Action {
	v.loop.enter()
	action := v.data(b)
	v.loop.endTurn(nil)
	v.loop.leave()
	return action
}

func (v *guest) data(b []byte) (action gnet.Action) {
	defer v.rescue(&action)
	if err := v.g.OnData(b); err != nil {
		v.cause = err
		return gnet.Close
	}
	return gnet.None
}

func (v *guest) closed(err error) {
	if v.cause != nil {
		err = v.cause
	}
	v.call(func() error { v.g.OnClose(err); return nil })
}

func (v *guest) call(f func() error) (action gnet.Action) {
	defer v.rescue(&action)
	if err := f(); err != nil {
		v.cause = err
		return gnet.Close
	}
	return gnet.None
}

func (v *guest) rescue(action *gnet.Action) {
	p := recover()
	if p == nil {
		return
	}
	s := v.loop.srv
	s.stats.panics.Add(1)
	s.o.Logger.Error("a guest of the loop panicked", zap.String("server", s.o.Name), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	v.cause = ErrPanic
	*action = gnet.Close
}

// noHandler is the handler of a server without listeners: it has no connections of its own.
type noHandler struct{}

func (noHandler) OnOpen(Conn)               {}
func (noHandler) OnFrame(Conn, *codec.View) {}
func (noHandler) OnTurn(*Loop)              {}
func (noHandler) OnClose(Conn, error)       {}
