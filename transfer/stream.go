package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"tandem/codec"
	"tandem/transfer/rules"
)

const (
	// ahead is how much is read beyond a short frame's body: the next header, and whole small frames, which are then copied to
	// their place. The bodies of longer frames are read there directly.
	ahead = 64 << 10
	// dispatchDelay is for how long the consume queues may wait for what came, in order to be built for many frames at once, while no
	// consumer waits for a message; waking a thread for each frame, or each millisecond, takes the processor from the frame
	// that follows, and keeps Go's monitor thread looking every 20 µs.
	dispatchDelay = 20 * time.Millisecond
	// burst is how much is taken in without a report while more keeps coming.
	burst = 256 << 10
)

var (
	errMasterSilent = errors.New("nothing heard from the master for too long")
	errNotServed    = errors.New("the master does not send what follows")
)

// stream is one connection to a master, from the first report on. It belongs to the slave's goroutine.
//
// Bytes of a frame become part of the log as they come, also when the rest of the frame never does: frames are cut at any
// byte anyway, and come in order, so what has arrived is as good a prefix of the master's log as a whole frame would be. A
// large frame over a slow link that breaks now and then thus makes progress. Whether a record is whole is for the dispatcher.
type stream struct {
	s      *Slave
	ctx    context.Context
	socket *socket

	at       rules.Position
	body     int // length of the frame under way
	bodyLeft int // of it
	buf      [ahead]byte
	from, to int // what of buf is not used yet
	iov      [2]unix.Iovec
	drained  bool // the last read took all there was; one that was filled exactly may have, too

	report     [codec.HAReportSize]byte
	reported   int64
	reportedAt time.Time
	begunAt    time.Time
	heardAt    time.Time // zero before the first byte
	bodyAt     time.Time
	owedAt     time.Time     // since when the consume queues lack something; zero if they do not
	timeout    time.Duration // of a read, as set on the socket

	look     chan int64 // the master's end, asked for while nothing comes
	withheld bool       // it was found to hold more than it sends
}

func newStream(ctx context.Context, s *Slave, socket *socket, first int64, at rules.Position) *stream {
	now := time.Now()
	return &stream{s: s, ctx: ctx, socket: socket, at: at, begunAt: now, bodyAt: now, reported: first, timeout: s.o.readTimeout()}
}

// readTimeout is after how long without a byte a stream looks what is due, short enough for no report to be late.
func (o *SlaveOptions) readTimeout() time.Duration { return o.ReportInterval / 4 }

// reportDue is the age of the latest report from which on the next one is due when nothing came.
func (o *SlaveOptions) reportDue() time.Duration { return o.ReportInterval - o.readTimeout() }

// close waits for what the stream started.
func (t *stream) close() {
	t.wakeDispatch()
	if t.look != nil {
		<-t.look
	}
}

// follow takes frames until the connection ends. The error says why it did.
func (t *stream) follow() error {
	if err := t.say(t.reported, time.Now()); err != nil {
		return err
	}
	for {
		if err := t.read(); err != nil {
			return err
		}
		if err := t.take(); err != nil {
			return err
		}
		if err := t.acknowledge(); err != nil {
			return err
		}
		if err := t.dispatch(); err != nil {
			return err
		}
	}
}

// read waits for bytes. While none come it does what is due.
func (t *stream) read() error {
	parts, err := t.aim()
	if err != nil {
		return err
	}
	for {
		n, err := t.socket.readv(parts, t.timeout <= dispatchDelay)
		switch {
		case err == nil && n == 0:
			return fmt.Errorf("master closed the connection: %w", io.EOF)
		case err == nil:
			t.s.reads.Add(1)
			t.heard(time.Now())
			t.drained = n < t.want()
			return t.place(n)
		case err == unix.EAGAIN:
			if err := t.quiet(time.Now()); err != nil {
				return err
			}
		case err == unix.EINTR:
			runtime.Gosched() // the scheduler may have asked
		default:
			return os.NewSyscallError("readv", err)
		}
	}
}

