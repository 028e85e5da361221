package commitlog

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// windowChunk is prepared at a time. A writer in need waits for one chunk at most, some 0.1 ms.
	windowChunk = 256 << 10
	// windowLeast and windowMost bound how far ahead of the log's end is prepared: little while idle, since zeros that are not soon
	// overwritten go to the disk for nothing, and never so much that a dead window would matter to the page cache.
	windowLeast = 4 << 20
	windowMost  = 64 << 20
	// windowLead is the time for which the window should last at the present rate.
	windowLead = 200 * time.Millisecond
	// windowUse is what a writer takes of a part-way prepared window rather than going beyond it.
	windowUse = 64 << 10
	// never is a position no log reaches.
	never = math.MaxInt64
)

// window prepares the bytes behind the log's end on its own goroutine, so that appends find pages that are in memory, mapped and dirty:
// it writes zeros through the file, which costs the kernel a fraction of what faults on the mapping cost, and then has the pages
// mapped for writing.
//
// The zeros can never meet bytes of the log, because of the edge. Below it the log's writer may write, from it on only the
// preparer does. It moves up in two ways, both under mu: by the preparer, which holds mu while it works on the chunk at the edge, and by
// a writer that needs more than there is (reach); such a writer then takes the faults itself. It moves down only where the
// log is cut (reset), when no writer is at work. A position is given to the writer for good: a segment that is made anew is merely not prepared.
type window struct {
	s    *Store
	edge atomic.Int64 // a whole number of pages into its segment, or the segment's end
	// callAt is the end of the log at which the preparer wants to be woken; never while it is awake.
	callAt  atomic.Int64
	waiting atomic.Bool // a writer waits for mu
	missed  atomic.Bool // a writer had to go beyond the edge

	mu     sync.Mutex // taken under the append lock, and before the allocator's
	seg    *segment   // pinned: where the log's end lies, if it can be written
	left   []*segment // pinned: those before, whose advice has to be taken back
	failed bool       // said so in the log

	// Of the goroutine alone:
	zeros    []byte // a chunk of them
	size     int64
	populate bool // the kernel maps pages for writing on request
	wokenAt  time.Time
	wokenEnd int64

	wake, stop, done chan struct{}
}

func newWindow(s *Store) *window {
	w := &window{
		s: s, size: windowLeast, populate: true,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	w.callAt.Store(never)
	return w
}

// reach gives the bytes below pos, which lie in the active segment, to the writer. Needs the append lock.
func (w *window) reach(pos int64) {
	if pos > w.edge.Load() {
		w.reachBeyond(pos)
	}
}

func (w *window) reachBeyond(pos int64) {
	w.waiting.Store(true)
	w.mu.Lock()
	w.waiting.Store(false)
	if pos > w.edge.Load() {
		w.edge.Store(w.pageEnd(pos))
		w.missed.Store(true)
	}
	w.mu.Unlock()
}

// pageEnd rounds a position up to whole pages of its segment.
func (w *window) pageEnd(pos int64) int64 {
	in := pos % w.s.opt.SegmentSize
	return pos + min((pageSize-in%pageSize)%pageSize, w.s.opt.SegmentSize-in)
}

// follow tells that g is written now, from pos on. Needs the append lock.
func (w *window) follow(g *segment, pos int64) {
	w.mu.Lock()
	w.turnTo(g)
	w.edge.Store(max(w.edge.Load(), w.pageEnd(pos)))
	w.mu.Unlock()
	w.call()
}

// reset tells that the log ends at end, in g, which is nil while there is no segment that could be written. Nobody writes to the log:
// needs quiesce, or to be alone.
func (w *window) reset(g *segment, end int64) {
	w.mu.Lock()
	w.turnTo(g)
	w.edge.Store(w.pageEnd(end))
	w.mu.Unlock()
	w.call()
}

// turnTo needs w.mu.
func (w *window) turnTo(g *segment) {
	if g == w.seg {
		return
	}
	if w.seg != nil {
		w.left = append(w.left, w.seg)
	}
	w.seg = nil
	if g != nil && g.pin() {
		w.seg = g
	}
}

// grown tells that the log has a new end, and wakes the preparer if that is what it waits for. It belongs behind the append section.
func (w *window) grown(end int64) {
	if end >= w.callAt.Load() {
		w.call()
	}
}

func (w *window) call() {
	w.callAt.Store(never)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *window) run() {
	defer close(w.done)
	defer w.letGo()
	defer w.makeZeros()()
	for {
		if !w.fill() {
			return
		}
		w.takeBack()
		w.sleepUntilUsed()
		select {
		case <-w.wake:
			w.fit(time.Now())
		case <-w.stop:
			return
		}
	}
}

// makeZeros maps what is written ahead, and returns what gives it back. Memory that is only read is one page of zeros again and again,
// which stays in the processor's first cache.
func (w *window) makeZeros() (free func()) {
	mem, err := unix.Mmap(-1, 0, windowChunk, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		w.zeros = make([]byte, windowChunk)
		return func() {}
	}
	w.zeros = mem
	return func() { _ = unix.Munmap(mem) }
}

// fill prepares chunk after chunk until the window is full; false when the store closes.
func (w *window) fill() bool {
	for w.step() {
		giveWay()
		for w.waiting.Load() {
			select {
			case <-w.stop:
				return false
			default:
				runtime.Gosched()
			}
		}
		select {
		case <-w.stop:
			return false
		default:
		}
	}
	return true
}

// step prepares the chunk at the edge. It tells whether there was something to do.
func (w *window) step() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	edge := w.edge.Load()
	if edge >= w.s.written.Load()+w.size {
		return false
	}
	g := w.holder(edge)
	if g == nil {
		return false
	}
	defer g.unpin()
	from := edge - g.base
	to := min(from-from%windowChunk+windowChunk, g.size)
	if err := w.prepare(g, from, to); err != nil {
		w.giveUp(g, err)
		return true
	}
	w.edge.Store(g.base + to)
	return true
}

