package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// longestWait bounds how long a driver sleeps without looking whether the run has been stopped.
const longestWait = 20 * time.Millisecond

// driver moves the bytes of all connections of a run, on one goroutine: one read for each burst of answers,
// one write for each burst of messages, and one wait for all. Without a pace each burst of answers makes room for as many new
// messages at once.
type driver struct {
	*run
	lines   []*line
	poll    *poller
	pace    *pace // nil: as fast as it goes
	dialled chan dialled
	lost    int // lines without a connection
	dialing int // goroutines that dial
}

// line is a link with its connection.
type line struct {
	*link
	id      int
	sock    *socket // nil while there is none
	in      *frameReader
	blocked bool  // out waits for room
	again   int64 // when to dial again, in ns since the start; 0: not
}

// dialled is what came of dialling again.
type dialled struct {
	line *line
	conn net.Conn
	err  error
}

// newDriver connects all links. Its error is that of the first one that cannot be reached.
func newDriver(ctx context.Context, r *run, links []*link) (d *driver, err error) {
	d = &driver{run: r, dialled: make(chan dialled, len(links))}
	if r.Rate > 0 {
		d.pace = newPace(r.Rate, r.Tick)
	}
	if d.poll, err = newPoller(); err != nil {
		return nil, err
	}
	for i, l := range links {
		ln := &line{link: l, id: i}
		d.lines = append(d.lines, ln)
		nc, err := r.dial(ctx, l.addr)
		if err == nil {
			err = d.attach(ln, nc)
		}
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

func (d *driver) attach(l *line, nc net.Conn) (err error) {
	if l.sock, err = takeSocket(nc); err != nil {
		return fmt.Errorf("broker %s: %w", l.addr, err)
	}
	l.in, l.blocked = newFrameReader(l.sock, d.Depth), false
	return d.poll.add(l.sock, l.id)
}

// Close closes all connections.
func (d *driver) Close() error {
	errs := []error{}
	for ; d.dialing > 0; d.dialing-- {
		if r := <-d.dialled; r.err == nil {
			errs = append(errs, r.conn.Close())
		}
	}
	for _, l := range d.lines {
		if l.sock != nil {
			errs = append(errs, l.sock.Close())
			l.sock = nil
		}
	}
	return errors.Join(append(errs, d.poll.Close())...)
}

// drive runs until all is sent and answered, or answers are no longer waited for, or the context ends. Its error says that a peer does
// not speak the protocol, or that this machine refuses a service.
func (d *driver) drive(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, d.Close())
	}()
	for now := d.now(); !d.finished(ctx, now); now = d.now() {
		if err := d.turn(ctx, now); err != nil {
			return err
		}
	}
	left := ctx.Err()
	if left == nil {
		left = os.ErrDeadlineExceeded
	}
	for _, l := range d.lines {
		l.giveUp(left)
	}
	return nil
}

func (d *driver) finished(ctx context.Context, now int64) bool {
	if ctx.Err() != nil || now >= d.deadline() {
		return true
	}
	if !d.allSent(ctx, now) {
		return false
	}
	return !slices.ContainsFunc(d.lines, func(l *line) bool { return !l.idle() })
}

// allSent tells whether no further message will leave. With a pace, what was due in time may leave late.
func (d *driver) allSent(ctx context.Context, now int64) bool {
	if d.pace == nil {
		return d.over(ctx, now, d.to)
	}
	return d.pace.due() >= d.to || d.over(ctx, now, d.deadline())
}

// turn sends what may be sent, waits, and takes the answers that came.
func (d *driver) turn(ctx context.Context, now int64) error {
	if !d.allSent(ctx, now) {
		if err := d.send(now); err != nil {
			return err
		}
	}
	ready, err := d.poll.wait(longestWait.Milliseconds())
	if err != nil {
		return err
	}
	for _, ev := range ready {
		if ev.Fd == timerID {
			continue
		}
		l := d.lines[ev.Fd]
		err := d.serve(ctx, l, ev.Events)
		if hopeless(err) {
			return fmt.Errorf("broker %s: %w", l.addr, err)
		}
		if err != nil {
			d.broken(l, err)
		}
	}
	return d.reconnect(ctx)
}

// send sends what may be sent, and with a pace sets the alarm for the next time.
func (d *driver) send(now int64) error {
	if d.pace != nil {
		return d.sendDue(now)
	}
	for _, l := range d.lines {
		if len(l.free) > 0 {
			d.refill(l, now)
		}
	}
	return nil
}

