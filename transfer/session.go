package transfer

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"tandem/codec"
	"tandem/engine"
	"tandem/transfer/rules"
)

// session is one connection on the HA port. The event loop owns its reading side and its life. The sending side belongs
// to whoever holds mu: its writer goroutine, the thread apart that this one waits for, or an appender that finds it free and sends a few
// bytes itself.
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

	asked atomic.Bool // somebody had bytes to send and found mu taken: who holds it looks again

	mu      sync.Mutex // the sending side; but for the writer, tried only: a thread that has to wait for all others may hold it
	fd      int        // the socket, a descriptor of its own
	ended   bool       // nothing may be sent any more
	next    int64
	frames  int     // with a body, begun so far
	ends    []int64 // of the latest of them, as many as may be on their way at once
	ahead   int64   // up to where the disk was asked to read
	out     frame
	limiter *rate.Limiter
	far     far // the writer only

	// Written by the sender, read by anybody.
	sentFrom atomic.Int64
	promised atomic.Int64 // end of the latest frame, set before its first byte leaves
	barrier  atomic.Int64 // what must be acknowledged before a small frame leaves
	taken    atomic.Int64 // bytes the socket took
	sends    atomic.Int64 // system calls
	lastSend atomic.Int64 // ms of the ring's clock
	parked   atomic.Bool  // the writer waits for the socket

	follows atomic.Bool // the first offset is known, and promised with it
	level   atomic.Bool // the slave was sent all there was, since it was last far behind; until then the writer is at work
	pulse   pulse
	seen    int64 // promised, as feedOthers saw it last

	acked   atomic.Int64 // the latest report; the event loop writes
	reports atomic.Int64 // how many came

	// Housekeeper only, shown by Status.
	rate       atomic.Int64
	takenThen  int64
	stuckSince int64
}

// open takes a descriptor of its own for the sending side. Go's poller does not get to know it: every report would wake it.
func (s *session) open(c engine.Socket) error {
	fd, err := c.Dup()
	if err != nil {
		return err
	}
	s.fd, s.opened, s.conn, s.remote = fd, s.m.nowMs(), c, addrPort(c.RemoteAddr())
	s.wake, s.gone, s.start = make(chan struct{}, 1), make(chan struct{}), make(chan int64, 1)
	s.limiter, s.stuckSince = s.m.newLimiter(), s.opened
	s.ends = make([]int64, s.m.o.InFlight)
	s.lastSend.Store(s.opened)
	return nil
}

// push sends what the socket takes of the frame under way. It needs mu.
func (s *session) push() error {
	n, calls, err := s.out.send(s.fd)
	s.taken.Add(int64(n))
	s.sends.Add(int64(calls))
	return err
}

// wakeUp makes the writer look again. It never blocks, and a look that was asked for is never lost.
func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// offer is called when there may be bytes to send, after an append and after a report: if this slave is caught up, the caller
// sends them itself and saves a hand-over; all else is left to the writer. It never blocks.
//
// While as many frames as may be are on their way and not acknowledged, small amounts gather: the report that is due sends them,
// all in one frame. So a busy master sends as often as its slave answers, and an idle one at once.
func (s *session) offer() {
	if s.gathers() {
		return
	}
	s.asked.Store(true)
	for s.asked.Load() && s.mu.TryLock() {
		s.asked.Store(false)
		done := s.sendNow()
		s.mu.Unlock()
		if !done {
			s.wakeUp()
		}
	}
}

// gathers says that what there is to send waits for a report. The report is noted before the log's end is looked at, and the
// end is moved before the note is: one of the two sides sees the other.
func (s *session) gathers() bool {
	if s.acked.Load() >= s.barrier.Load() {
		return false
	}
	return s.m.store.End()-s.promised.Load() < s.m.gather
}

// sendNow sends what there is without waiting. false leaves the rest to the writer. It needs mu.
func (s *session) sendNow() bool {
	if !s.follows.Load() || s.ended {
		return true
	}
	end := s.m.store.End()
	if s.out.pending() || !s.level.Load() || end-s.next > s.m.whole {
		return end == s.next && !s.out.pending()
	}
	for s.next < end { // one frame, two at a segment's end
		if s.prepare(end-s.next) != nil || s.push() != nil {
			return false
		}
		s.lastSend.Store(s.m.nowMs())
	}
	return true
}

