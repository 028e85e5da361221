package engine

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"

	"tandem/codec"
)

// Loop is one event loop of a Server: a goroutine that reads, serves and writes its connections and runs the tasks posted
// to it, all one after the other, so that what belongs to a loop needs no lock.
type Loop struct {
	srv     *Server
	index   int
	local   any
	watcher WriteWatcher // the handler, if it is one
	exec    gnet.EventLoop
	wake    waker

	mu     sync.Mutex
	queue  []Task // posted and not yet taken
	armed  bool   // a drain is on its way (or running late, once ended)
	inside bool   // a turn runs that looks at the queue before it ends: no wake-up is needed
	waking int    // Posts that are just now waking the poller
	quiet  *sync.Cond
	ended  bool // the poller runs no more

	// The rest is the loop's alone.
	running []Task
	spare   []Task // swapped with queue
	conns   []*conn
	touched []*conn // have a turn's output
	dying   []death // to be closed at the end of the turn
	gone    []death // closed, OnClose owed
	backlog []*conn // have output that the socket did not take yet
	queued  int     // the sum of their queued bytes, as last seen
	lastOut *conn   // whose output the running callback touched last
	inTurn  bool
	ending  bool

	view     codec.View
	vec      vector
	free     [][]byte                                // idle buffers
	freeSize int                                     // their capacities
	big      []byte                                  // an idle buffer for big frames
	bigUsed  bool                                    // since the last tick
	now      int64                                   // ns since the server's start, as of the last tick
	idleScan int64                                   // when connections are looked at for idleness next
	inflight int                                     // answers owed on open connections
	ticking  atomic.Bool                             // a tick is posted
	shared   struct{ inflight, queued atomic.Int64 } // for other goroutines, as of the last tick
	onEnd    chan struct{}                           // closed when the last batch has run
}

type death struct {
	c   *conn
	err error
}

func newLoop(s *Server, index int) *Loop {
	l := &Loop{srv: s, index: index}
	l.watcher, _ = s.h.(WriteWatcher)
	l.wake.l = l
	l.quiet = sync.NewCond(&l.mu)
	return l
}

// Index numbers the loops of a server from 0. Any goroutine.
func (l *Loop) Index() int { return l.index }

// Local is the handler's own state for this loop. Loop only.
func (l *Loop) Local() any { return l.local }

// SetLocal sets it. Loop only, or before any connection can arrive on the loop.
func (l *Loop) SetLocal(v any) { l.local = v }

// Post hands tasks to the loop, from any goroutine. They run in order, in one turn with what else was posted meanwhile; one
// wake-up serves the whole batch. Each runs exactly once, whatever becomes of the loop: those that wait when the server
// stops run before the loop ends, and later ones on a goroutine of their own, still one after the other, with all connections
// closed. Post keeps no reference to the slice. A task that keeps posting itself keeps the loop from its
// connections: what polls belongs on a goroutine or a timer.
func (l *Loop) Post(t ...Task) {
	l.mu.Lock()
	l.queue = append(l.queue, t...)
	if l.armed || l.inside {
		l.mu.Unlock()
		return
	}
	l.wakeUp()
}

// wakeUp has the poller drain the queue soon. It takes over the lock on mu and gives it up.
func (l *Loop) wakeUp() {
	l.armed = true
	if l.ended {
		l.mu.Unlock()
		go l.drainLate()
		return
	}
	l.waking++
	l.mu.Unlock()

	// The poller refuses only after its end, and it does not end while waking > 0.
	err := l.exec.Execute(context.Background(), &l.wake)

	l.mu.Lock()
	if l.waking--; l.waking == 0 && l.ended {
		l.quiet.Broadcast()
	}
	l.mu.Unlock()
	if err != nil {
		l.srv.o.Logger.Error("event loop cannot be woken", zap.String("server", l.srv.o.Name), zap.Error(err))
	}
}

// waker is the one runnable that a loop's poller ever executes.
type waker struct{ l *Loop }

func (w *waker) Run(context.Context) error {
	w.l.drain()
	return nil
}

// drain runs one batch of tasks as a turn.
func (l *Loop) drain() {
	l.mu.Lock()
	if l.ended { // an Execute that came behind the end
		l.mu.Unlock()
		return
	}
	l.armed, l.inside = false, true
	l.runQueue()
}

// runQueue runs what is posted and ends the time in which posting needs no wake-up. It takes over the lock on mu and gives it up.
func (l *Loop) runQueue() {
	l.takeLocked()
	l.mu.Unlock()
	l.runBatch()
	if l.ending {
		l.drainLast()
		return
	}
	l.mu.Lock()
	l.inside = false
	if len(l.queue) > 0 && !l.armed {
		l.wakeUp()
		return
	}
	l.mu.Unlock()
}

// enter begins a turn for an event. What is posted until leave, by the turn itself above all, needs no wake-up.
func (l *Loop) enter() {
	l.inTurn = true
	l.mu.Lock()
	l.inside = !l.ended
	l.mu.Unlock()
}

// leave runs what was posted since enter, once: a loop owes its connections a look in between.
func (l *Loop) leave() {
	l.mu.Lock()
	if !l.inside || len(l.queue) == 0 {
		l.inside = false
		l.mu.Unlock()
		return
	}
	l.runQueue()
}

// drainLast empties the queue for good: what is posted from here on goes to drainLate.
func (l *Loop) drainLast() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.ended, l.armed, l.inside = true, false, false
			l.mu.Unlock()
			close(l.onEnd)
			return
		}
		l.takeLocked()
		l.mu.Unlock()
		l.runBatch()
	}
}