// refill sends one message for each free slot.
func (d *driver) refill(l *line, now int64) {
	for l.ready() {
		n := d.claim(min(len(l.free), d.burst()))
		if n == 0 {
			return
		}
		l.stampAt(now)
		for range n {
			l.put(now)
		}
		d.flush(l)
		now = d.now()
	}
}

// burst is how many messages are written at once.
func (r *run) burst() int { return max(1, writeChunk/r.frames[0].size()) }

// ready tells whether a message may be put on the line.
func (l *line) ready() bool { return l.sock != nil && !l.blocked && len(l.free) > 0 }

// sendDue sends what is due by now. The messages of one time go over the same line, those of the next time over the next one.
func (d *driver) sendDue(now int64) error {
	due := d.pace.due()
	for ; due <= now && due < d.to; due = d.pace.due() {
		l := d.nextReady(int(d.pace.burst))
		if l == nil {
			return nil // an answer, or room, ends that
		}
		if d.fill(l, due, now) == 0 {
			return nil
		}
		d.flush(l)
		now = d.now()
	}
	if due >= d.to {
		return nil
	}
	return d.poll.alarm(due, now)
}

// fill puts messages that are due at a time on a line, as many as there are, or as it takes, and returns their number.
func (d *driver) fill(l *line, due, now int64) (n int) {
	l.stampAt(now)
	for most := min(d.burst(), len(l.free)); n < most && d.pace.due() == due && d.claim(1) == 1; n++ {
		l.put(due)
		d.pace.written(d.window, now)
	}
	return n
}

// nextReady is the n-th line or the first one after it that takes a message; nil if none does.
func (d *driver) nextReady(n int) *line {
	for i := range d.lines {
		if l := d.lines[(n+i)%len(d.lines)]; l.ready() {
			return l
		}
	}
	return nil
}

// flush writes what a line's output holds. What finds no room waits for it, and the line takes no message meanwhile.
func (d *driver) flush(l *line) {
	n, err := l.sock.Write(l.out)
	if err != nil && !errors.Is(err, errAgain) {
		d.broken(l, err)
		return
	}
	l.out = l.out[:copy(l.out, l.out[n:])]
	if blocked := len(l.out) > 0; blocked != l.blocked {
		l.blocked = blocked
		if err := d.poll.watchRoom(l.sock, l.id, blocked); err != nil {
			d.broken(l, err)
		}
	}
}

// serve does what a line is ready for.
func (d *driver) serve(ctx context.Context, l *line, events uint32) error {
	if l.sock == nil {
		return nil // broken by an event before
	}
	if events&unix.EPOLLOUT != 0 {
		d.flush(l)
	}
	if l.sock == nil || events&^unix.EPOLLOUT == 0 {
		return nil
	}
	if err := l.in.fill(); err != nil {
		if errors.Is(err, errAgain) {
			return nil
		}
		return err
	}
	now := d.now()
	if err := l.take(l.in, now); err != nil {
		return err
	}
	if d.pace == nil && !d.over(ctx, now, d.to) {
		d.refill(l, now)
	}
	return nil
}

// broken ends a line's connection.
func (d *driver) broken(l *line, cause error) {
	if l.sock == nil {
		return
	}
	_ = l.sock.Close() // it is lost already
	l.sock, l.blocked = nil, false
	l.giveUp(cause)
	l.again = d.now() + int64(redialPause)
	d.lost++
}

// reconnect dials lines again whose time has come, each on a goroutine of its own, and takes the connections that were made.
func (d *driver) reconnect(ctx context.Context) error {
	if d.lost == 0 {
		return nil
	}
	now := d.now()
	for _, l := range d.lines {
		if l.again == 0 || l.again > now || d.allSent(ctx, now) {
			continue
		}
		l.again = 0
		d.dialing++
		go func() {
			nc, err := d.dial(ctx, l.addr)
			d.dialled <- dialled{l, nc, err}
		}()
	}
	for d.dialing > 0 {
		select {
		case r := <-d.dialled:
			d.dialing--
			if r.err != nil {
				r.line.again = d.now() + int64(redialPause)
				continue
			}
			if err := d.attach(r.line, r.conn); err != nil {
				return err
			}
			d.lost--
		default:
			return nil
		}
	}
	return nil
}
