package commitlog

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Slice is a piece of the log in a mapping. Bytes must not be written, and are valid until Release.
type Slice struct {
	Bytes []byte
	seg   *segment
}

// Release gives the slice back; exactly once (copies of a Slice count as the same). The zero Slice needs none.
func (sl Slice) Release() {
	if sl.seg != nil {
		sl.seg.unpin()
	}
}

// Read is the log from offset on: n bytes, less where the segment or the log ends earlier. At the end of the log it is empty.
// Touching the bytes may wait for the disk; see [Store.Cold]. Errors: ErrOutOfRange, ErrClosed.
func (s *Store) Read(offset int64, n int) (Slice, error) {
	end := s.written.Load()
	if offset < s.MinOffset() || offset > end || n < 0 {
		return Slice{}, s.outOfRange(offset, end)
	}
	if offset == end {
		return Slice{}, nil
	}
	g := s.segs.pin(offset)
	if g == nil {
		return Slice{}, s.outOfRange(offset, end)
	}
	mem, err := g.bytes()
	if err != nil {
		g.unpin()
		return Slice{}, err
	}
	from := offset - g.base
	to := min(from+int64(n), g.size, end-g.base)
	return Slice{Bytes: mem[from:to:to], seg: g}, nil
}

func (s *Store) outOfRange(offset, end int64) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return fmt.Errorf("%w: %d, the log holds [%d, %d)", ErrOutOfRange, offset, s.MinOffset(), end)
}

// Segment pins the segment that holds offset. At the end of the log there may be none yet. Errors: ErrOutOfRange, ErrClosed.
func (s *Store) Segment(offset int64) (*SegmentRef, error) {
	g := s.segs.pin(offset)
	if g == nil {
		return nil, s.outOfRange(offset, s.written.Load())
	}
	if _, err := g.bytes(); err != nil {
		g.unpin()
		return nil, err
	}
	return &SegmentRef{g}, nil
}

// RecordAt is the whole record that starts exactly at off, checked in full. Errors: ErrNoRecord, ErrOutOfRange, ErrClosed.
func (s *Store) RecordAt(off int64) (Slice, error) {
	sl, err := s.Read(off, int(s.opt.SegmentSize))
	if err != nil {
		return Slice{}, err
	}
	if sl.seg == nil {
		return Slice{}, fmt.Errorf("%w: %d is the end", ErrNoRecord, off)
	}
	var e entry
	if e.inspect(sl.Bytes, off, sl.seg.end()-off, true) != findRecord {
		sl.Release()
		return Slice{}, fmt.Errorf("%w: %d", ErrNoRecord, off)
	}
	sl.Bytes = sl.Bytes[:e.size:e.size]
	return sl, nil
}

// LastRecord is where the last whole record lies: what a slave compares with its master. ok is false if there is none. It walks
// at most what the dispatcher has not seen yet.
func (s *Store) LastRecord() (start, end int64, ok bool) {
	s.dispatch.mu.Lock()
	last, pos := s.dispatch.last, s.dispatch.pos
	s.dispatch.mu.Unlock()
	walkErr := s.walk(pos, s.written.Load(), false, func(e *entry) bool {
		last = lastRecord{start: e.pos, end: e.end()}
		return true
	})
	_ = walkErr // what cannot be read is not a whole record
	return last.start, last.end, last.end > 0
}

// walk calls f for the records in [from, to) until it returns false, or something is not a whole record. from must be a
// record's start.
func (s *Store) walk(from, to int64, full bool, f func(*entry) bool) error {
	var e entry
	for pos := from; pos < to; {
		g := s.segs.pin(pos)
		if g == nil {
			return nil
		}
		mem, err := g.bytes()
		if err != nil {
			g.unpin()
			return err
		}
		limit := min(to, g.end())
		for pos < limit {
			what := e.inspect(mem[pos-g.base:limit-g.base], pos, g.end()-pos, full)
			if what == findRecord && f(&e) || what == findBlank && e.end() <= limit {
				pos = e.end()
				continue
			}
			g.unpin()
			return nil
		}
		g.unpin()
	}
	return nil
}

// warmWindow is how far behind the end the log is taken to be in memory.
const warmWindow = 64 << 20

// Cold tells whether reading [offset, offset+n) probably waits for the disk. It costs nothing near the log's end and one system
// call elsewhere.
func (s *Store) Cold(offset int64, n int) bool {
	if n <= 0 || s.written.Load()-offset < warmWindow {
		return false
	}
	sl, err := s.Read(offset, n)
	if err != nil || len(sl.Bytes) == 0 {
		return false
	}
	defer sl.Release()
	var few [256]byte // 1 MiB of pages at a time
	for b := pages(sl.Bytes); len(b) > 0; {
		part := b[:min(len(b), len(few)*pageSize)]
		count := (len(part) + pageSize - 1) / pageSize
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&part[0])), uintptr(len(part)),
			uintptr(unsafe.Pointer(&few[0])))
		if errno != 0 {
			return true
		}
		for _, p := range few[:count] {
			if p&1 == 0 {
				return true
			}
		}
		b = b[len(part):]
	}
	return false
}

// Populate brings [offset, offset+n) into memory, waiting for the disk. For goroutines that may wait, not for event loops.
func (s *Store) Populate(offset int64, n int) error {
	for n > 0 {
		sl, err := s.Read(offset, n)
		if err != nil {
			return err
		}
		if len(sl.Bytes) == 0 {
			return nil
		}
		err = populate(pages(sl.Bytes))
		offset += int64(len(sl.Bytes))
		n -= len(sl.Bytes)
		sl.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func populate(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_READ)
	if errors.Is(err, unix.EINVAL) { // kernels before 5.14
		return unix.Madvise(b, unix.MADV_WILLNEED)
	}
	return err
}

const pageSize = 4096

// pages widens a piece of a mapping to whole pages. The mapping begins on one, so the bytes before b belong to it.
func pages(b []byte) []byte {
	lead := int(uintptr(unsafe.Pointer(&b[0])) % pageSize)
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&b[0]), -lead)), lead+len(b))
}
