package transfer

import (
	"math"
	"sync/atomic"
	"time"

	"tandem/codec"
)

// Waiter is told once how a ticket ended: Success, FlushDiskTimeout or FlushSlaveTimeout. Done runs on whichever
// goroutine ended the wait, with the ring's drain held: it must neither block nor panic, and only note the answer.
type Waiter interface {
	Done(code codec.ResponseCode)
}

// RingConfig tells a Ring what it waits for. It is set once, before the first ticket.
type RingConfig struct {
	// Flushed and Replicated give how far the log is on disk and on the needed slaves. They are called from every
	// goroutine that drains and must be lock-free. nil means everything is.
	Flushed, Replicated func() int64
	// SlaveTimeout and SyncFlushTimeout are the clocks of a wait, from the Reserve before it (2 s each).
	SlaveTimeout, SyncFlushTimeout time.Duration
	// Now gives the ring's time in nanoseconds. nil is the time since the epoch as it was at creation, moved on by
	// the monotonic clock: a wall clock that is set does not end a wait.
	Now func() int64
}

const (
	needsFlush   = 1
	needsReplica = 2
)

// The states of the drain. Whoever finds it running leaves a note instead of waiting.
const (
	drainIdle = iota
	drainRunning
	drainAgain // running, and something moved since it began: it goes round once more
)

// slot is one ticket. The producer fills it, tail publishes it, the drain empties it, head gives it back. start and
// put are read by others meanwhile, who look at head before and after.
type slot struct {
	start  atomic.Int64
	put    atomic.Int64
	end    int64
	waiter Waiter
	needs  uint8
}

// Ring holds the answers that wait for disk or slaves, in the order of the log. It is bounded, without locks, and
// allocates nothing after NewRing. One producer at a time (inside the append's critical section) puts tickets in; any
// goroutine drains, one at a time, without ever waiting for another.
type Ring struct {
	slots      []slot
	mask       uint64
	flushed    func() int64
	replicated func() int64
	slaveNs    int64
	flushNs    int64
	now        func() int64
	drained    func()
	probe      func(point string, seen int64) // tests step the atomic operations by it

	_       [64]byte
	tail    atomic.Uint64 // next ticket to be put; producer writes
	lastPut int64         // producer only
	_       [64]byte
	head    atomic.Uint64 // oldest ticket; the drain writes
	state   atomic.Uint32
	expire  atomic.Int64 // latest time told to Expire, ns
	_       [64]byte
	held    atomic.Int64 // tickets reserved or waiting
	clock   atomic.Int64 // time of the latest Reserve, ns
	_       [64]byte
	waits   waitHistogram
}

// NewRing makes a ring for size tickets, rounded up to a power of two.
func NewRing(size int) *Ring {
	n := 1
	for n < size {
		n <<= 1
	}
	r := &Ring{slots: make([]slot, n), mask: uint64(n - 1)}
	r.Configure(RingConfig{})
	return r
}

// Configure sets what the ring waits for. Call it before the first ticket only.
func (r *Ring) Configure(c RingConfig) {
	setDefault(&c.SlaveTimeout, DefaultAckTimeout)
	setDefault(&c.SyncFlushTimeout, DefaultAckTimeout)
	r.flushed, r.replicated = orEverything(c.Flushed), orEverything(c.Replicated)
	r.slaveNs, r.flushNs = int64(c.SlaveTimeout), int64(c.SyncFlushTimeout)
	r.now = c.Now
	if r.now == nil {
		r.now = steadyClock()
	}
	r.waits.reset(r.now())
}

func orEverything(watermark func() int64) func() int64 {
	if watermark != nil {
		return watermark
	}
	return func() int64 { return math.MaxInt64 }
}

// steadyClock starts at the wall clock and goes on by the monotonic one.
func steadyClock() func() int64 {
	begun := time.Now()
	epoch := begun.UnixNano()
	return func() int64 { return epoch + int64(time.Since(begun)) }
}

// OnDrained sets what is called after a drain that ended tickets, once for all of them, on the draining goroutine, and
// after they became visible. Set it before the first ticket.
func (r *Ring) OnDrained(f func()) { r.drained = f }

// Size is how many tickets fit.
func (r *Ring) Size() int { return len(r.slots) }

// Waiting is how many tickets wait now.
func (r *Ring) Waiting() int {
	head := r.head.Load()
	return int(r.tail.Load() - head)
}

// Reserve takes room for n tickets before anything is written. false means full: answer SYSTEM_BUSY and store nothing.
// It also starts the clocks of the tickets to come. Any goroutine.
func (r *Ring) Reserve(n int) bool {
	for {
		held := r.held.Load()
		r.at("held", held)
		if held+int64(n) > int64(len(r.slots)) {
			return false
		}
		if r.held.CompareAndSwap(held, held+int64(n)) {
			break
		}
	}
	r.setClock(r.now())
	return true
}

// setClock never sets it back: two loops may get here in another order than they looked at the time.
func (r *Ring) setClock(now int64) {
	for {
		old := r.clock.Load()
		if now <= old || r.clock.CompareAndSwap(old, now) {
			return
		}
	}
}

// Cancel gives back room that was reserved and not used. Any goroutine.
func (r *Ring) Cancel(n int) {
	r.held.Add(int64(-n))
	r.at("cancelled", 0)
}

