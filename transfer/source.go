package transfer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"tandem/commitlog"
	"tandem/transfer/rules"
)

// Where bodies come from: in every mode a body is made for at most n bytes of the log, less at a segment's end, and knows how it
// leaves.

// mappedMost is the longest body that Auto sends from the mapping: all that a slave which is caught up is sent at once, by default. The
// kernel copies it, in one system call that wakes the slave once; sendfile copies nothing, and wakes it for every few pages. Pages that may not be in
// memory are never sent so: each would fault by itself.
const mappedMost = 256 << 10

// pin takes hold of at most n bytes of the log for sending in frame f. hot says that they were written a moment ago.
func (m *Master) pin(offset, n int64, hot bool, f *frame) (b body, err error) {
	switch mode := m.o.Mode; {
	case mode == Copied:
		b, err = m.copied(offset, n, f)
	case mode == Mapped, mode == Auto && hot && n <= mappedMost:
		b, err = m.mapped(offset, n)
	default:
		b, err = m.filed(offset, n)
	}
	return b, m.gone(offset, err)
}

// mapped is a body that leaves from the mapping.
func (m *Master) mapped(offset, n int64) (body, error) {
	slice, err := m.store.Read(offset, int(n))
	if err == nil && len(slice.Bytes) == 0 {
		err = commitlog.ErrOutOfRange
	}
	return body{slice: slice, left: len(slice.Bytes)}, err
}

// filed is a body that leaves from the segment's file.
func (m *Master) filed(offset, n int64) (body, error) {
	segment, err := m.store.Segment(offset)
	if err != nil {
		return body{}, err
	}
	at := offset - segment.Base()
	return body{segment: segment, at: at, left: int(min(n, segment.Size()-at))}, nil
}

// copyMost bounds what is copied at a time, and with it the memory of a session.
const copyMost = 256 << 10

// copied is a body in the frame's own memory, read there from the file: unlike touching the mapping, that may wait for the disk.
func (m *Master) copied(offset, n int64, f *frame) (body, error) {
	from, err := m.filed(offset, min(n, copyMost))
	if err != nil {
		return body{}, err
	}
	defer from.release()
	if cap(f.copied) < from.left {
		f.copied = make([]byte, max(from.left, m.o.BatchSize))
	}
	bytes := f.copied[:from.left]
	if _, err := from.segment.File().ReadAt(bytes, from.at); err != nil {
		return body{}, fmt.Errorf("segment %d at %d: %w", from.segment.Base(), from.at, err)
	}
	return body{slice: commitlog.Slice{Bytes: bytes}, left: len(bytes)}, nil
}

// fetchStep is how much the kernel is asked for in one call: of more it takes a part only, on disks with small requests.
const fetchStep = 128 << 10

// fetch has the kernel begin to read n bytes of the log. It is no error where it cannot: they are then read when they are sent.
func (m *Master) fetch(offset, n int64) {
	for end := offset + n; offset < end; {
		from, err := m.filed(offset, min(fetchStep, end-offset))
		if err != nil {
			return
		}
		_ = unix.Fadvise(int(from.segment.File().Fd()), from.at, int64(from.left), unix.FADV_WILLNEED)
		offset += int64(from.left)
		from.release()
	}
}

// gone says what it means that a position cannot be read.
func (m *Master) gone(offset int64, err error) error {
	if errors.Is(err, commitlog.ErrOutOfRange) && offset < m.store.MinOffset() {
		return fmt.Errorf("%w: slave %d, oldest here %d; it was deleted while the slave lagged", rules.ErrBelowMin, offset, m.store.MinOffset())
	}
	return err
}
