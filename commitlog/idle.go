package commitlog

import (
	"errors"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// mappedAlways is how many of the newest segments stay mapped whether they are used or not.
	mappedAlways = 4
	// idleLook is the time between two looks; a segment not used from one to the next is unmapped.
	idleLook = time.Minute
)

// unmapIdle takes the mappings of older segments that nobody holds or has used since the last call, so that page tables do not
// grow with the store. Such a segment is replaced by a new one of the same file, which is mapped when it is used; a holder who comes
// in between keeps the old one until it lets go, as with any segment that leaves the table.
func (s *Store) unmapIdle() {
	l := s.segs.all()
	for _, g := range l[:max(len(l)-mappedAlways, 0)] {
		if g.idle() && g.end() <= s.flushed.Load() {
			if err := s.renew(g); err != nil && !errors.Is(err, os.ErrNotExist) { // it was cut off meanwhile
				s.log.Warn("idle segment not unmapped", zap.Error(err))
			}
		}
	}
}

// idle tells whether a segment is mapped, but not held by anyone besides the table and not used since the last call.
func (g *segment) idle() bool {
	return !g.used.Swap(false) && g.mem.Load() != nil && g.refs.Load() == 1
}

// renew puts an unmapped segment of the same file in g's place, if g is in the table still.
func (s *Store) renew(g *segment) error {
	fresh, err := s.reopen(g)
	if err != nil {
		return err
	}
	s.mu.Lock()
	l := slices.Clone(s.segs.all())
	at := slices.Index(l, g)
	if at >= 0 && g != s.active {
		l[at] = fresh
		s.segs.set(l)
	} else {
		g = fresh
	}
	s.mu.Unlock()
	g.unpin()
	return nil
}