// holder pins the segment that holds the edge: the one being written or the allocator's next. Needs w.mu.
func (w *window) holder(edge int64) *segment {
	if w.seg != nil && edge >= w.seg.base && edge < w.seg.end() {
		w.seg.pin()
		return w.seg
	}
	return w.s.alloc.next(edge - edge%w.s.opt.SegmentSize)
}

// prepare zeroes bytes [from, to) of a segment, whole pages that nobody else writes, and maps them for writing.
func (w *window) prepare(g *segment, from, to int64) error {
	mem, err := g.bytes()
	if err != nil {
		return err
	}
	if _, err := g.file.WriteAt(w.zeros[:to-from], from); err != nil || !w.populate {
		return err
	}
	err = unix.Madvise(mem[from:to], unix.MADV_POPULATE_WRITE)
	switch {
	case errors.Is(err, unix.EINVAL): // kernels before 5.14, and mappings that cannot
		w.populate = false
		return nil
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // some pages are left to the writer
		return nil
	}
	return err
}

// giveUp leaves the rest of a segment to the writer. Needs w.mu.
func (w *window) giveUp(g *segment, err error) {
	w.edge.Store(g.end())
	if !w.failed {
		w.failed = true
		w.s.log.Warn("segment not prepared ahead of appends, which will be slower", zap.String("file", g.path), zap.Error(err))
	}
}

// sleepUntilUsed asks to be woken when half of the window is used up, or, where it could not be filled, a little later.
func (w *window) sleepUntilUsed() {
	written := w.s.written.Load()
	at := max(w.edge.Load()-w.size/2, written+windowChunk)
	w.callAt.Store(at)
	if w.s.written.Load() >= at {
		w.call()
	}
}

// fit sets the window's size by the rate at which it was used since the last time.
func (w *window) fit(now time.Time) {
	end := w.s.written.Load()
	used, took := end-w.wokenEnd, now.Sub(w.wokenAt)
	if used >= 0 && used < windowLeast/4 && !w.missed.Load() {
		return // too little to tell a rate from
	}
	w.wokenEnd, w.wokenAt = end, now
	want := w.size / 2
	if used > 0 && took > 0 {
		want = max(want, int64(2*float64(used)*float64(windowLead)/float64(took)))
	}
	if w.missed.Swap(false) {
		want = max(want, 2*w.size)
	}
	w.size = min(max(want, windowLeast), windowMost)
}

// takeBack lets reading ahead be as usual where nothing is written any more.
func (w *window) takeBack() {
	w.mu.Lock()
	left := w.left
	w.left = nil
	w.mu.Unlock()
	for _, g := range left {
		g.advise(unix.MADV_NORMAL)
		g.unpin()
	}
}

// letGo gives the segments back.
func (w *window) letGo() {
	w.mu.Lock()
	w.turnTo(nil)
	w.mu.Unlock()
	w.takeBack()
}
