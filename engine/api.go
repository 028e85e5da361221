package engine

import (
	"net/netip"

	"tandem/codec"
)

// Handler is what a server does with its connections. Every method is called on the loop that owns the connection and
// must not block: the other connections of the loop wait meanwhile. A panic costs the connection it was raised for, never
// the process.
type Handler interface {
	// OnOpen is the first call for a connection.
	OnOpen(c Conn)
	// OnFrame hands in one whole, valid frame. v and every slice in it die when OnFrame returns: copy what must live on.
	OnFrame(c Conn, v *codec.View)
	// OnTurn ends a turn of the loop: after all frames of one read event (or all tasks of one batch) were handed in and
	// before the output is written. It is the place for work that a whole batch shares, such as one append section.
	OnTurn(l *Loop)
	// OnClose is the last call for a connection, once for each OnOpen. err is nil for an orderly close, io.EOF or a socket error
	// for the peer's, one of the package's errors for the engine's. It is never called from inside another callback of the loop.
	OnClose(c Conn, err error)
}

// WriteWatcher is what a Handler may be besides. It is looked for once, when the server starts.
type WriteWatcher interface {
	// OnWritten follows OnTurn when the turn's output was written: what the sockets took is out, the rest is queued in order.
	// It must not write anything.
	OnWritten(l *Loop)
}

// Conn is one connection of a server. "Loop only" methods may be called from the Handler's methods and from a
// Task's RunOnLoop for connections of that very loop, and from nowhere else; the others are safe from any goroutine.
type Conn interface {
	// ID is unique within the process's server, never reused.
	ID() uint64
	// RemoteAddr and LocalAddr are the two ends, IPv4 addresses unmapped. Valid after the close, too. LocalAddr has the port of
	// the listener the connection came in by.
	RemoteAddr() netip.AddrPort
	LocalAddr() netip.AddrPort
	// Loop owns the connection, for its whole life.
	Loop() *Loop
	// Context is the handler's own state. Loop only.
	Context() any
	// SetContext sets it. Loop only.
	SetContext(v any)
	// Out is the output of this turn: append whole frames to it. The engine writes it once, at the end of the turn.
	// The pointer is good until the callback returns. On a closed connection what is appended is dropped. Loop only.
	Out() *[]byte
	// WriteVec sends what Out holds so far, then head, then the slices of body, without joining them. What the socket does not
	// take at once is copied: head and body are the caller's again when WriteVec returns. Body is not changed. A vector of a few
	// kilobytes joins Out instead, which is cheaper than a write of its own. Loop only.
	WriteVec(head []byte, body [][]byte)
	// Closed tells whether the connection is gone. Loop only.
	Closed() bool
	// Begin says that an answer is owed and comes in a later turn; it counts against MaxInFlight and Shutdown waits for it.
	// Loop only.
	Begin()
	// End says that one owed answer was given (or given up), once for each Begin, also after a close. Loop only.
	End()
	// Post appends a whole frame to the output from any goroutine. The engine owns frame from here on. Dropped if the
	// connection is closed.
	Post(frame []byte)
	// Close closes the connection after the output given so far was taken by the socket (or StallTimeout passed), from any
	// goroutine; OnClose follows on the loop. Further closes are harmless.
	Close()
}

// Task is work for a loop: a pooled pointer, so that posting it allocates nothing. RunOnLoop is called exactly once.
type Task interface {
	RunOnLoop(l *Loop)
}
