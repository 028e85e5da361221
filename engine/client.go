package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
)

// ClientOptions of a Client. The zero value of a field means its default.
type ClientOptions struct {
	// DialTimeout bounds the making of a connection; default 3 s.
	DialTimeout time.Duration
	// CallTimeout bounds a Call or Oneway whose context has no deadline, dialling included; default 3 s.
	CallTimeout time.Duration
	// IdleTimeout is how long a connection may be silent in both directions before the client closes it; default 100 s, a
	// little less than the servers'.
	IdleTimeout time.Duration
	// MaxFrame is the largest accepted value of a frame's length field, in bytes; default codec.MaxFrameSize.
	MaxFrame int
	// OnRequest answers requests that come from the other side; nil answers them REQUEST_CODE_NOT_SUPPORTED. It runs on the
	// connection's reader, which reads nothing meanwhile: it must not block or call the same address. What it returns is sent
	// with the request's opaque, unless it is nil or the request is one-way. req is the callee's to keep.
	OnRequest func(addr string, req *codec.Command) *codec.Command
	// Logger; nil logs nothing.
	Logger *zap.Logger
}

const (
	defaultDialTimeout = 3 * time.Second
	defaultCallTimeout = 3 * time.Second
	defaultClientIdle  = 100 * time.Second
)

func (o ClientOptions) withDefaults() ClientOptions {
	orDuration(&o.DialTimeout, defaultDialTimeout)
	orDuration(&o.CallTimeout, defaultCallTimeout)
	orDuration(&o.IdleTimeout, defaultClientIdle)
	orInt(&o.MaxFrame, codec.MaxFrameSize)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func orDuration(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}

// Client calls servers: one long connection per address, dialled at the first call and again at the next call after it broke
// or was closed for idleness. Calls on a connection are pipelined and matched by opaque. All methods are safe from any
// goroutine; a peer that hangs delays only the calls to it. A call whose time ends while the peer has taken half its frame ends
// the connection, and so the other calls on it.
type Client struct {
	o      ClientOptions
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // dialers and readers

	mu     sync.Mutex
	closed bool
	links  map[string]*link
}

// NewClient makes a client; it dials nothing yet.
func NewClient(o ClientOptions) *Client {
	c := &Client{o: o.withDefaults(), links: map[string]*link{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Call sends a request and waits for its response, whatever the code of that is. req is not changed and may be shared by calls;
// its opaque is replaced on the wire. The response is the caller's. Errors, wrapped with address and code: ErrTimeout
// (also wraps the context's error), ErrUnreachable, ErrConnClosed, ErrClientClosed.
func (c *Client) Call(ctx context.Context, addr string, req *codec.Command) (*codec.Command, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	resp, err := c.call(ctx, addr, req)
	if err != nil {
		return nil, fmt.Errorf("engine: request %d to %s: %w", req.Code, addr, err)
	}
	return resp, nil
}

// Oneway sends a request that is not answered: nil means that it was given to the system, not that it arrived. Errors as
// with Call.
func (c *Client) Oneway(ctx context.Context, addr string, req *codec.Command) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	cmd := *req
	cmd.MarkOneway()
	err := c.send(ctx, addr, func(l *link) error { return l.write(ctx, &cmd) })
	if err != nil {
		return fmt.Errorf("engine: one-way request %d to %s: %w", req.Code, addr, err)
	}
	return nil
}

// CloseAddr closes the connection to an address, if there is one. Calls that wait on it get ErrConnClosed.
func (c *Client) CloseAddr(addr string) {
	c.mu.Lock()
	l := c.links[addr]
	delete(c.links, addr)
	c.mu.Unlock()
	if l != nil {
		l.fail(fmt.Errorf("%w by this side", ErrConnClosed))
	}
}

// Close closes all connections, ends the calls that wait with ErrClientClosed and returns when no goroutine is left.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	links := c.links
	c.links = map[string]*link{}
	c.mu.Unlock()
	c.cancel()
	for _, l := range links {
		l.fail(ErrClientClosed)
	}
	c.tasks.Wait()
}

func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.o.CallTimeout)
}

func (c *Client) call(ctx context.Context, addr string, req *codec.Command) (*codec.Command, error) {
	var w *waiter
	err := c.send(ctx, addr, func(l *link) (err error) {
		w, err = l.request(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

// send gets a connection and uses it; one that turns out to be gone before anything was sent is replaced once.
func (c *Client) send(ctx context.Context, addr string, use func(*link) error) error {
	for attempt := 0; ; attempt++ {
		l, err := c.link(ctx, addr)
		if err != nil {
			return err
		}
		err = use(l)
		if attempt > 0 || !errors.Is(err, errNotSent) {
			return err
		}
	}
}

// link returns the ready connection to addr, dialling it if need be.
func (c *Client) link(ctx context.Context, addr string) (*link, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClientClosed
	}
	l := c.links[addr]
	if l == nil {
		l = newLink(c, addr)
		c.links[addr] = l
		c.tasks.Go(l.run)
	}
	c.mu.Unlock()

	select {
	case <-l.dialled:
		return l, l.dialErr
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: still dialling: %w", ErrUnreachable, timeoutOf(ctx))
	}
}

// forget drops a broken connection, so that the next call dials anew.
func (c *Client) forget(l *link) {
	c.mu.Lock()
	if c.links[l.addr] == l {
		delete(c.links, l.addr)
	}
	c.mu.Unlock()
}

func (c *Client) dial(addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: c.o.DialTimeout, KeepAlive: keepAlive}
	nc, err := d.DialContext(c.ctx, "tcp", addr)
	if err == nil {
		return nc, nil
	}
	if c.ctx.Err() != nil {
		return nil, ErrClientClosed
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// timeoutOf is the error for a context that ended: ErrTimeout with its own error, or that alone if it was cancelled.
func timeoutOf(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
	return ctx.Err()
}
