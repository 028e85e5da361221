package bench

import (
	"context"
	"net"
	"runtime"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// maxNap bounds how long the pacer sleeps without looking whether the run has been stopped.
const maxNap = 20 * time.Millisecond

// pacedLoop sends by the clock: the writer's n-th message is due at offset + n·interval, and its round trip counts from then,
// however late it is written. One goroutine writes and one reads.
type pacedLoop struct {
	*link
	interval float64 // ns
	offset   float64
	next     int64      // number of the next message; lives on over sessions
	free     chan int32 // slots
	late     *hdr.Histogram
}

func (l *link) newPaced(links int) *pacedLoop {
	interval := float64(links) / l.Rate * 1e9
	return &pacedLoop{
		link: l, interval: interval, offset: interval * float64(l.id) / float64(links), late: newHistogram(),
	}
}

func (p *pacedLoop) run(ctx context.Context) error { return p.loop(ctx, p.over, p.session) }

// over: what was due in time may be sent late, as long as answers are waited for.
func (p *pacedLoop) over(ctx context.Context) bool {
	return p.due() >= p.to || p.link.over(ctx, p.to+int64(p.Drain))
}

// session runs on one connection until the run is over and all is answered (nil), or until the connection breaks.
func (p *pacedLoop) session(ctx context.Context, nc net.Conn) error {
	p.free = make(chan int32, p.Depth)
	for slot := range p.Depth {
		p.free <- int32(slot)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		written <- p.write(ctx, nc)
		nc.Close() // ends the reader
	}()
	readErr := p.read(nc)
	cancel()
	nc.Close()
	if err := <-written; err == nil {
		return nil
	}
	return readErr
}

// read takes answers until the connection ends.
func (p *pacedLoop) read(nc net.Conn) error {
	in := newFrameReader(nc)
	release := func(slot int32) { p.free <- slot }
	for {
		if err := in.fill(); err != nil {
			return err
		}
		if err := p.take(in, p.now(), release); err != nil {
			return err
		}
	}
}

// write sends what is due until the run is over, and waits for the last answers. An error means that it was broken off.
func (p *pacedLoop) write(ctx context.Context, nc net.Conn) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer preciseTimers()()
	for !p.over(ctx) {
		if p.due() > p.now() {
			if err := p.flush(nc); err != nil {
				return err
			}
			nap(p.due() - p.now())
			continue
		}
		if err := p.writeOne(ctx, nc); err != nil {
			return err
		}
	}
	if err := p.flush(nc); err != nil {
		return err
	}
	return p.collect(ctx)
}

// due is when the next message is to be written, in ns since the start; at least 1.
func (p *pacedLoop) due() int64 { return 1 + int64(p.offset+float64(p.next)*p.interval) }

func (p *pacedLoop) writeOne(ctx context.Context, nc net.Conn) error {
	slot, err := p.slot(ctx, nc)
	if err != nil || p.claim(1) == 0 {
		return err
	}
	due, now := p.due(), p.now()
	p.next++
	if p.has(due) {
		record(p.late, now-due)
	}
	p.born.set(p.start.UnixMilli() + now/1e6)
	p.put(slot, due)
	if len(p.out) < writeChunk {
		return nil
	}
	return p.flush(nc)
}

// slot waits until fewer than Depth messages are in flight.
func (p *pacedLoop) slot(ctx context.Context, nc net.Conn) (int32, error) {
	select {
	case s := <-p.free:
		return s, nil
	default:
	}
	if err := p.flush(nc); err != nil {
		return 0, err
	}
	select {
	case s := <-p.free:
		return s, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// collect waits until nothing is in flight.
func (p *pacedLoop) collect(ctx context.Context) error {
	for len(p.free) < p.Depth {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		nap(int64(time.Millisecond))
	}
	return nil
}

// unsent counts the messages that were due but could not be written before the run's end.
func (p *pacedLoop) unsent(ctx context.Context) {
	if ctx.Err() != nil || p.Messages > 0 {
		return
	}
	for ; p.due() < p.to; p.next++ {
		p.rec.fail(p.due(), NotSent, "the broker was too slow for the rate and the depth")
	}
}

// nap sleeps in the kernel: the runtime's timers are too coarse for microseconds.
func nap(ns int64) {
	ts := unix.NsecToTimespec(min(ns, int64(maxNap)))
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early, and the caller looks at the clock again
}

// preciseTimers lets this thread's sleeps end when they should and not up to 50 µs later; the returned function undoes it.
func preciseTimers() func() {
	slack := func(ns uintptr) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, ns, 0, 0, 0) } // a finer clock is a wish
	slack(1)
	return func() { slack(0) }
}
