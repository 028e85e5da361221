package commitlog

import (
	"encoding/binary"
	"fmt"
	"time"

	"tandem/codec"
)

// Append is one item of an append section: what to store, and where it went. The caller owns it and may use it again.
type Append struct {
	// Bytes is one encoded record, or Count of them back to back (a batch). They are copied; queueOffset,
	// physicalOffset and storeTimestamp are set in the copy.
	Bytes []byte
	// Queue gives the number, Count of them. nil for records that take none (prepared, rolled back): they get 0.
	Queue *Queue
	// Count is the number of records in Bytes; 0 means 1.
	Count int
	// TagsKnown says that Bytes is one record as codec.Record.Append makes it, with the topic and number of Queue, and that TagsCode is
	// codec.TagsCode of its tag, 0 if it has none: the dispatcher then does not read it in the log. Batches and what is delayed it reads anyway.
	TagsKnown bool
	TagsCode  int64
	// Tag belongs to the caller.
	Tag uint64

	Offset, End    int64 // the bytes lie at [Offset, End) of the log
	QueueOffset    int64 // of the first record
	StoreTimestamp int64 // ms
	Err            error // ErrDiskFull, ErrNoSegment, ErrTooLarge, ErrBadBatch, ErrNotWritable, ErrClosed; then nothing was stored
}

// Hook is told of each stored item inside the append section, in the order of the log, before any of the section's bytes
// can be read or replicated. It must be quick.
type Hook interface{ Appended(a *Append) }

// Append stores the items of batch in one section, in order. Items fail one by one (see [Append.Err]); those that do not
// lie one behind the other, but for filler where a segment ends. The bytes are in the page cache afterwards: they survive
// the process, not the machine (see [Store.FlushTo]). Safe from any goroutine; allocates nothing.
func (s *Store) Append(batch []*Append, hook Hook) {
	for _, a := range batch {
		a.Err = s.check(a)
	}
	now := s.opt.Now()
	began := time.Since(s.born)
	s.mu.Lock()
	if err := s.writable(); err != nil {
		s.mu.Unlock()
		for _, a := range batch {
			a.Err = err
		}
		return
	}
	s.storeTime = max(s.storeTime, now)
	for _, a := range batch {
		if a.Err == nil {
			s.appendOne(a, hook)
		}
	}
	end := s.end
	s.notes.post()
	s.written.Store(end)
	s.times.add(time.Since(s.born) - began)
	s.mu.Unlock()
	s.announce(end)
}

// announce tells the followers of the log about its new end.
func (s *Store) announce(end int64) {
	if !s.opt.LazyDispatch {
		s.dispatch.poke()
	}
	if f := s.onWritten.Load(); f != nil {
		(*f)(end)
	}
	s.window.grown(end)
}

// writable needs s.mu.
func (s *Store) writable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if s.slave.Load() {
		return fmt.Errorf("%w: this is a slave", ErrNotWritable)
	}
	return s.notBroken()
}

func (s *Store) notBroken() error {
	if p := s.broken.Load(); p != nil {
		return fmt.Errorf("%w: %w", ErrNotWritable, *p)
	}
	return nil
}

// check looks at an item before the lock is taken.
func (s *Store) check(a *Append) error {
	if int64(len(a.Bytes))+minRoom > s.opt.SegmentSize {
		return ErrTooLarge
	}
	count := 0
	for b := a.Bytes; len(b) > 0; count++ {
		if len(b) < codec.MinRecordSize {
			return ErrBadBatch
		}
		size := int64(int32(binary.BigEndian.Uint32(b)))
		if size < codec.MinRecordSize || size > int64(len(b)) {
			return ErrBadBatch
		}
		b = b[size:]
	}
	if count != max(a.Count, 1) {
		return ErrBadBatch
	}
	return nil
}

// appendOne needs s.mu.
func (s *Store) appendOne(a *Append, hook Hook) {
	mem, pos, err := s.space(int64(len(a.Bytes)))
	if err != nil {
		a.Err = err
		return
	}
	q := a.Queue
	if q != nil {
		if q.dead.Load() {
			q = s.Queue(q.topic, q.id)
			a.Queue = q
		}
		a.QueueOffset = q.next
		q.next += int64(max(a.Count, 1))
	} else {
		a.QueueOffset = 0
	}
	a.StoreTimestamp = s.storeTime
	a.Offset, a.End = pos, pos+int64(len(a.Bytes))
	a.store(mem[:len(a.Bytes)])
	s.end = a.End
	s.noteFor(a)
	if hook != nil {
		hook.Appended(a)
	}
}

// store copies an item into the mapping and sets what only the append section knows. The first size field comes last: a
// process that is killed in between leaves nothing that could be read as a record.
func (a *Append) store(mem []byte) {
	const sizeLen = 4
	copy(mem[sizeLen:], a.Bytes[sizeLen:])
	number, pos := a.QueueOffset, a.Offset
	for at := 0; at < len(a.Bytes); {
		size := int(binary.BigEndian.Uint32(a.Bytes[at:]))
		codec.PatchRecord(mem[at:at+size], number, pos, a.StoreTimestamp)
		if a.Queue != nil {
			number++
		}
		pos += int64(size)
		at += size
	}
	copy(mem[:sizeLen], a.Bytes)
}

// space finds room for n bytes and the filler's head behind them, going to the next segment if this one has too little
// left. Nothing is changed unless it succeeds. Needs s.mu.
func (s *Store) space(n int64) (mem []byte, pos int64, err error) {
	if s.active == nil || s.active.end()-s.end < n+minRoom {
		if err := s.roll(); err != nil {
			return nil, 0, err
		}
	}
	if err := s.readyActive(); err != nil {
		return nil, 0, err
	}
	s.window.reach(s.end + n)
	return s.activeMem[s.end-s.active.base:], s.end, nil
}

// roll goes on to the next segment, filling what is left of the active one. Needs s.mu.
func (s *Store) roll() error {
	base := s.end
	if s.active != nil {
		base = s.active.end()
		if err := s.readyActive(); err != nil && s.end < base {
			return err
		}
	}
	g, err := s.alloc.take(base)
	if err != nil {
		return err
	}
	if rest := base - s.end; s.active != nil && rest >= minRoom {
		at := s.end - s.active.base
		s.window.reach(s.end + minRoom)
		codec.AppendBlank(s.activeMem[at:at:at+minRoom], int(rest))
	}
	s.activate(g)
	s.end = base
	return nil
}

// activate makes g the segment that is written. Needs s.mu.
func (s *Store) activate(g *segment) {
	s.segs.add(g)
	s.active, s.activeMem = g, nil
	if g.writable {
		s.activeMem, _ = g.bytes() // mapped when it was made
	}
	if s.activeMem != nil {
		s.window.follow(g, g.base)
	}
	s.alloc.prepare(g.end())
}

// readyActive sees to it that the active segment has its disk space and a writable mapping, which one taken over from
// elsewhere may lack. Needs s.mu.
func (s *Store) readyActive() error {
	if s.activeMem != nil {
		return nil
	}
	if err := s.mapActive(); err != nil {
		return err
	}
	s.window.follow(s.active, s.end)
	return nil
}

// mapActive is readyActive before the window may know of the segment. Needs s.mu, or to be alone.
func (s *Store) mapActive() error {
	g := s.active
	if err := g.makeWritable(); err != nil {
		return segmentError(g.base, err)
	}
	mem, err := g.bytes()
	if err != nil {
		return segmentError(g.base, err)
	}
	s.activeMem = mem
	return nil
}