// Put adds the ticket of the bytes [start, end) and uses one reserved place. Call it inside the append's critical
// section, in the order of the log, before the bytes can be read by anybody.
func (r *Ring) Put(start, end int64, needFlush, needReplica bool, w Waiter) {
	tail := r.tail.Load()
	if tail-r.head.Load() >= uint64(len(r.slots)) {
		panic("BUG: ticket without a reserved place")
	}
	s := &r.slots[tail&r.mask]
	s.end, s.waiter, s.needs = end, w, needs(needFlush, needReplica)
	r.lastPut = max(r.lastPut, r.clock.Load())
	s.put.Store(r.lastPut)
	s.start.Store(start)
	r.at("filled", 0)
	r.tail.Store(tail + 1)
	r.at("put", 0)
}

func needs(flush, replica bool) (n uint8) {
	if flush {
		n |= needsFlush
	}
	if replica {
		n |= needsReplica
	}
	return n
}

// Advance ends every ticket at the head whose watermarks have passed it. Call it after moving one. Any goroutine; it
// never waits: if another one is draining, that one goes round again.
func (r *Ring) Advance() {
	head := r.head.Load()
	r.at("head", int64(head))
	tail := r.tail.Load()
	r.at("tail", int64(tail))
	if head != tail {
		r.drain()
	}
}

// Expire ends the tickets at the head whose clock has run out at nowMs (milliseconds since the epoch), after those that
// are done. The clocks are the same for all, so nothing behind the head can be due before it.
func (r *Ring) Expire(nowMs int64) { r.expireAt(nowMs * int64(time.Millisecond)) }

func (r *Ring) expireAt(now int64) {
	for {
		old := r.expire.Load()
		if now <= old || r.expire.CompareAndSwap(old, now) {
			break
		}
	}
	r.at("expire", 0)
	r.Advance()
}

// Visible limits what consumers may see: end itself if no ticket waits, else at most the start of the oldest ticket.
// end must have been read from the log before the call: every ticket below it is then in the ring or was ended.
func (r *Ring) Visible(end int64) int64 {
	for {
		head := r.head.Load()
		r.at("head", int64(head))
		tail := r.tail.Load()
		r.at("tail", int64(tail))
		if head == tail {
			return end
		}
		start := r.slots[head&r.mask].start.Load()
		r.at("start", start)
		if r.head.Load() == head {
			return min(end, start)
		}
		r.at("moved", 0)
	}
}

// oldest gives when the wait of the head ticket began.
func (r *Ring) oldest() (put int64, waiting bool) {
	for {
		head := r.head.Load()
		if head == r.tail.Load() {
			return 0, false
		}
		put = r.slots[head&r.mask].put.Load()
		if r.head.Load() == head {
			return put, true
		}
	}
}

// drain takes turns: one goroutine pops, the others leave a note and go. A note left before the last look is seen by
// it, and one left after it finds the drain idle and enters: no wake-up is lost.
func (r *Ring) drain() {
	if !r.enter() {
		return
	}
	for {
		if r.pop() && r.drained != nil {
			r.drained()
		}
		if r.state.CompareAndSwap(drainRunning, drainIdle) {
			r.at("left", 0)
			return
		}
		r.at("noted", 0)
		r.state.Store(drainRunning)
		r.at("again", 0)
	}
}

func (r *Ring) enter() bool {
	for {
		state := r.state.Load()
		r.at("state", int64(state))
		switch {
		case state == drainIdle && r.state.CompareAndSwap(drainIdle, drainRunning):
			r.at("entered", 0)
			return true
		case state == drainRunning && r.state.CompareAndSwap(drainRunning, drainAgain):
			r.at("note", 0)
			return false
		case state == drainAgain:
			return false
		}
		r.at("retry", 0)
	}
}

// batch is how many tickets are ended before their places are given back and the log behind them becomes visible.
const batch = 128

// pop ends what can be ended, in order.
func (r *Ring) pop() bool {
	expire := r.expire.Load()
	r.at("expired", expire)
	flushed := r.flushed()
	r.at("flushed", flushed)
	replicated := r.replicated()
	r.at("replicated", replicated)
	head, tail := r.head.Load(), r.tail.Load()
	r.at("tail", int64(tail))
	first := head
	run := waitRun{ring: r}
	for head != tail {
		s := &r.slots[head&r.mask]
		code, done := r.judge(s, flushed, replicated, expire)
		if !done {
			break
		}
		run.add(s.put.Load(), code)
		w := s.waiter
		s.waiter = nil
		w.Done(code)
		head++
		if head-first == batch {
			r.release(first, head)
			first = head
		}
	}
	run.flush()
	r.release(first, head)
	return run.any
}

func (r *Ring) release(from, to uint64) {
	if from == to {
		return
	}
	r.head.Store(to)
	r.at("released", int64(to))
	r.held.Add(-int64(to - from))
	r.at("given back", 0)
}

// judge says whether a ticket is over. What arrived in time or late but before anybody looked is a success; of two clocks
// that ran out the shorter one answers.
func (r *Ring) judge(s *slot, flushed, replicated, expire int64) (codec.ResponseCode, bool) {
	noFlush := s.needs&needsFlush != 0 && flushed < s.end
	noReplica := s.needs&needsReplica != 0 && replicated < s.end
	if !noFlush && !noReplica {
		return codec.Success, true
	}
	waited := expire - s.put.Load()
	slaveLate := noReplica && waited >= r.slaveNs
	flushLate := noFlush && waited >= r.flushNs
	switch {
	case slaveLate && (!flushLate || r.slaveNs <= r.flushNs):
		return codec.FlushSlaveTimeout, true
	case flushLate:
		return codec.FlushDiskTimeout, true
	}
	return 0, false
}

// at is where another goroutine may come between: after each atomic operation, with what it saw.
func (r *Ring) at(point string, seen int64) {
	if r.probe != nil {
		r.probe(point, seen)
	}
}
