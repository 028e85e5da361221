package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/transfer/rules"
)

var (
	errHistory  = errors.New("this store and the master's log have different histories")
	errByteZero = errors.New("the first record is not valid with the first byte assumed")
)

// check compares this store with the master's log before anything of it is followed, and says what to report first and
// where the first frame must lie. Eight bytes of position cannot tell two histories apart, a record can: it carries its own
// offset, times and checksum, so that if the last one is the same, all before it is.
func (s *Slave) check(ctx context.Context) (first int64, at rules.Position, err error) {
	if s.currentState() != Refused {
		s.setState(Checking)
	}
	if s.unproven || s.store.End() == 1 {
		if err := s.store.Reset(); err != nil {
			return 0, at, err
		}
		s.unproven = false
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	minOffset, maxOffset, err := s.o.Peer.Range(ctx)
	switch {
	case errors.Is(err, ErrNotSupported):
		s.verdict("the master does not tell its bounds: nothing compared")
	case err != nil:
		return 0, at, fmt.Errorf("master's bounds: %w", err)
	default:
		s.update(func(status *SlaveStatus) { status.MasterMin, status.MasterMax = minOffset, maxOffset })
		if err := rules.Fit(s.held(), minOffset, maxOffset); err != nil {
			s.verdict("the bounds do not fit")
			return 0, at, refused(err)
		}
		if err := s.compare(ctx, minOffset); err != nil {
			return 0, at, err
		}
	}
	first, at = rules.Begin(s.held(), s.o.JoinFrom == JoinOldest, minOffset, maxOffset, s.store.SegmentSize())
	return first, at, nil
}

func (s *Slave) currentState() SlaveState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.State
}

func (s *Slave) verdict(text string) {
	s.update(func(status *SlaveStatus) { status.HistoryCheck = text })
}

// held is the log's end, 0 if it holds no byte (its position may be set all the same).
func (s *Slave) held() int64 {
	end := s.store.End()
	if end == s.store.MinOffset() || end == 1 {
		return 0
	}
	return end
}

// compare looks at the last whole record and at the piece of one that may follow it.
func (s *Slave) compare(ctx context.Context, masterMin int64) error {
	end := s.held()
	if end == 0 {
		s.verdict("empty, joining from " + s.o.JoinFrom.String())
		return nil
	}
	start, rest, ok := s.store.LastRecord()
	text := "holds no whole record"
	switch {
	case !ok:
		rest = s.store.MinOffset()
	case start < masterMin:
		text = fmt.Sprintf("record at %d: the master no longer has it, only the bounds were compared", start)
	default:
		if err := s.compareRecord(ctx, start, rest); err != nil {
			return err
		}
		text = fmt.Sprintf("record at %d is the same on both sides", start)
	}
	if err := s.compareRest(ctx, rest, end, masterMin); err != nil {
		return err
	}
	s.verdict(text)
	return nil
}

func (s *Slave) compareRecord(ctx context.Context, start, end int64) error {
	ours, err := s.store.Read(start, int(end-start))
	if err != nil {
		return err
	}
	defer ours.Release()
	theirs, err := s.o.Peer.Record(ctx, start)
	if errors.Is(err, ErrNotSupported) {
		return nil
	}
	if errors.Is(err, ErrNoRecord) || err == nil && !bytes.Equal(theirs, ours.Bytes) {
		return s.differs(start)
	}
	return err
}

// compareRest looks at what lies behind the last whole record: filler, and the beginning of a record that was cut.
func (s *Slave) compareRest(ctx context.Context, from, end, masterMin int64) error {
	from, err := s.skipFiller(from, end)
	if err != nil || from >= end || from < masterMin {
		return err
	}
	ours, err := s.store.Read(from, int(end-from))
	if err != nil {
		return err
	}
	defer ours.Release()
	theirs, err := s.o.Peer.Record(ctx, from)
	switch {
	case errors.Is(err, ErrNotSupported), errors.Is(err, ErrNoRecord) && end-from < fillerHeader:
		return nil // so short a piece may be that of filler
	case errors.Is(err, ErrNoRecord), err == nil && !bytes.HasPrefix(theirs, ours.Bytes):
		return s.differs(from)
	}
	return err
}

// fillerHeader is how much of a segment's filler has a meaning.
const fillerHeader = 8

// skipFiller goes on at the next segment if from is where one was given up.
func (s *Slave) skipFiller(from, end int64) (int64, error) {
	if end-from < fillerHeader {
		return from, nil
	}
	head, err := s.store.Read(from, fillerHeader)
	if err != nil {
		return 0, err
	}
	defer head.Release()
	if len(head.Bytes) < fillerHeader || int32(binary.BigEndian.Uint32(head.Bytes[4:])) != codec.MagicBlank {
		return from, nil
	}
	size := s.store.SegmentSize()
	return from - from%size + size, nil
}

func (s *Slave) differs(at int64) error {
	s.verdict(fmt.Sprintf("record at %d differs", at))
	return refused(fmt.Errorf("%w: the record at %d is another one there; keep the store that is to be kept as master and empty the other",
		errHistory, at))
}

// prove checks the byte that no report can ask for: a master takes a report of 0 for "the newest segment", so a whole log is
// fetched from byte 1 on, and byte 0 is taken to be 0, which it is in any record below 16 MiB. The first record's checksum
// and size say whether that was right.
func (s *Slave) prove() error {
	slice, err := s.store.Read(0, int(s.store.SegmentSize()))
	if err != nil {
		return err
	}
	var record codec.Record
	_, err = record.Decode(slice.Bytes)
	offset := record.PhysicalOffset
	slice.Release()
	switch {
	case errors.Is(err, codec.ErrRecordShort):
		return nil
	case err == nil && offset == 0:
		s.unproven = false
		return nil
	}
	if err == nil {
		err = fmt.Errorf("it says it lies at %d", offset)
	}
	s.unproven = false
	if resetErr := s.store.Reset(); resetErr != nil && !errors.Is(resetErr, commitlog.ErrClosed) {
		return fmt.Errorf("%w: %w; the store could not be emptied again: %w", errByteZero, err, resetErr)
	}
	return refused(fmt.Errorf("%w: %w; the store was emptied again: join with haJoinFrom=last", errByteZero, err))
}
