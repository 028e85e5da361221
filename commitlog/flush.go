package commitlog

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"go.uber.org/zap"
)

const flushRetry = 100 * time.Millisecond

// flusher makes the log durable, and moves the flushed watermark, on its own goroutine.
type flusher struct {
	s      *Store
	mu     sync.Mutex // held during a flush
	target atomic.Int64
	idle   atomic.Bool
	wake   chan struct{}
	stop   chan struct{}
	done   chan struct{}
	fault  atomic.Pointer[error]

	// Of the goroutine alone:
	seen     int64     // the log's end at the last tick
	thorough time.Time // when all of it was flushed last
}

func newFlusher(s *Store) *flusher {
	return &flusher{s: s, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), thorough: time.Now()}
}

// FlushTo asks that everything below off becomes durable soon: group commit. It does not wait; see [Store.OnFlushed].
func (s *Store) FlushTo(off int64) {
	f := s.flush
	for {
		old := f.target.Load()
		if off <= old {
			break
		}
		if f.target.CompareAndSwap(old, off) {
			break
		}
	}
	if f.idle.Load() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// OnFlushed is called after each move of the flushed watermark, by the goroutine that flushed.
func (s *Store) OnFlushed(f func(off int64)) { s.onFlushed.Store(&f) }

// OnWritten is called after each move of the log's end, by the appender, outside the append section. Calls of several appenders may
// overtake one another.
func (s *Store) OnWritten(f func(end int64)) { s.onWritten.Store(&f) }

func (f *flusher) run() {
	defer close(f.done)
	tick := time.NewTicker(f.s.opt.FlushInterval)
	defer tick.Stop()
	for {
		if f.asked() {
			if f.flush() != nil {
				f.pause(flushRetry)
			}
			select {
			case <-f.stop:
				return
			default:
				continue
			}
		}
		f.idle.Store(true)
		if f.asked() {
			f.idle.Store(false)
			continue
		}
		select {
		case <-f.wake:
		case now := <-tick.C:
			_ = f.atTick(now) // kept in f.fault, tried again at the next tick
		case <-f.stop:
			return
		}
		f.idle.Store(false)
	}
}

// atTick flushes what nobody asked for. What lies around the log's end is left out while appends go on: an append to memory on its way to
// the disk faults, and may wait. The kernel handles as one what the window wrote as one, so where that is passed between two ticks, what is
// left out is the chunk, and otherwise the page.
func (f *flusher) atTick(now time.Time) error {
	end := f.s.written.Load()
	quiet := end == f.seen
	f.seen = end
	if f.s.opt.SyncFlush || quiet || now.Sub(f.thorough) >= f.s.opt.FlushThorough {
		f.thorough = now
		return f.flush()
	}
	if f.dirtyPages() < int64(f.s.opt.FlushLeastPages) {
		return nil
	}
	inSegment := end % f.s.opt.SegmentSize
	if whole := end - inSegment%windowChunk; whole > f.s.flushed.Load() {
		return f.flushTo(whole)
	}
	return f.flushTo(end - inSegment%pageSize)
}

// asked tells whether somebody waits for bytes that are there but not durable.
func (f *flusher) asked() bool {
	return f.s.flushed.Load() < min(f.target.Load(), f.s.written.Load())
}

func (f *flusher) dirtyPages() int64 {
	return f.s.written.Load()/pageSize - f.s.flushed.Load()/pageSize
}

func (f *flusher) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.stop:
	}
}

// flush makes everything written so far durable.
func (f *flusher) flush() error { return f.flushTo(f.s.written.Load()) }

// flushTo makes everything below to durable, which was written.
func (f *flusher) flushTo(to int64) error {
	f.mu.Lock()
	from := f.s.flushed.Load()
	to = min(to, f.s.written.Load()) // the log may have been cut
	if to <= from {
		f.mu.Unlock()
		return nil
	}
	err := f.sync(from, to)
	if err == nil {
		f.s.flushed.Store(to)
	}
	f.report(err)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if cb := f.s.onFlushed.Load(); cb != nil {
		(*cb)(to)
	}
	return nil
}

// sync makes [from, to) durable, segment by segment.
func (f *flusher) sync(from, to int64) error {
	for pos := from; pos < to; {
		g := f.s.segs.pin(pos)
		if g == nil {
			return f.s.outOfRange(pos, to)
		}
		first, last := pos-g.base, min(to, g.end())-g.base
		g.unmapPages(first, last)
		err := g.sync(first, last)
		if err != nil {
			g.dirtyAgain(first, last)
		}
		pos = g.end()
		g.unpin()
		if err != nil {
			return err
		}
	}
	return nil
}

// dirtyAgain marks pages for writing once more. After a failed write-back the kernel takes them for clean, and the next sync
// would report a success it did not have. Adding 0 atomically changes no byte, whoever else writes there.
func (g *segment) dirtyAgain(from, to int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.mem.Load()
	if m == nil || !g.writable {
		return
	}
	for at := from - from%pageSize; at+4 <= int64(len(*m)) && at < to; at += pageSize {
		atomic.AddInt32((*int32)(unsafe.Pointer(&(*m)[at])), 0)
	}
}

func (f *flusher) report(err error) {
	old := f.fault.Load()
	if err == nil {
		if old != nil {
			f.fault.Store(nil)
			f.s.log.Info("log is flushed again", zap.Int64("flushed", f.s.flushed.Load()))
		}
		return
	}
	err = fmt.Errorf("%w: log at %d: %w", ErrFlushFailed, f.s.flushed.Load(), err)
	if old == nil || (*old).Error() != err.Error() {
		f.s.log.Error("log not flushed, trying again", zap.Error(err))
	}
	f.fault.Store(&err)
}
