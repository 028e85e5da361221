package engine

import "errors"

// Errors of the package. Returned errors wrap them with the address and the request code they concern.
var (
	// ErrAddrInUse: another socket already listens on the address.
	ErrAddrInUse = errors.New("address already in use")
	// ErrServerClosed is the reason OnClose gets for connections that Shutdown closed.
	ErrServerClosed = errors.New("server closed")
	// ErrBadFrame: the bytes of a peer are no frame (length out of range, malformed header).
	ErrBadFrame = errors.New("bad frame")
	// ErrStalled: the peer took no byte for StallTimeout although output waited.
	ErrStalled = errors.New("peer takes no output")
	// ErrOutputLimit: more than HardOut bytes of output waited for the peer.
	ErrOutputLimit = errors.New("output limit exceeded")
	// ErrIdle: nothing was read from or written to the peer for IdleTimeout.
	ErrIdle = errors.New("idle connection")
	// ErrPanic: the handler panicked while it served the connection.
	ErrPanic = errors.New("handler panicked")

	// ErrTimeout: the answer did not come in time. The request may have been executed.
	ErrTimeout = errors.New("call timed out")
	// ErrUnreachable: no connection to the address could be made. The request was not sent.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrConnClosed: the connection broke before the answer came. The request may have been executed.
	ErrConnClosed = errors.New("connection closed")
	// ErrClientClosed: the Client was closed.
	ErrClientClosed = errors.New("client closed")
)
