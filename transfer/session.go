package transfer

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"tandem/codec"
	"tandem/engine"
	"tandem/transfer/rules"
)

// session is one connection on the HA port. The event loop owns its reading side and its life. The sending side belongs
// to whoever holds mu: its writer goroutine, or an appender that finds it free and sends a few bytes itself.
type session struct {
	id     rules.SessionID
	m      *Master
	conn   engine.Socket
	remote netip.AddrPort
	opened int64

	// Event loop only.
	partial  [codec.HAReportSize]byte
	have     int
	reported bool

	wake  chan struct{} // one slot: look again
	gone  chan struct{} // closed by the event loop when the connection is
	life  sync.Mutex    // of gone: the connection may be told to close only before
	start chan int64    // one slot: the first offset, after the first report

	mu      sync.Mutex // the sending side
	file    *os.File   // the socket, its own descriptor
	raw     syscall.RawConn
	ready   bool // the first offset is known
	ended   bool // nothing may be sent any more
	next    int64
	out     frame
	sendErr error
	tryOnce func(fd uintptr) bool
	tryAll  func(fd uintptr) bool
	limiter *rate.Limiter

	// Written by the sender, read by anybody.
	sentFrom atomic.Int64
	promised atomic.Int64 // end of the latest frame, set before its first byte leaves
	taken    atomic.Int64 // bytes the socket took
	lastSend atomic.Int64 // ms of the ring's clock
	parked   atomic.Bool  // the writer waits for the socket

	// Housekeeper only, shown by Status.
	rate       atomic.Int64
	takenThen  int64
	stuckSince int64
}

// open takes a descriptor of its own for the sending side.
func (s *session) open(c engine.Socket) error {
	fd, err := c.Dup()
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "ha")
	if s.raw, err = file.SyscallConn(); err != nil {
		_ = file.Close()
		return err
	}
	s.file, s.conn, s.remote, s.opened = file, c, addrPort(c.RemoteAddr()), s.m.nowMs()
	s.wake, s.gone, s.start = make(chan struct{}, 1), make(chan struct{}), make(chan int64, 1)
	s.limiter, s.stuckSince = s.m.newLimiter(), s.opened
	s.lastSend.Store(s.opened)
	s.tryOnce = func(fd uintptr) bool {
		s.send(fd)
		return true
	}
	s.tryAll = func(fd uintptr) bool {
		s.send(fd)
		return s.sendErr != errAgain
	}
	return nil
}

// send needs mu.
func (s *session) send(fd uintptr) {
	n, err := s.out.send(int(fd))
	s.taken.Add(int64(n))
	s.sendErr = err
}

// wakeUp makes the writer look again. It never blocks, and a look that was asked for is never lost.
func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// offer is called after an append: if this slave is caught up and nobody is sending, the caller sends the new bytes itself
// and saves a hand-over; all else is left to the writer. It never blocks.
func (s *session) offer() {
	if s.mu.TryLock() {
		done := s.sendNow()
		s.mu.Unlock()
		if done {
			return
		}
	}
	s.wakeUp()
}

// sendNow sends one small frame without waiting. false leaves the rest to the writer. It needs mu.
func (s *session) sendNow() bool {
	if !s.ready || s.ended {
		return true
	}
	lag := s.m.store.End() - s.next
	if lag == 0 && !s.out.pending() {
		return true
	}
	if s.out.pending() || lag > int64(s.m.o.BatchSize) || s.prepare() != nil {
		return false
	}
	if err := s.raw.Write(s.tryOnce); err != nil || s.sendErr != nil {
		return false
	}
	s.lastSend.Store(s.m.nowMs())
	return s.m.store.End() == s.next
}

// write is the writer goroutine.
func (s *session) write() {
	beat := time.NewTimer(s.m.o.HeartbeatInterval)
	defer beat.Stop()
	for {
		select {
		case start := <-s.start:
			s.begin(start)
		case <-s.wake:
		case <-beat.C:
		case <-s.gone:
			s.end()
			return
		}
		if err := s.catchUp(); err != nil {
			s.fail(err)
			<-s.gone
			s.end()
			return
		}
		beat.Reset(s.untilBeat())
	}
}

