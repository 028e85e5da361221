package rules

import (
	"errors"
	"fmt"
)

// Reasons why a slave cannot follow a master. What the functions return wraps one of them and says the numbers.
var (
	// ErrAhead: this store holds more than the master's log.
	ErrAhead = errors.New("this store is longer than the master's log")
	// ErrTooOld: the master deleted what would have to come next.
	ErrTooOld = errors.New("the master no longer holds what comes after this store's end")
	// ErrGap: a frame does not continue the log.
	ErrGap = errors.New("frame does not continue the log")
	// ErrFrameSize: a frame's size is impossible.
	ErrFrameSize = errors.New("impossible frame size")
	// ErrCrossing: a frame goes over a segment's end, so the segments differ in size.
	ErrCrossing = errors.New("frame crosses a segment's end")
	// ErrStart: the master starts an empty slave somewhere it was not asked for.
	ErrStart = errors.New("master starts at an offset that was not asked for")
)

// LargestFrame bounds a frame's body on the slave's side. Masters send up to 1 MiB unless configured otherwise, and
// bodies are read straight to where they belong, so the bound is for sanity alone.
const LargestFrame = 64 << 20

// Fit says whether a log that ends at end can be continued from a master that holds [masterMin, masterMax). An empty log
// (end 0) always can.
func Fit(end, masterMin, masterMax int64) error {
	switch {
	case end == 0:
		return nil
	case end > masterMax:
		return fmt.Errorf("%w: here %d, master %d; one of the two was cut or replaced: keep the one to be kept as master and empty the other",
			ErrAhead, end, masterMax)
	case end < masterMin:
		return fmt.Errorf("%w: ends at %d, the master's oldest is %d; empty this store to join again", ErrTooOld, end, masterMin)
	}
	return nil
}

// Begin is what a slave whose log ends at end reports first, and where the first frame must lie. One that holds something says
// its end. An empty one (end 0) says 0 for the newest segment, or, for the whole log, the lowest offset it can name: masterMin,
// and 1 if that is 0. Of a log without a byte the newest segment is the whole.
func Begin(end int64, oldest bool, masterMin, masterMax, segmentSize int64) (report int64, at Position) {
	at = Position{Next: end, Empty: end == 0, SegmentSize: segmentSize}
	switch {
	case end > 0:
	case !oldest:
		at.Newest = true
	case masterMax > 0:
		at.Next = max(masterMin, 1)
	}
	return at.Next, at
}

// Position is where a slave stands in the stream of frames.
type Position struct {
	// Next is the offset the next frame must carry, unless Newest.
	Next int64
	// Empty says that nothing is held yet.
	Empty bool
	// Newest says that the newest segment was asked for: the first frame lies at the start of one.
	Newest bool
	// SegmentSize is the length of this store's segments.
	SegmentSize int64
}

// Frame judges a frame's header: the offset must be the next one, the size possible, and the body must end in the
// segment where it begins.
func (p Position) Frame(offset int64, size int32) error {
	if err := p.offset(offset); err != nil {
		return err
	}
	if size < 0 || size > LargestFrame {
		return fmt.Errorf("%w: %d bytes at %d; 0 to %d are possible", ErrFrameSize, size, offset, LargestFrame)
	}
	if room := p.SegmentSize - offset%p.SegmentSize; int64(size) > room {
		return fmt.Errorf("%w: %d bytes at %d, %d left in the segment; mappedFileSizeCommitLog (here %d) must be the same on both sides",
			ErrCrossing, size, offset, room, p.SegmentSize)
	}
	return nil
}

func (p Position) offset(offset int64) error {
	switch {
	case p.Empty && p.Newest && (offset < 0 || offset%p.SegmentSize != 0):
		return fmt.Errorf("%w: %d is not the start of a segment; mappedFileSizeCommitLog (here %d) must be the same on both sides",
			ErrStart, offset, p.SegmentSize)
	case p.Empty && p.Newest:
		return nil
	case p.Empty && offset != p.Next:
		return fmt.Errorf("%w: %d instead of %d", ErrStart, offset, p.Next)
	case offset != p.Next:
		return fmt.Errorf("%w: frame at %d, log ends at %d", ErrGap, offset, p.Next)
	}
	return nil
}
