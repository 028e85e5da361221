package bench

import (
	"encoding/binary"
	"fmt"
	"io"

	"tandem/codec"
)

// Bytes that are read at once: what the answers to all messages in flight take, within these limits.
const (
	leastRead  = 16 << 10
	mostRead   = 256 << 10
	answerSize = 512
)

// frameReader cuts a stream into frames, reading as much at once as there is.
type frameReader struct {
	r          io.Reader
	buf        []byte
	start, end int // what was read and not yet handed out
}

// newFrameReader makes a reader for the answers to as many messages as may be in flight.
func newFrameReader(r io.Reader, depth int) *frameReader {
	return &frameReader{r: r, buf: make([]byte, min(max(depth*answerSize, leastRead), mostRead))}
}

// fill makes one Read.
func (f *frameReader) fill() error {
	if f.start > 0 { // moves the rest of a frame, if anything
		f.end = copy(f.buf, f.buf[f.start:f.end])
		f.start = 0
	}
	if f.end == len(f.buf) {
		f.buf = append(f.buf, make([]byte, len(f.buf))...)
	}
	n, err := f.r.Read(f.buf[f.end:])
	f.end += n
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// next returns a whole frame, length field included, valid until the next fill; nil if more must be read.
func (f *frameReader) next() ([]byte, error) {
	rest := f.buf[f.start:f.end]
	if len(rest) < 4 {
		return nil, nil
	}
	n := binary.BigEndian.Uint32(rest)
	if n < 4 || n > codec.MaxFrameSize {
		return nil, fmt.Errorf("%w: the broker sent a length of %d", codec.ErrFrame, n)
	}
	if len(rest) < 4+int(n) {
		return nil, nil
	}
	f.start += 4 + int(n)
	return rest[:4+n], nil
}
