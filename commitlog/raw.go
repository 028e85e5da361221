package commitlog

import "fmt"

// RawBuffer is where the next bytes of the master's log go: at most max bytes of the mapped segment from the log's end on, never beyond
// a segment's end, and fewer where more pages are not prepared yet. offset must be the log's end. Only an empty log may begin
// elsewhere: at the start of a segment, or at 1, where byte 0 is unknown and left 0 (a master asked for its whole log sends it from
// byte 1 on). The slice may be written until the next call; nothing of it counts before RawCommit. RawBuffer and RawCommit have one
// caller.
//
// Errors: ErrOffsetMismatch, ErrNotWritable (not a slave), ErrClosed, ErrDiskFull, ErrNoSegment.
func (s *Store) RawBuffer(offset int64, max int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rawWritable(); err != nil {
		return nil, err
	}
	if offset != s.end || s.active == nil {
		s.mu.Unlock()
		err := s.begin(offset)
		s.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	if s.end == s.active.end() {
		g, err := s.alloc.take(s.end)
		if err != nil {
			return nil, err
		}
		s.activate(g)
	}
	if err := s.readyActive(); err != nil {
		return nil, err
	}
	at := s.end - s.active.base
	n := min(int64(max), s.active.size-at)
	if prepared := s.window.edge.Load() - s.end; prepared < n && prepared >= windowUse {
		n = prepared // the rest will be, by the next call
	}
	s.window.reach(s.end + n)
	return s.activeMem[at : at+n : at+n], nil
}

// rawWritable needs s.mu.
func (s *Store) rawWritable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if !s.slave.Load() {
		return fmt.Errorf("%w: not a slave", ErrNotWritable)
	}
	return s.notBroken()
}

// begin makes an empty log start at offset.
func (s *Store) begin(offset int64) error {
	s.quiesce()
	defer s.resume()
	if !s.empty() {
		return fmt.Errorf("%w: got %d, the log ends at %d", ErrOffsetMismatch, offset, s.end)
	}
	if offset < 0 || offset%s.opt.SegmentSize != 0 && offset != 1 {
		return fmt.Errorf("%w: an empty log cannot begin at %d, only at a multiple of mappedFileSizeCommitLog (%d)",
			ErrOffsetMismatch, offset, s.opt.SegmentSize)
	}
	base := offset - offset%s.opt.SegmentSize
	if s.active == nil || s.active.base != base {
		if err := s.dropSegments(); err != nil {
			return err
		}
		g, err := s.alloc.take(base)
		if err != nil {
			return err
		}
		s.activate(g)
	}
	s.setPositions(base, lastRecord{})
	s.end = offset
	s.written.Store(offset)
	return nil
}

// empty tells whether nothing is stored. Needs s.mu.
func (s *Store) empty() bool { return s.active == nil || s.end == s.segs.all()[0].base }

// RawCommit says that n bytes were written to the slice of the last RawBuffer: they are now part of the log.
func (s *Store) RawCommit(n int) error {
	s.mu.Lock()
	if err := s.rawWritable(); err != nil {
		s.mu.Unlock()
		return err
	}
	if n < 0 || s.active == nil || int64(n) > s.active.end()-s.end {
		s.mu.Unlock()
		return fmt.Errorf("%w: %d bytes do not fit behind %d", ErrOffsetMismatch, n, s.end)
	}
	s.end += int64(n)
	end := s.end
	s.written.Store(end)
	s.mu.Unlock()
	if n > 0 {
		s.announce(end)
	}
	return nil
}