func (l *Loop) drainLate() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.armed = false
			l.mu.Unlock()
			return
		}
		l.takeLocked()
		l.mu.Unlock()
		l.runBatch()
	}
}

func (l *Loop) takeLocked() {
	l.running, l.queue, l.spare = l.queue, l.spare, nil
}

func (l *Loop) runBatch() {
	tasks := l.running
	l.inTurn = true
	for next := 0; next < len(tasks); {
		next = l.runTasks(tasks, next)
	}
	l.endTurn(nil)
	clear(tasks)
	l.running = nil
	if cap(tasks) <= maxSpareTasks {
		l.spare = tasks[:0]
	}
}

const maxSpareTasks = 1 << 16

// runTasks runs tasks from next on and returns where to go on: behind the last one, or behind one that panicked.
func (l *Loop) runTasks(tasks []Task, next int) (done int) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(l.lastOut, p)
		}
	}()
	for done = next; done < len(tasks); {
		t := tasks[done]
		done++
		l.lastOut = nil
		t.RunOnLoop(l)
	}
	return done
}

// endTurn gives the handler its OnTurn, writes each connection's output once, and then closes what is to be closed.
// reading is the connection whose event this turn is, if any.
func (l *Loop) endTurn(reading *conn) {
	for again := true; again; {
		l.callOnTurn(reading)
		for len(l.touched)+len(l.dying) > 0 {
			l.flushTouched()
			l.closeDying()
		}
		again = l.reportGone()
	}
	l.lastOut = nil
	l.inTurn = false
	if l.watcher != nil {
		l.callOnWritten()
	}
}

func (l *Loop) callOnWritten() {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(nil, p)
		}
	}()
	l.watcher.OnWritten(l)
}

func (l *Loop) callOnTurn(reading *conn) {
	defer func() {
		if p := recover(); p != nil {
			if l.lastOut != nil {
				reading = l.lastOut
			}
			l.panicked(reading, p)
		}
	}()
	l.lastOut = nil
	l.srv.h.OnTurn(l)
}

func (l *Loop) flushTouched() {
	for i := 0; i < len(l.touched); i++ {
		l.touched[i].flush()
	}
	clear(l.touched)
	l.touched = l.touched[:0]
}

func (l *Loop) closeDying() {
	for i := 0; i < len(l.dying); i++ {
		if c := l.dying[i].c; !c.closed {
			c.cause = l.dying[i].err
			_ = l.exec.Close(c.gc) // comes back as closed()
		}
	}
	clear(l.dying)
	l.dying = l.dying[:0]
}

// reportGone calls the OnClose that closed connections are owed, and tells whether there was one.
func (l *Loop) reportGone() bool {
	if len(l.gone) == 0 {
		return false
	}
	for i := 0; i < len(l.gone); i++ {
		l.callOnClose(l.gone[i].c, l.gone[i].err)
	}
	clear(l.gone)
	l.gone = l.gone[:0]
	return true
}

func (l *Loop) callOnClose(c *conn, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(l.lastOut, p)
		}
	}()
	l.lastOut = nil
	l.srv.h.OnClose(c, err)
}

// opened takes in a connection that the poller has just registered.
func (l *Loop) opened(c *conn) {
	l.inTurn = true
	c.loop = l
	c.at = len(l.conns)
	l.conns = append(l.conns, c)
	c.active = l.clock()
	l.callOnOpen(c)
	l.endTurn(c)
}

func (l *Loop) callOnOpen(c *conn) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(c, p)
		}
	}()
	l.srv.h.OnOpen(c)
}

// received serves the bytes of one read event.
func (l *Loop) received(c *conn, b []byte) {
	l.enter()
	c.active = l.now
	l.serve(c, b)
	l.endTurn(c)
	l.leave()
}

func (l *Loop) serve(c *conn, b []byte) {
	defer func() {
		if p := recover(); p != nil {
			l.panicked(c, p)
		}
	}()
	if err := c.input(b); err != nil {
		l.srv.badFrame(c, err)
		c.fail(err)
	}
}

// closed is the poller's word that a connection is gone; err is what it knows of the reason.
func (l *Loop) closed(c *conn, err error) {
	if c.cause != nil {
		err = c.cause
	}
	c.closed = true
	l.inflight -= c.inflight
	last := len(l.conns) - 1
	l.conns[c.at], l.conns[last].at = l.conns[last], c.at
	l.conns[last] = nil
	l.conns = l.conns[:last]
	c.dropInput()
	l.leaveBacklog(c)
	l.srv.conns.Add(-1)
	l.gone = append(l.gone, death{c, err})
	if !l.inTurn {
		l.inTurn = true
		l.endTurn(nil)
	}
}

// panicked counts a handler's panic and closes the connection it is charged to, whose output may be half a frame.
func (l *Loop) panicked(c *conn, p any) {
	l.srv.stats.panics.Add(1)
	fields := []zap.Field{zap.String("server", l.srv.o.Name), zap.Any("panic", p), zap.ByteString("stack", debug.Stack())}
	if c != nil {
		fields = append(fields, zap.Stringer("peer", c.remote))
		c.fail(ErrPanic)
	}
	l.srv.o.Logger.Error("handler panicked", fields...)
}

// clock is the time since the server's start in ns, monotonic.
func (l *Loop) clock() int64 { return int64(time.Since(l.srv.start)) }
