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
	refused  atomic.Bool
	halt     atomic.Int64 // when the run was found stopped, in ns since the start; 0: it is not
}

// now is the time since the start in nanoseconds.
func (r *run) now() int64 { return int64(time.Since(r.start)) }

// deadline is when answers are no longer waited for, in ns since the start.
func (r *run) deadline() int64 {
	if r.stopped() {
		return min(r.to, r.halt.Load()) + int64(r.Drain)
	}
	return r.to + int64(r.Drain)
}

// claim takes up to n of the messages that may still be started.
func (r *run) claim(n int) int {
	if r.Messages == 0 {
		return n
	}
	left := r.left.Add(-int64(n))
	return max(0, n+int(min(0, left)))
}

// stopped tells whether the sending has ended early: Stop is closed, or a strict run had a message that was not acknowledged.
func (r *run) stopped() bool {
	if r.halt.Load() != 0 {
		return true
	}
	select {
	case <-r.Stop:
	default:
		if !r.Strict || !r.refused.Load() {
			return false
		}
	}
	r.halt.CompareAndSwap(0, max(1, r.now()))
	return true
}

// over tells whether no further message may be sent at now: the context has ended, the run is stopped, the time until end is up, or
// the number of messages is reached.
func (r *run) over(ctx context.Context, now, end int64) bool {
	return now >= end || (r.Messages > 0 && r.left.Load() <= 0) || ctx.Err() != nil || r.stopped()
}

// link is one connection's state over the whole run; its network connection is made anew when it breaks. It belongs to the
// goroutine that moves the connection's bytes.
type link struct {
	*run
	addr  string
	rec   *recorder
	sent  []int64 // by slot: when the message in flight was sent (or due), in ns since the start; 0 is none
	free  []int32 // slots without a message in flight
	born  stamp
	seq   uint32
	out   []byte // not yet written
	shape answerShape
	view  codec.View
}

func newLink(r *run, addr string, id int) *link {
	l := &link{
		run: r, addr: addr, rec: newRecorder(r.window, r.course),
		sent: make([]int64, r.Depth), free: make([]int32, 0, r.Depth), seq: uint32(id) << 26,
	}
	l.freeAll()
	return l
}

func (l *link) freeAll() {
	l.free = l.free[:0]
	for slot := range l.Depth {
		l.free = append(l.free, int32(slot))
	}
}

// idle tells whether nothing is in flight.
func (l *link) idle() bool { return len(l.free) == l.Depth }

func (r *run) dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	return nc, nil
}

// put appends the message for a free slot to the output. sent is its time for the round trip, never 0.
func (l *link) put(sent int64) {
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.seq++
	l.sent[slot] = sent
	l.out = l.frames[int(l.seq)%len(l.frames)].append(l.out, slot, &l.born, l.seq)
}

// stampAt sets the time that the next messages bear.
func (l *link) stampAt(now int64) { l.born.set(l.start.UnixMilli() + now/1e6) }

// take records every whole answer that was read and frees its slot. All came at now.
func (l *link) take(in *frameReader, now int64) (err error) {
	var same batch // answers in a row often are to messages that left together
	n := int64(0)
	for {
		var frame []byte
		if frame, err = in.next(); frame == nil || err != nil {
			break
		}
		opaque, ok := l.shape.success(frame)
		if !ok {
			if err = l.view.Parse(frame); err != nil {
				break
			}
			if !l.view.IsResponse() {
				continue // a broker's own request to its clients
			}
			opaque = l.view.Opaque
		}
		var sent int64
		if sent, err = l.release(opaque); err != nil {
			break
		}
		n++
		switch {
		case !ok && l.view.Code != codec.Success:
			l.rec.refused(&l.view, sent)
			l.run.refused.Store(true)
		case sent == same.sent:
			same.n++
		default:
			l.rec.successes(same, now)
			same = batch{sent, 1}
		}
	}
	l.rec.successes(same, now)
	l.answered.Add(n)
	return err
}

// release frees the slot that an answer's opaque names and returns when its message was sent.
func (l *link) release(opaque int32) (sent int64, err error) {
	slot := opaque - opaqueBase
	if slot < 0 || int(slot) >= len(l.sent) || l.sent[slot] == 0 {
		return 0, fmt.Errorf("%w: opaque %d is of no request in flight", errProtocol, opaque)
	}
	sent, l.sent[slot] = l.sent[slot], 0
	l.free = append(l.free, slot)
	return sent, nil
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
	for i, sent := range l.sent {
		if sent != 0 {
			l.rec.fail(sent, name, cause.Error())
			l.run.refused.Store(true)
			l.sent[i] = 0
		}
	}
	l.freeAll()
	l.out = l.out[:0]
}

// hopeless tells whether err says that the peer does not speak the protocol, so that to dial it again is of no use.
func hopeless(err error) bool { return errors.Is(err, errProtocol) || errors.Is(err, codec.ErrFrame) }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