func (t *stream) heard(now time.Time) {
	if t.heardAt.IsZero() && !t.s.doubtful {
		t.s.pause.Reset() // a master that only hangs up gets the longer pauses
	}
	t.heardAt = now
	t.s.lastRead.Store(now.UnixMilli())
}

// aim points the next read at the rest of the body under way, in the mapped log, and at buf behind it: all of it, but for a long
// frame, which others of its kind will follow, at the next header alone.
func (t *stream) aim() ([]unix.Iovec, error) {
	t.iov = [2]unix.Iovec{}
	copy(t.buf[:], t.buf[t.from:t.to])
	t.from, t.to = 0, t.to-t.from
	if t.bodyLeft == 0 {
		t.part(1, t.buf[t.to:])
		return t.iov[1:], nil
	}
	dst, err := t.s.store.RawBuffer(t.at.Next, t.bodyLeft)
	if err != nil {
		return nil, err
	}
	t.part(0, dst)
	switch {
	case len(dst) < t.bodyLeft:
		return t.iov[:1], nil
	case t.body > ahead:
		t.part(1, t.buf[t.to:t.to+codec.HAHeaderSize])
	default:
		t.part(1, t.buf[t.to:])
	}
	return t.iov[:], nil
}

func (t *stream) part(i int, b []byte) {
	t.iov[i].Base = &b[0]
	t.iov[i].SetLen(len(b))
}

func (t *stream) want() int { return int(t.iov[0].Len + t.iov[1].Len) }

// place accounts for n bytes that were read where aim pointed.
func (t *stream) place(n int) error {
	if direct := min(n, int(t.iov[0].Len)); direct > 0 {
		if err := t.commit(direct); err != nil {
			return err
		}
		n -= direct
	}
	t.to += n
	return nil
}

// take uses up what buf holds: headers are judged, bodies copied to their place.
func (t *stream) take() error {
	for {
		if t.bodyLeft == 0 {
			if t.to-t.from < codec.HAHeaderSize {
				return nil
			}
			if err := t.header(); err != nil {
				return err
			}
			continue
		}
		n := min(t.bodyLeft, t.to-t.from)
		if n == 0 {
			return nil
		}
		dst, err := t.s.store.RawBuffer(t.at.Next, n)
		if err != nil {
			return err
		}
		n = copy(dst, t.buf[t.from:t.to])
		t.from += n
		if err := t.commit(n); err != nil {
			return err
		}
	}
}

func (t *stream) header() error {
	offset, size := codec.ParseHAHeader(t.buf[t.from:])
	if err := t.at.Frame(offset, size); err != nil {
		if errors.Is(err, rules.ErrCrossing) || errors.Is(err, rules.ErrStart) {
			return refused(err)
		}
		return err
	}
	t.from += codec.HAHeaderSize
	t.body, t.bodyLeft = int(size), int(size)
	if t.at.Empty && size > 0 {
		t.at.Next = offset
		t.s.unproven = offset == 1
	}
	return nil
}

// commit makes n bytes of the body part of the log.
func (t *stream) commit(n int) error {
	if err := t.s.store.RawCommit(n); err != nil {
		return err
	}
	t.at.Next += int64(n)
	t.at.Empty = false
	t.bodyLeft -= n
	t.bodyAt = t.heardAt
	if t.owedAt.IsZero() {
		t.owedAt = t.heardAt
	}
	t.s.received.Add(int64(n))
	if t.s.unproven {
		return t.s.prove()
	}
	if t.s.doubtful {
		t.s.doubtful = false
		t.s.setState(Transfer)
	}
	return nil
}

// holds is what may be acknowledged: nothing new while the first byte is not proven.
func (t *stream) holds() int64 {
	if t.at.Empty || t.s.unproven {
		return t.reported
	}
	return t.at.Next
}

