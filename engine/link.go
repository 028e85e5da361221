package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
)

// link is one connection of a Client, from the dial to its end. One goroutine, run, dials and then reads; callers write.
type link struct {
	client  *Client
	addr    string
	dialled chan struct{} // closed when nc or dialErr is set
	dialErr error
	nc      net.Conn

	writing chan struct{} // holds the one right to write
	buf     []byte        // the writer's

	mu      sync.Mutex
	broken  error // set once
	opaque  int32
	waiters map[int32]*waiter
	active  time.Time
}

// errNotSent marks failures before the first byte of a request was sent: trying again on a new connection is safe.
var errNotSent = errors.New("nothing was sent")

const (
	linkReadBuffer = 16 << 10
	keptWriteBuf   = 64 << 10
	// frameTimeout bounds the wait for the rest of a frame that has begun.
	frameTimeout = 30 * time.Second
)

func newLink(c *Client, addr string) *link {
	return &link{
		client: c, addr: addr, dialled: make(chan struct{}), writing: make(chan struct{}, 1), waiters: map[int32]*waiter{},
	}
}

func (l *link) run() {
	nc, err := l.client.dial(l.addr)
	if err != nil {
		l.dialErr = err
		l.client.forget(l)
		close(l.dialled)
		return
	}
	l.nc = nc
	l.touch()
	close(l.dialled)
	if l.brokenBy() == nil { // else it was closed while it was dialled
		l.fail(l.read())
	}
	_ = nc.Close()
}

// fail ends the connection for the given reason. Only the first counts.
func (l *link) fail(err error) {
	l.client.forget(l)
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return
	}
	l.broken = err
	waiters := l.waiters
	l.waiters = nil
	l.mu.Unlock()

	select {
	case <-l.dialled:
		if l.nc != nil {
			_ = l.nc.Close() // ends the reader
		}
	default: // run sees broken
	}
	for _, w := range waiters {
		w.done <- result{err: err}
	}
	if !errors.Is(err, ErrClientClosed) {
		l.client.o.Logger.Debug("connection ended", zap.String("addr", l.addr), zap.Error(err))
	}
}

func (l *link) brokenBy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

func (l *link) touch() {
	now := time.Now()
	l.mu.Lock()
	l.active = now
	l.mu.Unlock()
}

type result struct {
	resp *codec.Command
	err  error
}

// waiter is a call that waits for its response.
type waiter struct {
	link   *link
	opaque int32
	done   chan result // room for the one result
}

func (w *waiter) wait(ctx context.Context) (*codec.Command, error) {
	select {
	case r := <-w.done:
		return r.resp, r.err
	case <-ctx.Done():
	}
	w.link.withdraw(w.opaque)
	select {
	case r := <-w.done: // it came just then
		return r.resp, r.err
	default:
		return nil, timeoutOf(ctx)
	}
}

// request sends a request and returns the waiter for its response.
func (l *link) request(ctx context.Context, req *codec.Command) (*waiter, error) {
	w := &waiter{link: l, done: make(chan result, 1)}
	l.mu.Lock()
	if err := l.broken; err != nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	l.opaque++
	w.opaque = l.opaque
	l.waiters[w.opaque] = w
	l.mu.Unlock()

	cmd := *req
	cmd.Opaque = w.opaque
	if err := l.write(ctx, &cmd); err != nil {
		l.withdraw(w.opaque)
		return nil, err
	}
	return w, nil
}

func (l *link) withdraw(opaque int32) {
	l.mu.Lock()
	delete(l.waiters, opaque)
	l.mu.Unlock()
}

