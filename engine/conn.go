package engine

import (
	"net/netip"
	"sync"

	"github.com/panjf2000/gnet/v2"

	"tandem/codec"
)

// conn is the Conn on top of a gnet connection. It holds no buffer while nothing is on its way.
type conn struct {
	loop   *Loop
	gc     gnet.Conn // loop only, and only while !closed
	id     uint64
	remote netip.AddrPort
	local  netip.AddrPort

	ctx   any
	cause error // why the engine closes it

	out     []byte // this turn's output
	partial []byte // the received beginning of an unfinished frame
	need    int    // that frame's size once known, else 0

	sent     int64 // bytes given to the socket or queued for it, ever
	acked    int64 // of these taken by the peer, as of the last tick
	moved    int64 // when acked last grew (loop time)
	active   int64 // when something was last read or written (loop time, coarse)
	queued   int   // this connection's part of loop.queued
	inflight int
	at       int // in loop.conns
	waitAt   int // in loop.backlog, if backlogged

	touched    bool // in loop.touched
	backlogged bool // in loop.backlog
	closing    bool // Close was called: no more input, gone when the output is
	failed     bool // in loop.dying: no more input or output
	closed     bool
}

func (c *conn) ID() uint64                 { return c.id }
func (c *conn) RemoteAddr() netip.AddrPort { return c.remote }
func (c *conn) LocalAddr() netip.AddrPort  { return c.local }
func (c *conn) Loop() *Loop                { return c.loop }
func (c *conn) Context() any               { return c.ctx }
func (c *conn) SetContext(v any)           { c.ctx = v }
func (c *conn) Closed() bool               { return c.closed || c.failed }

func (c *conn) Begin() {
	c.inflight++
	if !c.closed {
		c.loop.inflight++
	}
}

func (c *conn) End() {
	if c.inflight == 0 {
		panic("engine: Conn.End without Begin")
	}
	c.inflight--
	if !c.closed {
		c.loop.inflight--
	}
}

func (c *conn) Post(frame []byte) {
	p := posts.Get().(*post)
	p.c, p.frame = c, frame
	c.loop.Post(p)
}

func (c *conn) Close() { c.loop.Post((*closer)(c)) }

// post is a frame on its way to the loop.
type post struct {
	c     *conn
	frame []byte
}

// posts recycles post; it holds no state that outlives a task.
var posts = sync.Pool{New: func() any { return new(post) }}

func (p *post) RunOnLoop(*Loop) {
	c, frame := p.c, p.frame
	*p = post{}
	posts.Put(p)
	if c.Closed() {
		return
	}
	out := c.Out()
	*out = append(*out, frame...)
}

// closer is the task form of a connection that is to be closed.
type closer conn

func (t *closer) RunOnLoop(*Loop) {
	c := (*conn)(t)
	if c.Closed() {
		return
	}
	c.closing = true
	c.flush()
	c.closeIfDrained()
}

// closeIfDrained ends a closing connection once no output waits for it.
func (c *conn) closeIfDrained() {
	if c.closing && !c.Closed() && c.pending() == 0 {
		c.die(nil)
	}
}

// fail closes the connection at the end of the turn and drops its output.
func (c *conn) fail(err error) {
	if c.Closed() {
		return
	}
	c.die(err)
}

func (c *conn) die(err error) {
	c.failed = true
	c.loop.dying = append(c.loop.dying, death{c, err})
}

// admit tells whether a request may go to the handler; if not, it has been answered or dropped.
func (c *conn) admit(v *codec.View) bool {
	l := c.loop
	if v.IsResponse() {
		return true
	}
	var why string
	switch {
	case l.srv.mute.Load():
		return false
	case l.srv.draining.Load():
		why = "[OVERLOAD]the server is shutting down, try another one"
	case c.inflight >= l.srv.o.MaxInFlight:
		why = "[OVERLOAD]too many requests of this connection wait for their answers"
	case c.backlogged && c.tooSlow() && !v.IsOneway():
		why = "[OVERLOAD]this connection does not take its answers fast enough"
	default:
		return true
	}
	if v.IsOneway() {
		l.srv.stats.droppedOneway.Add(1)
		return false
	}
	l.srv.stats.busy.Add(1)
	out := c.Out()
	*out = codec.AppendResponse(*out, v.Serialize, v.Opaque, codec.SystemBusy, why)
	return false
}

// tooSlow tells whether a connection with queued output is above the soft mark.
func (c *conn) tooSlow() bool {
	l := c.loop
	pending := c.pending()
	if pending == 0 {
		return false
	}
	return pending+len(c.out) > l.srv.o.SoftOut || l.queued > l.srv.totalOut
}
