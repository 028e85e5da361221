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

// FirstReport is what a slave says first. One that holds something says its end. An empty one says 0 for the newest
// segment, or, for the whole log, the lowest offset it can name: masterMin, and 1 if that is 0.
func FirstReport(end int64, oldest bool, masterMin int64) int64 {
	switch {
	case end > 0:
		return end
	case !oldest:
		return 0
	default:
		return max(masterMin, 1)
	}
}

// Position is where a slave stands in the stream of frames.
type Position struct {
	// Next is the offset the next frame must carry. While the log is empty it is what was asked for, 0 for the
	// newest segment.
	Next int64
	// Empty says that nothing is held yet.
	Empty bool
	// SegmentSize is the length of this store's segments.
	SegmentSize int64
}

// Frame judges a frame's header: the offset must be the next one, the size possible, and the body must end in the
// segment where it begins. An empty log that asked for the newest segment takes the start of any.
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
	case p.Empty && p.Next == 0 && (offset < 0 || offset%p.SegmentSize != 0):
		return fmt.Errorf("%w: %d is not the start of a segment; mappedFileSizeCommitLog (here %d) must be the same on both sides",
			ErrStart, offset, p.SegmentSize)
	case p.Empty && p.Next == 0:
		return nil
	case p.Empty && offset != p.Next:
		return fmt.Errorf("%w: %d instead of %d", ErrStart, offset, p.Next)
	case offset != p.Next:
		return fmt.Errorf("%w: frame at %d, log ends at %d", ErrGap, offset, p.Next)
	}
	return nil
}
