package commitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
)

// SetSlave changes the role. A slave refuses Append and takes RawBuffer; a master the reverse. Becoming a master dispatches
// everything that is whole, cuts an unfinished record off the end, and takes the queue counters from the queues; it fails,
// and the store stays a slave, if the log's end is corrupt or cannot be dispatched. The caller has stopped replication before.
func (s *Store) SetSlave(slave bool) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.quiesce()
	defer s.resume()
	if s.closed.Load() {
		return ErrClosed
	}
	if slave == s.slave.Load() {
		return nil
	}
	if slave {
		s.slave.Store(true)
		return nil
	}
	for more := true; more; {
		var err error
		if more, _, err = s.dispatch.roundLocked(s.end); err != nil {
			return err
		}
	}
	if p := s.dispatch.fault.Load(); p != nil {
		return fmt.Errorf("cannot become master: %w", *p)
	}
	if pos := s.dispatch.pos; pos < s.end {
		s.log.Info("unfinished record cut off the log's end", zap.Int64("end", pos), zap.Int64("bytes", s.end-pos))
		if err := s.truncate(pos, s.dispatch.last); err != nil {
			return err
		}
	}
	for _, q := range s.queues.all() {
		q.next = q.max.Load()
	}
	s.storeTime = max(s.storeTime, s.dispatch.last.storeTime)
	s.slave.Store(false)
	if s.active == nil {
		s.alloc.prepare(0)
	}
	return nil
}

// TruncateTo cuts the log at off, which must be the start of a record, of filler or of a segment, or the end of the last whole
// record, and cuts the queues to match. It is durable when it returns. The caller has proven that what is cut is not needed.
func (s *Store) TruncateTo(off int64) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.quiesce()
	defer s.resume()
	if s.closed.Load() {
		return ErrClosed
	}
	if off == s.end {
		return nil
	}
	if off < s.MinOffset() || off > s.end {
		return fmt.Errorf("%w: cannot cut at %d, the log holds [%d, %d)", ErrOutOfRange, off, s.MinOffset(), s.end)
	}
	last := s.lastBefore(off)
	if !s.isBoundary(off, last) {
		return fmt.Errorf("%w: cannot cut at %d, no record begins there", ErrNoRecord, off)
	}
	return s.truncate(off, last)
}

func (s *Store) isBoundary(off int64, last lastRecord) bool {
	return off%s.opt.SegmentSize == 0 || off == last.end
}

// truncate needs saveMu and quiesce. If it fails half-way the store takes no more writes until it is opened again.
func (s *Store) truncate(off int64, last lastRecord) error {
	err := s.cut(off, last)
	if err != nil {
		err = fmt.Errorf("cut at %d failed, the store must be opened again: %w", off, err)
		s.broken.Store(&err)
	}
	return err
}

// cut does the work of truncate. What checkpoint and manifest say is lowered first, so that a crash at any point is one
// that recovery knows.
func (s *Store) cut(off int64, last lastRecord) error {
	if err := s.dispatch.flushUnits(); err != nil {
		return err
	}
	s.alloc.discard()
	oldEnd, durable := s.end, min(s.flushed.Load(), off)
	lower := off < s.dispatched.Load()
	if lower {
		if err := s.cutQueues(off); err != nil {
			return err
		}
		s.dispatch.reset(off, last)
		s.dispatched.Store(off)
	}
	s.recount(off)
	s.dispatch.fault.Store(nil)
	s.dispatch.stuckAt = 0
	s.end = off
	s.written.Store(off)
	s.flushed.Store(durable)
	if err := s.syncRange(durable, off); err != nil {
		return err
	}
	s.flushed.Store(off)
	s.keep.lower(last)
	if err := s.keep.saveLocked(s.pictureLocked()); err != nil {
		return err
	}
	if err := s.cutLog(off, false); err != nil {
		return err
	}
	s.resetWindow()
	if lower {
		if err := s.clearQueues(); err != nil {
			return err
		}
	}
	if s.active != nil {
		s.alloc.prepare(s.active.end())
	}
	s.log.Warn("log was cut", zap.Int64("end", off), zap.Int64("was", oldEnd))
	return nil
}

// cutQueues takes units at or above a log position out of account.
func (s *Store) cutQueues(pos int64) error {
	for _, q := range s.queues.all() {
		if q.virgin {
			continue
		}
		end, err := q.firstAt(q.max.Load(), pos)
		if err != nil {
			return err
		}
		q.reached = max(q.reached, q.max.Load())
		q.max.Store(end)
		q.min.Store(min(q.min.Load(), end))
	}
	return nil
}

