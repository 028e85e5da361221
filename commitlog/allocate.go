package commitlog

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// errIsDir is what kernels without unnamed files say when asked for one.
const errIsDir = unix.EISDIR

// allocRetry is how long a failed allocation is believed, so that a stream of appends to a full disk does not become a
// stream of allocations.
const allocRetry = 200 * time.Millisecond

// allocator makes the next segment on its own goroutine, ahead of need.
type allocator struct {
	fs   FS
	dir  string
	size int64
	log  *zap.Logger
	made func()

	mu      sync.Mutex
	changed *sync.Cond
	want    int64 // base to make, -1 for none
	making  int64 // base being made, -1 for none
	ready   *segment
	err     error // why the last one failed
	errBase int64
	errAt   time.Time
	closed  bool
	done    chan struct{}
}

// newAllocator starts an allocator. made is called when a segment is ready, under its lock.
func newAllocator(fs FS, dir string, size int64, log *zap.Logger, made func()) *allocator {
	a := &allocator{fs: fs, dir: dir, size: size, log: log, made: made, want: -1, making: -1, errBase: -1, done: make(chan struct{})}
	a.changed = sync.NewCond(&a.mu)
	go a.run()
	return a
}

func (a *allocator) run() {
	defer close(a.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for !a.closed && a.want < 0 {
			a.changed.Wait()
		}
		if a.closed {
			return
		}
		base := a.want
		a.want, a.making = -1, base
		a.mu.Unlock()
		g, err := createSegment(a.fs, a.dir, base, a.size)
		a.mu.Lock()
		a.making = -1
		if err != nil {
			a.err, a.errBase, a.errAt = segmentError(base, err), base, time.Now()
			a.log.Error("next segment not allocated", zap.String("segment", segmentName(base)), zap.Error(err))
		} else {
			a.dropReady()
			a.ready, a.err = g, nil
			a.made()
		}
		a.changed.Broadcast()
	}
}

// prepare asks for the segment at base without waiting for it.
func (a *allocator) prepare(base int64) {
	a.mu.Lock()
	if !a.closed && a.making != base && (a.ready == nil || a.ready.base != base) {
		a.want = base
		a.changed.Broadcast()
	}
	a.mu.Unlock()
}

// take returns the segment at base, which in the ordinary case is ready.
func (a *allocator) take(base int64) (*segment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		switch {
		case a.closed:
			return nil, ErrClosed
		case a.ready != nil && a.ready.base == base:
			g := a.ready
			a.ready = nil
			return g, nil
		case a.err != nil && a.errBase == base && time.Since(a.errAt) < allocRetry:
			return nil, a.err
		case a.making != base && a.want != base:
			a.err = nil
			a.want = base
			a.changed.Broadcast()
		}
		a.changed.Wait()
	}
}

// next pins the segment at base if it is ready; nil if not.
func (a *allocator) next(base int64) *segment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ready == nil || a.ready.base != base {
		return nil
	}
	a.ready.pin()
	return a.ready
}

// discard removes what is ready but was never used, and forgets what was asked for.
func (a *allocator) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.want = -1
	for a.making >= 0 {
		a.changed.Wait()
	}
	a.dropReady()
	a.err = nil
}

// dropReady needs a.mu.
func (a *allocator) dropReady() {
	if a.ready == nil {
		return
	}
	if err := a.fs.Remove(a.ready.path); err != nil {
		a.log.Warn("unused segment not removed", zap.String("file", a.ready.path), zap.Error(err))
	}
	a.ready.unpin()
	a.ready = nil
}

// close ends the goroutine and removes an unused segment.
func (a *allocator) close() {
	a.mu.Lock()
	a.closed = true
	a.changed.Broadcast()
	a.mu.Unlock()
	<-a.done
	a.mu.Lock()
	a.dropReady()
	a.mu.Unlock()
}