// acknowledge reports once per burst: when a frame is complete and nothing more had come, or after so many bytes.
func (t *stream) acknowledge() error {
	holds := t.holds()
	fresh := holds - t.reported
	switch {
	case fresh >= burst, fresh > 0 && t.bodyLeft == 0 && (t.drained || !t.socket.more()):
		return t.say(holds, t.heardAt)
	case t.heardAt.Sub(t.reportedAt) >= t.s.o.reportDue():
		if err := t.say(holds, t.heardAt); err != nil {
			return err
		}
		return t.doubt(t.heardAt) // heartbeats that come often never let a read give up
	}
	return nil
}

func (t *stream) say(offset int64, now time.Time) error {
	codec.PutHAReport(t.report[:], offset)
	t.s.reports.Add(1)
	if err := t.socket.write(t.report[:]); err != nil {
		return fmt.Errorf("reporting %d to the master: %w", offset, err)
	}
	t.reported, t.reportedAt = offset, now
	t.s.reported.Store(offset)
	return nil
}

// dispatch has the consume queues built, after the report, for which a producer may be waiting, and not for every frame.
func (t *stream) dispatch() error {
	if t.owedAt.IsZero() {
		return nil
	}
	if t.s.store.Awaited() || t.heardAt.Sub(t.owedAt) >= dispatchDelay {
		t.wakeDispatch()
	}
	return t.setTimeout(min(dispatchDelay, t.s.o.readTimeout()))
}

func (t *stream) wakeDispatch() {
	t.owedAt = time.Time{}
	t.s.store.WakeDispatch()
}

// quiet does what is due when a read gave up. The first one after a byte comes soon, for the consume queues alone.
func (t *stream) quiet(now time.Time) error {
	if holds := t.holds(); holds > t.reported { // part of a frame: its rest is late
		if err := t.say(holds, now); err != nil {
			return err
		}
	}
	if !t.owedAt.IsZero() {
		t.wakeDispatch()
	}
	if err := t.setTimeout(t.s.o.readTimeout()); err != nil {
		return err
	}
	return t.idle(now)
}

func (t *stream) setTimeout(d time.Duration) error {
	if d == t.timeout {
		return nil
	}
	t.timeout = d
	return setTimeout(t.socket.fd, unix.SO_RCVTIMEO, d)
}

// idle does what is due when nothing came for a while.
func (t *stream) idle(now time.Time) error {
	if silent := min(now.Sub(t.begunAt), now.Sub(t.heardAt)); silent > t.s.o.Housekeeping {
		return fmt.Errorf("%w: %v", errMasterSilent, silent.Round(time.Millisecond))
	}
	if now.Sub(t.reportedAt) >= t.s.o.reportDue() {
		if err := t.say(t.holds(), now); err != nil {
			return err
		}
	}
	return t.doubt(now)
}

// doubt asks, while only heartbeats come, whether the master holds more than it sends. A master that cannot serve a position
// may never say so: an Apache master goes on with heartbeats for ever.
func (t *stream) doubt(now time.Time) error {
	select {
	case end := <-t.look: // a nil channel is never ready
		t.look = nil
		if end <= t.at.Next {
			t.withheld = false
		} else if t.withheld && now.Sub(t.bodyAt) > t.s.o.Housekeeping {
			return fmt.Errorf("%w: it holds up to %d and has sent nothing from %d on", errNotServed, end, t.at.Next)
		} else {
			t.withheld = true
		}
	default:
	}
	if t.look != nil || now.Sub(t.bodyAt) < t.s.o.Housekeeping {
		return nil
	}
	t.look = make(chan int64, 1)
	go t.askEnd(t.look)
	return nil
}

func (t *stream) askEnd(answer chan<- int64) {
	ctx, cancel := context.WithTimeout(t.ctx, t.s.o.CallTimeout)
	defer cancel()
	_, end, err := t.s.o.Peer.Range(ctx)
	if err != nil {
		end = 0
	}
	answer <- end
}
