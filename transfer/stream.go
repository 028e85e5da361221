package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tandem/codec"
	"tandem/transfer/rules"
)

const (
	// ahead is how much is read beyond the body under way: the next header, and whole small frames, which are then copied to
	// their place. All that is longer is read there directly.
	ahead = 16 << 10
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
	s    *Slave
	ctx  context.Context
	conn *net.TCPConn
	raw  syscall.RawConn

	at       rules.Position
	bodyLeft int // of the frame under way
	buf      [ahead]byte
	from, to int // what of buf is not used yet
	iov      [2]unix.Iovec
	n        int
	readErr  error
	tryRead  func(fd uintptr) bool
	drained  bool // the last read took all there was

	report     [codec.HAReportSize]byte
	reported   int64
	reportedAt time.Time
	begunAt    time.Time
	heardAt    time.Time // zero before the first byte
	bodyAt     time.Time
	wakeAt     time.Time // the deadline set on the connection

	look     chan int64 // the master's end, asked for while nothing comes
	withheld bool       // it was found to hold more than it sends
}

func newStream(ctx context.Context, s *Slave, conn *net.TCPConn, first int64, at rules.Position) (*stream, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &stream{s: s, ctx: ctx, conn: conn, raw: raw, at: at, begunAt: now, bodyAt: now, reported: first}
	t.tryRead = func(fd uintptr) bool {
		first, count := t.parts()
		t.n, t.readErr = readv(int(fd), &t.iov, first, count)
		return t.readErr != unix.EAGAIN
	}
	return t, nil
}

// close waits for what the stream started.
func (t *stream) close() {
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
		t.s.store.WakeDispatch() // after the report, for which a producer may be waiting
	}
}

// read waits for bytes, until the next report is due.
func (t *stream) read() error {
	if err := t.aim(); err != nil {
		return err
	}
	want := t.want()
	for {
		if err := t.arm(); err != nil {
			return err
		}
		err := t.raw.Read(t.tryRead)
		if err == nil {
			err = t.readErr
		}
		switch {
		case err == nil && t.n == 0:
			return fmt.Errorf("master closed the connection: %w", io.EOF)
		case err == nil:
			t.heard(time.Now())
			t.drained = t.n < want
			return t.place(t.n)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := t.idle(time.Now()); err != nil {
				return err
			}
		case err == unix.EINTR:
		default:
			return err
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

// aim points the next read at the rest of the body under way, in the mapped log, and at buf behind it.
func (t *stream) aim() error {
	t.iov = [2]unix.Iovec{}
	copy(t.buf[:], t.buf[t.from:t.to])
	t.from, t.to = 0, t.to-t.from
	if t.bodyLeft > 0 {
		dst, err := t.s.store.RawBuffer(t.at.Next, t.bodyLeft)
		if err != nil {
			return err
		}
		t.iov[0].Base = &dst[0]
		t.iov[0].SetLen(len(dst))
		if len(dst) < t.bodyLeft {
			return nil
		}
	}
	t.iov[1].Base = &t.buf[t.to]
	t.iov[1].SetLen(len(t.buf) - t.to)
	return nil
}

func (t *stream) want() int { return int(t.iov[0].Len + t.iov[1].Len) }

// parts gives the vector as the system wants it, without an empty first part.
func (t *stream) parts() (first, count int) {
	if t.iov[0].Len == 0 {
		return 1, 1
	}
	if t.iov[1].Len == 0 {
		return 0, 1
	}
	return 0, 2
}

func readv(fd int, iov *[2]unix.Iovec, first, count int) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov[first])), uintptr(count))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

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
	t.bodyLeft = int(size)
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
	case fresh >= burst, fresh > 0 && t.drained && t.bodyLeft == 0:
		return t.say(holds, t.heardAt)
	case t.heardAt.Sub(t.reportedAt) >= t.s.o.ReportInterval:
		return t.say(holds, t.heardAt)
	}
	return nil
}

func (t *stream) say(offset int64, now time.Time) error {
	codec.PutHAReport(t.report[:], offset)
	if _, err := t.conn.Write(t.report[:]); err != nil {
		return fmt.Errorf("reporting %d to the master: %w", offset, err)
	}
	t.reported, t.reportedAt = offset, now
	t.s.reported.Store(offset)
	return nil
}

// arm sets the deadline of the next read: when a report is due. It is set anew only once it has passed.
func (t *stream) arm() error {
	due := t.reportedAt.Add(t.s.o.ReportInterval)
	if !t.wakeAt.IsZero() && t.wakeAt.After(time.Now()) {
		return nil
	}
	t.wakeAt = due
	if err := t.conn.SetWriteDeadline(due.Add(t.s.o.Housekeeping)); err != nil {
		return err
	}
	return t.conn.SetReadDeadline(due)
}

// idle does what is due when nothing came for a while.
func (t *stream) idle(now time.Time) error {
	if silent := min(now.Sub(t.begunAt), now.Sub(t.heardAt)); silent > t.s.o.Housekeeping {
		return fmt.Errorf("%w: %v", errMasterSilent, silent.Round(time.Millisecond))
	}
	if now.Sub(t.reportedAt) >= t.s.o.ReportInterval {
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