// write sends one command, waiting for its turn and for the socket as long as ctx allows.
func (l *link) write(ctx context.Context, cmd *codec.Command) error {
	select {
	case l.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting to write: %w", timeoutOf(ctx))
	}
	defer func() { <-l.writing }()

	l.buf = codec.AppendFrame(l.buf[:0], cmd)
	deadline, _ := ctx.Deadline()
	_ = l.nc.SetWriteDeadline(deadline)
	n, err := l.nc.Write(l.buf)
	if cap(l.buf) > keptWriteBuf {
		l.buf = nil
	}
	switch {
	case err == nil:
		l.touch()
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if n > 0 { // the frame is cut: nothing can follow it
			l.fail(fmt.Errorf("%w: the peer does not read", ErrConnClosed))
		}
		return fmt.Errorf("%w: the peer does not read", ErrTimeout)
	default:
		err = fmt.Errorf("%w: %w", ErrConnClosed, err)
		l.fail(err)
		if cause := l.brokenBy(); errors.Is(cause, ErrClientClosed) {
			err = cause
		}
		if n == 0 {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
		return err
	}
}

// read serves the connection's input until it ends, and returns why.
func (l *link) read() error {
	r := bufio.NewReaderSize(l.nc, linkReadBuffer)
	for {
		frame, err := l.readFrame(r)
		if err != nil {
			return err
		}
		l.touch()
		cmd, err := codec.DecodeFrame(frame)
		if err != nil {
			return fmt.Errorf("%w: %w: %w", ErrConnClosed, ErrBadFrame, err)
		}
		if cmd.IsResponse() {
			l.deliver(&cmd)
		} else {
			l.answer(&cmd)
		}
	}
}

func (l *link) readFrame(r *bufio.Reader) ([]byte, error) {
	if r.Buffered() == 0 {
		if err := l.awaitInput(r); err != nil {
			return nil, err
		}
	}
	l.allowTimeFor(r, lengthSize)
	var length [lengthSize]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnClosed, err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < prefixSize-lengthSize || n > uint32(l.client.o.MaxFrame) {
		return nil, fmt.Errorf("%w: %w: length field is %d, must be %d..%d", ErrConnClosed, ErrBadFrame, n,
			prefixSize-lengthSize, l.client.o.MaxFrame)
	}
	frame := make([]byte, lengthSize+int(n))
	copy(frame, length[:])
	l.allowTimeFor(r, int(n))
	if _, err := io.ReadFull(r, frame[lengthSize:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConnClosed, err)
	}
	return frame, nil
}

// allowTimeFor sets the time limit for n bytes of a frame, if they are not here already.
func (l *link) allowTimeFor(r *bufio.Reader, n int) {
	if r.Buffered() < n {
		_ = l.nc.SetReadDeadline(time.Now().Add(frameTimeout))
	}
}

// awaitInput waits for the next byte, or ends the connection when it has been idle for too long.
func (l *link) awaitInput(r *bufio.Reader) error {
	for {
		l.mu.Lock()
		until := l.active.Add(l.client.o.IdleTimeout)
		l.mu.Unlock()
		_ = l.nc.SetReadDeadline(until)
		_, err := r.Peek(1)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: %w", ErrConnClosed, err)
		}
		if l.closeIdle() {
			return fmt.Errorf("%w: %w", ErrConnClosed, ErrIdle)
		}
	}
}

// closeIdle breaks the connection if it is still idle, so that no call can come to it any more.
func (l *link) closeIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.active) < l.client.o.IdleTimeout {
		return false
	}
	if l.broken == nil && len(l.waiters) > 0 { // their time limits are the callers' business
		l.active = time.Now()
		return false
	}
	if l.broken == nil {
		l.broken = fmt.Errorf("%w: %w", ErrConnClosed, ErrIdle)
	}
	return true
}

func (l *link) deliver(resp *codec.Command) {
	l.mu.Lock()
	w := l.waiters[resp.Opaque]
	delete(l.waiters, resp.Opaque)
	l.mu.Unlock()
	if w != nil { // else its caller has given up
		w.done <- result{resp: resp}
	}
}

// answer serves a request of the other side.
func (l *link) answer(req *codec.Command) {
	var resp *codec.Command
	if l.client.o.OnRequest != nil {
		resp = l.client.o.OnRequest(l.addr, req)
	} else {
		resp = codec.NewRequest(codec.RequestCodeNotSupported, nil, nil)
		resp.Remark = fmt.Sprintf(" request type %d not supported", req.Code)
		resp.Serialize = req.Serialize
	}
	if resp == nil || req.IsOneway() {
		return
	}
	cmd := *resp
	cmd.Opaque = req.Opaque
	cmd.MarkResponse()
	ctx, cancel := context.WithTimeout(l.client.ctx, l.client.o.CallTimeout)
	defer cancel()
	if err := l.write(ctx, &cmd); err != nil {
		l.client.o.Logger.Debug("a request of the peer was not answered", zap.String("addr", l.addr), zap.Error(err))
	}
}
