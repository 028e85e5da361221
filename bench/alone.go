package bench

import (
	"context"
	"fmt"
	"net"
	"time"
)

// alone keeps one message of a link in flight: each answer is followed by the next message. It has a goroutine of its own and goes
// through Go's network just as [Ping] does, so that what both say can be compared.
type alone struct{ *link }

// run dials again after a broken connection, until all is sent. Its error is that of the first dial, or a broker's that does not
// speak the protocol.
func (a alone) run(ctx context.Context) error {
	for first := true; !a.over(ctx, a.now(), a.to); first = false {
		nc, release, err := a.connect(ctx)
		if err != nil && first {
			return err
		}
		if err == nil {
			err = a.session(ctx, nc)
			release()
			a.giveUp(err)
		}
		if hopeless(err) {
			return fmt.Errorf("broker %s: %w", a.addr, err)
		}
		if err == nil {
			return nil
		}
		pause(ctx, redialPause)
	}
	return nil
}

// connect dials and arranges that the connection ends with the context, and at the latest when answers are no longer waited for.
func (l *link) connect(ctx context.Context) (nc net.Conn, release func(), err error) {
	if nc, err = l.dial(ctx, l.addr); err != nil {
		return nil, nil, err
	}
	if err := nc.SetDeadline(l.start.Add(time.Duration(l.deadline()))); err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("broker %s: %w", l.addr, err)
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	ended := l.hurryOnStop(nc)
	return nc, func() { stop(); ended(); nc.Close() }, nil
}

// hurryOnStop brings a connection's deadline forward when the run is stopped. The returned function must be called once.
func (l *link) hurryOnStop(nc net.Conn) (ended func()) {
	if l.Stop == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-l.Stop:
			_ = nc.SetDeadline(l.start.Add(time.Duration(l.deadline()))) // it fails only on a closed connection
		case <-done:
		}
	}()
	return func() { close(done) }
}

// session runs on one connection until the run is over and all is answered (nil), or until the connection breaks.
func (a alone) session(ctx context.Context, nc net.Conn) error {
	in := newFrameReader(nc, a.Depth)
	now := a.now()
	for {
		if a.idle() {
			if a.over(ctx, now, a.to) || a.claim(1) == 0 {
				return nil
			}
			a.stampAt(now)
			a.put(now)
			if _, err := nc.Write(a.out); err != nil {
				return err
			}
			a.out = a.out[:0]
		}
		if err := in.fill(); err != nil {
			return err
		}
		now = a.now()
		if err := a.take(in, now); err != nil {
			return err
		}
	}
}