// write is the writer goroutine.
func (s *session) write() {
	beat := time.NewTimer(s.m.o.HeartbeatInterval)
	defer beat.Stop()
	for {
		select {
		case start := <-s.start:
			s.startAt(start)
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

func (s *session) startAt(start int64) {
	s.mu.Lock()
	s.next = start
	s.sentFrom.Store(start)
	s.promised.Store(start)
	s.barrier.Store(0)
	s.follows.Store(true)
	s.mu.Unlock()
}

// untilBeat is how long the silence may last from now on.
func (s *session) untilBeat() time.Duration {
	silent := time.Duration(s.m.nowMs()-s.lastSend.Load()) * time.Millisecond
	return max(s.m.o.HeartbeatInterval-silent, time.Millisecond)
}

// catchUp sends frames until the slave has all there is, waiting for the socket wherever it must. Far behind, it is served apart.
func (s *session) catchUp() error {
	for {
		all, err := s.send(s.isNear)
		if err == nil && !all {
			err = apart(s.sendFar)
		}
		if err != nil || all && !s.asked.Load() {
			return err
		}
	}
}

// send sends frames until the slave has all there is, which is true, or until goesOn says no, which is asked before each frame and
// told how many bytes the slave lags.
func (s *session) send(goesOn func(lag int64) bool) (all bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.Store(false)
	for s.follows.Load() {
		if !s.out.pending() {
			lag := s.m.store.End() - s.next
			if !goesOn(lag) {
				return false, nil
			}
			sent, err := s.nextFrame(lag)
			if err != nil {
				return true, err
			}
			if !sent && s.m.store.End() > s.next { // appended before the slave was known to be level, when nobody asked
				continue
			}
			if !sent {
				return true, nil
			}
		}
		if err := s.pushAll(); err != nil {
			return false, err
		}
		s.lastSend.Store(s.m.nowMs())
	}
	return true, nil
}

// pushAll sends the frame under way to its last byte. It needs mu.
func (s *session) pushAll() error {
	s.parked.Store(true)
	defer s.parked.Store(false)
	for {
		err := s.push()
		if err != errAgain {
			return err
		}
		if err := awaitRoom(s.fd); err != nil {
			return err
		}
	}
}

// awaitRoom sleeps until the socket takes bytes again, or is shut down.
func awaitRoom(fd int) error {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if _, err := unix.Poll(fds[:], -1); err != unix.EINTR {
			return err
		}
	}
}

// nextFrame begins the next frame for a slave that lags by so many bytes. false means that there is nothing to say.
func (s *session) nextFrame(lag int64) (bool, error) {
	if lag > 0 {
		return true, s.prepareLagging(lag)
	}
	s.level.Store(true)
	if !rules.HeartbeatDue(s.lastSend.Load(), s.m.o.HeartbeatInterval.Milliseconds(), s.m.nowMs()) {
		return false, nil
	}
	s.begin(body{})
	return true, nil
}

// prepareLagging begins a frame for a slave that the writer serves. It needs mu and at least one byte to send.
func (s *session) prepareLagging(lag int64) error {
	o := &s.m.o
	if lag <= s.m.whole {
		return s.prepare(lag)
	}
	s.level.Store(false)
	n := rules.BatchSize(lag, int64(o.BatchSize), int64(o.MaxBatch))
	s.throttle(n)
	if err := s.prepare(n); err != nil {
		return err
	}
	s.readAhead()
	return nil
}

// prepare begins a frame of at most n bytes at next. It needs mu and at least one byte to send.
func (s *session) prepare(n int64) error {
	b, err := s.m.pin(s.next, n, s.level.Load(), &s.out)
	if err != nil {
		return err
	}
	s.begin(b)
	return nil
}

func (s *session) begin(b body) {
	s.out.begin(s.next, b)
	if b.left == 0 {
		return
	}
	s.next += int64(b.left)
	s.promised.Store(s.next)
	s.pulse.begin(s.next, s.m.ring.now())
	s.ends[s.frames%len(s.ends)] = s.next
	s.frames++
	s.barrier.Store(s.ends[s.frames%len(s.ends)])
}

// throttle keeps a lagging slave to the limit, if there is one.
func (s *session) throttle(n int64) {
	if s.limiter != nil {
		_ = s.limiter.WaitN(s.m.ctx, int(n)) // ends early with the master only
	}
}

const (
	// aheadWindow is how far the reading of cold segments runs ahead of what is sent: as much as keeps a fast disk busy while
	// the socket is full.
	aheadWindow = 16 << 20
	// aheadStep is how much is looked at, and asked for, at a time.
	aheadStep = 1 << 20
)

// readAhead has the disk read what comes after the frame under way, unless it is in memory. It needs mu, and is for the writer: the
// kernel may let it wait where the disk has too much to do.
func (s *session) readAhead() {
	s.ahead = max(s.ahead, s.next)
	for limit := min(s.next+aheadWindow, s.m.store.End()); s.ahead < limit; s.ahead += aheadStep {
		if s.m.store.Cold(s.ahead, aheadStep) {
			s.m.fetch(s.ahead, aheadStep)
		}
	}
}

// fail ends the connection because the sending side cannot go on.
func (s *session) fail(err error) {
	if !isHangUp(err) {
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
	_ = unix.Close(s.fd)
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
