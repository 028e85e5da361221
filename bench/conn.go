package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"tandem/codec"
)

const (
	writeChunk  = 128 << 10 // bytes of new messages that are written at once
	dialTimeout = 3 * time.Second
	redialPause = 50 * time.Millisecond
)

var errProtocol = errors.New("unexpected answer")

// run is what all connections of one Send share.
type run struct {
	SendOptions
	window
	frames   []*frame // one per queue
	start    time.Time
	left     atomic.Int64 // messages that may still be started
	answered atomic.Int64
	course   *course // nil unless asked for
}

// now is the time since the start in nanoseconds.
func (r *run) now() int64 { return int64(time.Since(r.start)) }

// claim takes up to n of the messages that may still be started.
func (r *run) claim(n int) int {
	if r.Messages == 0 {
		return n
	}
	left := r.left.Add(-int64(n))
	return max(0, n+int(min(0, left)))
}

// link is one connection's state over the whole run; its network connection is made anew when it breaks.
type link struct {
	*run
	addr string
	id   int
	rec  *recorder
	sent []atomic.Int64 // by slot: when the message in flight was sent (or due), in ns since the start; 0 is none
	born stamp
	seq  uint32
	out  []byte
	view codec.View
}

func newLink(r *run, addr string, id int) *link {
	return &link{
		run: r, addr: addr, id: id, rec: newRecorder(r.window, r.course),
		sent: make([]atomic.Int64, r.Depth), seq: uint32(id) << 26,
	}
}

// dial connects and arranges that the connection ends with the context, and at the latest when the run is over.
func (l *link) dial(ctx context.Context) (nc net.Conn, release func(), err error) {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err = d.DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return nil, nil, fmt.Errorf("broker %s: %w", l.addr, err)
	}
	if err := nc.SetDeadline(l.start.Add(time.Duration(l.to) + l.Drain)); err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("broker %s: %w", l.addr, err)
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	return nc, func() { stop(); nc.Close() }, nil
}

// put appends the message for a free slot to the output. sent is its time for the round trip, never 0.
func (l *link) put(slot int32, sent int64) {
	l.seq++
	l.sent[slot].Store(sent)
	l.out = l.frames[int(l.seq)%len(l.frames)].append(l.out, slot, &l.born, l.seq)
}

func (l *link) flush(nc net.Conn) error {
	if len(l.out) == 0 {
		return nil
	}
	_, err := nc.Write(l.out)
	l.out = l.out[:0]
	return err
}

// take records every whole answer that was read, and hands its slot to free.
func (l *link) take(in *frameReader, now int64, free func(slot int32)) error {
	n := int64(0)
	for {
		b, err := in.next()
		if b == nil || err != nil {
			l.answered.Add(n)
			return err
		}
		if err := l.view.Parse(b); err != nil {
			return err
		}
		if !l.view.IsResponse() {
			continue // a broker's own request to its clients
		}
		slot, ok := slotOf(l.view.Opaque, len(l.sent))
		sent := int64(0)
		if ok {
			sent = l.sent[slot].Swap(0)
		}
		if sent == 0 {
			return fmt.Errorf("%w: opaque %d is of no request in flight", errProtocol, l.view.Opaque)
		}
		l.rec.answer(&l.view, sent, now)
		free(slot)
		n++
	}
}

// giveUp counts what is in flight as unanswered.
func (l *link) giveUp(cause error) {
	name := ConnectionLost
	if errors.Is(cause, os.ErrDeadlineExceeded) {
		name = NoAnswer
	}
	if cause == nil {
		cause = errors.New("the run was stopped")
	}
	for i := range l.sent {
		if sent := l.sent[i].Swap(0); sent != 0 {
			l.rec.fail(sent, name, cause.Error())
		}
	}
	l.out = l.out[:0]
}

// loop runs sessions until all is sent: a broken connection is dialled again. Its error is that of the first dial, or a
// broker's that does not speak the protocol.
func (l *link) loop(ctx context.Context, over func(context.Context) bool, session func(context.Context, net.Conn) error) error {
	for first := true; !over(ctx); first = false {
		nc, release, err := l.dial(ctx)
		if err != nil && first {
			return err
		}
		if err == nil {
			err = session(ctx, nc)
			release()
			l.giveUp(err)
		}
		if errors.Is(err, errProtocol) || errors.Is(err, codec.ErrFrame) {
			return fmt.Errorf("broker %s: %w", l.addr, err)
		}
		if err == nil {
			return nil
		}
		pause(ctx, redialPause)
	}
	return nil
}

// over tells whether no further message may be sent: the context has ended, the time until end is up, or the number of
// messages is reached.
func (l *link) over(ctx context.Context, end int64) bool {
	return ctx.Err() != nil || l.now() >= end || (l.Messages > 0 && l.left.Load() <= 0)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