func (s *session) begin(start int64) {
	s.mu.Lock()
	s.next, s.ready = start, true
	s.sentFrom.Store(start)
	s.promised.Store(start)
	s.mu.Unlock()
}

// untilBeat is how long the silence may last from now on.
func (s *session) untilBeat() time.Duration {
	silent := time.Duration(s.m.nowMs()-s.lastSend.Load()) * time.Millisecond
	return max(s.m.o.HeartbeatInterval-silent, time.Millisecond)
}

// catchUp sends frames until the slave has all there is, waiting for the socket wherever it must.
func (s *session) catchUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ready {
		if !s.out.pending() {
			if sent, err := s.nextFrame(); err != nil || !sent {
				return err
			}
		}
		s.parked.Store(true)
		err := s.raw.Write(s.tryAll)
		s.parked.Store(false)
		if err == nil {
			err = s.sendErr
		}
		if err != nil {
			return err
		}
		s.lastSend.Store(s.m.nowMs())
	}
	return nil
}

// nextFrame begins the next frame. false means that there is nothing to say.
func (s *session) nextFrame() (bool, error) {
	if s.m.store.End() > s.next {
		return true, s.prepare()
	}
	if !rules.HeartbeatDue(s.lastSend.Load(), s.m.o.HeartbeatInterval.Milliseconds(), s.m.nowMs()) {
		return false, nil
	}
	s.out.begin(s.next, body{})
	return true, nil
}

// prepare begins a frame of the bytes at next. It needs mu and at least one byte to send.
func (s *session) prepare() error {
	o := &s.m.o
	lag := s.m.store.End() - s.next
	n := min(rules.BatchSize(lag, int64(o.BatchSize), int64(o.MaxBatch)), lag)
	if lag > int64(o.BatchSize) {
		s.throttle(n)
	}
	b, err := s.m.pin(s.next, n)
	if err != nil {
		return err
	}
	s.out.begin(s.next, b)
	s.next += int64(b.left)
	s.promised.Store(s.next)
	if n == int64(o.MaxBatch) {
		b.readAhead()
	}
	return nil
}

// throttle keeps a lagging slave to the limit, if there is one.
func (s *session) throttle(n int64) {
	if s.limiter != nil {
		_ = s.limiter.WaitN(s.m.ctx, int(n)) // ends early with the master only
	}
}

// readAhead asks the kernel for what comes after this body, so that the next frame finds it in memory.
func (b *body) readAhead() {
	if b.segment != nil {
		_ = unix.Fadvise(int(b.segment.File().Fd()), b.at+int64(b.left), 2*int64(b.left), unix.FADV_WILLNEED)
	}
}

// fail ends the connection because the sending side cannot go on.
func (s *session) fail(err error) {
	if !isHangUp(err) && !errors.Is(err, os.ErrClosed) {
		s.m.refuse(s, err)
	}
	s.kick()
}

// kick asks the event loop to close the connection. Any goroutine.
func (s *session) kick() {
	s.life.Lock()
	defer s.life.Unlock()
	select {
	case <-s.gone:
	default:
		_ = s.conn.Close()
	}
}

// end gives the descriptor back, after the event loop has given up the connection. An appender that comes later finds it
// ended.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	s.out.abandon()
	_ = s.file.Close()
	s.mu.Unlock()
}

// hangUp is called by the event loop as the connection's last act. The shutdown unparks the writer and lets the peer see the
// end although the writer's descriptor lives a little longer.
func (s *session) hangUp() {
	_ = unix.Shutdown(s.conn.Fd(), unix.SHUT_RDWR)
	s.life.Lock()
	close(s.gone)
	s.life.Unlock()
}

// judge looks, once per housekeeping round, how fast the slave takes bytes and whether it takes any. true means that output
// has waited too long without a byte being taken.
func (s *session) judge(now, elapsed, patience int64) bool {
	taken := s.taken.Load()
	moved := taken - s.takenThen
	s.takenThen = taken
	s.rate.Store((s.rate.Load() + moved*1000/max(elapsed, 1)) / 2)
	if moved > 0 || !s.parked.Load() {
		s.stuckSince = now
	}
	return now-s.stuckSince > patience
}