// recount sets the queues' counters from what the log holds below end.
func (s *Store) recount(end int64) {
	for _, q := range s.queues.all() {
		q.next = q.max.Load()
	}
	_ = s.walk(s.dispatched.Load(), end, false, func(e *entry) bool {
		r := &e.rec
		if q := s.queues.getBytes(r.Topic, r.QueueID); q != nil && takesQueueEntry(r.SysFlag) && e.pos >= q.floor &&
			canFollow(r.QueueOffset, q.next, q.begins() && q.next == 0) {
			q.next = max(q.next, r.QueueOffset+1)
		}
		return true
	})
}

// clearQueues clears files beyond the queues' ends.
func (s *Store) clearQueues() error {
	for _, q := range s.queues.all() {
		f := queueFiles{q: q}
		for base := q.first; base < q.reached; base += q.units() {
			f.bases = append(f.bases, base)
		}
		if err := f.clearTail(); err != nil {
			return err
		}
		q.reached = 0
		if q.max.Load() == 0 {
			q.virgin = true
		}
	}
	return s.keep.syncQueues(1)
}

// lower takes back what the checkpoint says about times after a record.
func (k *keeper) lower(last lastRecord) {
	k.cp.physicTime = min(k.cp.physicTime, last.storeTime)
	k.cp.logicsTime = min(k.cp.logicsTime, last.storeTime)
}

// Reset empties log and queues: for a slave whose copy turned out to be worth nothing. The role stays.
func (s *Store) Reset() error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.quiesce()
	defer s.resume()
	if s.closed.Load() {
		return ErrClosed
	}
	err := s.wipe()
	if err != nil {
		err = fmt.Errorf("reset failed, the store must be opened again: %w", err)
		s.broken.Store(&err)
	}
	return err
}

func (s *Store) wipe() error {
	s.alloc.discard()
	if err := s.fs.Remove(s.manifestPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	was := s.end
	s.setPositions(0, lastRecord{})
	s.storeTime = 0
	s.keep.cp = checkpoint{indexTime: s.keep.cp.indexTime}
	if err := s.keep.write(s.keep.cp); err != nil {
		return err
	}
	for _, q := range s.queues.all() {
		if err := s.removeQueue(q); err != nil {
			return err
		}
	}
	s.queues.clear()
	if err := s.dropSegments(); err != nil {
		return err
	}
	s.log.Warn("log and consume queues were emptied", zap.Int64("end", was))
	return s.keep.saveLocked(s.pictureLocked())
}

// dropSegments removes all segments, newest first. Needs quiesce.
func (s *Store) dropSegments() error {
	l := s.segs.all()
	s.active, s.activeMem = nil, nil
	s.window.reset(nil, 0)
	for i := len(l) - 1; i >= 0; i-- {
		if err := s.fs.Remove(l[i].path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		s.segs.set(l[:i:i])
		l[i].unpin()
	}
	s.segs.set(nil)
	s.alloc.discard()
	return s.fs.SyncDir(s.logDir)
}

// removeQueue ends a queue and deletes its files. Needs d.mu.
func (s *Store) removeQueue(q *Queue) error {
	q.dead.Store(true)
	q.pending = nil
	s.files.forget(q)
	s.dirty.forget(q)
	entries, err := s.fs.ReadDir(q.dir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.fs.Remove(filepath.Join(q.dir(), e.Name())); err != nil {
			return err
		}
	}
	return s.fs.Remove(q.dir())
}

// DeleteTopic removes a topic's queues for good: its messages stay in the log, but no later start finds them again. Handles
// to its queues become useless; a new queue of that name begins at 0. Deleting an unknown topic is no error.
func (s *Store) DeleteTopic(topic string) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return ErrClosed
	}
	s.notes.drop()
	gone := s.queues.removeTopic(topic, s.end)
	for _, q := range gone {
		q.dead.Store(true)
	}
	s.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	if err := s.keep.saveLocked(s.pictureLocked()); err != nil {
		return err
	}
	for _, q := range gone {
		if err := s.removeQueue(q); err != nil {
			return err
		}
	}
	err := s.fs.Remove(filepath.Join(s.queueDir, topic))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("directory of a deleted topic is not empty, left alone", zap.String("topic", topic), zap.Error(err))
	}
	return s.fs.SyncDir(s.queueDir)
}
