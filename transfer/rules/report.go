package rules

import (
	"errors"
	"fmt"
)

// Reasons for refusing a session. What Report returns wraps one of them and says the numbers.
var (
	// ErrNegative: an offset below 0 cannot be a position.
	ErrNegative = errors.New("negative offset reported")
	// ErrBackwards: a log does not get shorter while it is followed.
	ErrBackwards = errors.New("reported offset went back")
	// ErrNotSent: more was acknowledged than was ever sent.
	ErrNotSent = errors.New("offset reported that was never sent")
	// ErrAboveEnd: the slave holds more than this log.
	ErrAboveEnd = errors.New("slave's end is above this log's end")
	// ErrBelowMin: what the slave asks for was deleted here.
	ErrBelowMin = errors.New("slave's end is below this log's oldest segment")
	// ErrNoSession: the session was closed.
	ErrNoSession = errors.New("no such session")
)

// Log is what a report is judged by.
type Log struct {
	// Min and End bound the log.
	Min, End int64
	// SegmentSize is the length of a segment.
	SegmentSize int64
	// Sent is the end of the last frame this session was given.
	Sent int64
}

// Report takes one reported offset of a session. The first one says where to start (see Session.Start), every one says
// what the slave holds. An error means that the session must be closed; what it reported counts for nothing.
func (s *State) Report(id SessionID, offset int64, log Log, now int64) error {
	session, ok := s.sessions[id]
	if !ok {
		return ErrNoSession
	}
	if offset < 0 {
		return fmt.Errorf("%w: %d", ErrNegative, offset)
	}
	var err error
	if session.Reported {
		err = later(session, offset, log)
	} else {
		err = first(session, offset, log)
	}
	if err != nil {
		return err
	}
	session.hear(offset, log.End, now)
	return nil
}

func first(session *Session, offset int64, log Log) error {
	switch {
	case offset > log.End:
		return fmt.Errorf("%w: slave %d, here %d; this log was cut or replaced, or the slave followed another one", ErrAboveEnd, offset, log.End)
	case offset == 0:
		session.Start = NewestStart(log.End, log.SegmentSize)
	case offset < log.Min:
		return fmt.Errorf("%w: slave %d, oldest here %d; empty the slave's store and let it join again", ErrBelowMin, offset, log.Min)
	default:
		session.Start = offset
	}
	session.Reported = true
	return nil
}

// later judges a report after the first. A slave that began empty repeats its 0 until bytes arrive.
func later(session *Session, offset int64, log Log) error {
	switch {
	case offset < session.Acked:
		return fmt.Errorf("%w: from %d to %d", ErrBackwards, session.Acked, offset)
	case offset == session.Acked:
		return nil
	case offset < session.Start:
		return fmt.Errorf("%w: %d is below the start %d", ErrNotSent, offset, session.Start)
	case offset > max(log.Sent, session.Start):
		return fmt.Errorf("%w: %d, sent up to %d", ErrNotSent, offset, max(log.Sent, session.Start))
	}
	return nil
}

// hear notes a valid report. A slave that now holds what was the end at its previous report had caught up then.
func (s *Session) hear(offset, end, now int64) {
	switch {
	case offset >= end:
		s.CaughtUp = now
	case s.heardEnd > 0 && offset >= s.heardEnd:
		s.CaughtUp = max(s.CaughtUp, s.Heard)
	}
	s.Acked = offset
	s.Heard = now
	s.heardEnd = end
}
