package codec

import (
	"encoding/binary"
	"fmt"
)

// Sizes of the replication stream's two messages (Apache classes HAConnection
// and HAClient).
const (
	// HAHeaderSize is what a master puts before each piece of the log: offset 8, length 4.
	HAHeaderSize = 12
	// HAReportSize is a slave's whole message: how far it has the log.
	HAReportSize = 8
)

// PutHAHeader writes the header of n log bytes that begin at offset, n = 0 for
// a heartbeat. b must have HAHeaderSize bytes.
func PutHAHeader(b []byte, offset int64, n int32) {
	_ = b[HAHeaderSize-1]
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[8:], uint32(n))
}

// ParseHAHeader reads a header; b must have HAHeaderSize bytes. Offset and
// length are as the peer sent them: the caller judges both, negative ones too.
func ParseHAHeader(b []byte) (offset int64, n int32) {
	_ = b[HAHeaderSize-1]
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
}

// PutHAReport writes a slave's report; b must have HAReportSize bytes.
func PutHAReport(b []byte, offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// ParseHAReport reads a slave's report; b must have HAReportSize bytes. The
// offset is as the peer sent it.
func ParseHAReport(b []byte) (offset int64) { return int64(binary.BigEndian.Uint64(b)) }

// NextHAFrame cuts the first frame off b. Errors are ErrHAShort while it is not
// complete, and ErrHAFrame for a negative offset, a negative length or one
// above maxBody. body and rest alias b.
func NextHAFrame(b []byte, maxBody int) (offset int64, body, rest []byte, err error) {
	if len(b) < HAHeaderSize {
		return 0, nil, b, ErrHAShort
	}
	offset, n := ParseHAHeader(b)
	if offset < 0 || n < 0 || int64(n) > int64(maxBody) {
		return 0, nil, b, fmt.Errorf("%w: offset %d, length %d, at most %d is taken", ErrHAFrame, offset, n, maxBody)
	}
	if len(b)-HAHeaderSize < int(n) {
		return 0, nil, b, ErrHAShort
	}
	end := HAHeaderSize + int(n)
	return offset, b[HAHeaderSize:end:end], b[end:], nil
}
