package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"tandem/codec"
)

// find is what lies at a position of the log.
type find int

const (
	findRecord find = iota // a whole record that belongs here
	findBlank              // end-of-file filler; the log goes on in the next segment
	findEmpty              // nothing was written here yet
	findShort              // the beginning of what may become a good record
	findBad                // none of these
)

// minRoom is what a segment needs for the head of its filler. A segment's last bytes, if fewer, hold nothing.
const minRoom = codec.BlankSize

// entry is one decoded position of the log.
type entry struct {
	rec  codec.Record // only what DecodePlace sets of it
	pos  int64
	size int64 // of record or filler
	why  error // of findBad
}

func (e *entry) end() int64 { return e.pos + e.size }

// inspect looks at b, the written bytes from pos on (they may end anywhere up to the segment's end); room is the number
// of bytes from pos to the segment's end. full checks the body's CRC too. A record counts only if it carries its own
// position: bytes left over from another time do not.
func (e *entry) inspect(b []byte, pos, room int64, full bool) find {
	e.pos, e.size, e.why = pos, 0, nil
	if room < minRoom {
		e.size = room
		return findBlank
	}
	n, err := e.rec.DecodePlace(b, full)
	switch {
	case err == nil:
		if e.rec.PhysicalOffset != pos {
			return e.bad("%w: record at %d says it belongs at %d", ErrCorrupt, pos, e.rec.PhysicalOffset)
		}
		if int64(n) > room {
			return e.bad("%w: record at %d of %d bytes crosses the segment's end", ErrCorrupt, pos, n)
		}
		e.size = int64(n)
		return findRecord
	case errors.Is(err, codec.ErrRecordBlank):
		if int64(n) != room {
			return e.bad("%w: filler at %d of %d bytes, but the segment has %d left", ErrCorrupt, pos, n, room)
		}
		e.size = room
		return findBlank
	case errors.Is(err, codec.ErrRecordEmpty):
		return findEmpty
	case errors.Is(err, codec.ErrRecordShort):
		if int64(len(b)) >= room {
			return e.bad("%w: record at %d crosses the segment's end", ErrCorrupt, pos)
		}
		return findShort
	}
	return e.bad("%w: at %d: %w", ErrCorrupt, pos, err)
}

// torn tells whether a record at the very end of the log may lack its last bytes. The checksum covers the body only; what never
// arrived of topic and properties reads as zeros, which neither holds. behind is what follows the record.
func (e *entry) torn(behind []byte) bool {
	if len(behind) >= 4 && binary.BigEndian.Uint32(behind) != 0 {
		return false
	}
	p := e.rec.Properties
	return len(p) > 0 && p[len(p)-1] == 0 || bytes.IndexByte(e.rec.Topic, 0) >= 0
}

func (e *entry) bad(format string, args ...any) find {
	e.why = fmt.Errorf(format, args...)
	return findBad
}

// takesQueueEntry tells records that get a place in their queue from prepared and rolled-back transaction messages.
func takesQueueEntry(sysFlag int32) bool {
	switch sysFlag & codec.SysTransactionMask {
	case codec.SysTransactionPrepared, codec.SysTransactionRollback:
		return false
	}
	return true
}
