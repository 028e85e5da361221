package engine

import (
	"encoding/binary"
	"fmt"

	"tandem/codec"
)

// A frame that lies whole in what one read returned is served where it lies. One that is cut goes into a buffer of its own,
// which grows with the bytes that came, not with the length that was promised; nothing is ever left in the poller's buffers.

const (
	lengthSize  = 4 // the length field
	prefixSize  = 8 // length, serialization form and header length
	firstPart   = 64 << 10
	growth      = 4
	maxKeptBig  = 4<<20 + firstPart
	headerLimit = 1<<24 - 1
)

// input serves the bytes of one read. They die on return.
func (c *conn) input(b []byte) error {
	for len(b) > 0 && !c.closing && !c.Closed() {
		var err error
		if len(c.partial) > 0 {
			b, err = c.resume(b)
		} else {
			b, err = c.next(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next serves the frame that b begins with, or keeps its beginning, and returns what is left of b.
func (c *conn) next(b []byte) ([]byte, error) {
	size, err := c.frameSize(b)
	if err != nil {
		return nil, err
	}
	if size == 0 || size > len(b) {
		c.need = size
		c.partial = c.loop.partBuffer(size)
		c.partial = append(c.partial, b...)
		return nil, nil
	}
	return b[size:], c.frame(b[:size:size])
}

// resume goes on with the unfinished frame and returns what is left of b.
func (c *conn) resume(b []byte) ([]byte, error) {
	if len(c.partial) < prefixSize {
		n := min(prefixSize-len(c.partial), len(b))
		c.partial, b = append(c.partial, b[:n]...), b[n:]
		size, err := c.frameSize(c.partial)
		if err != nil {
			return nil, err
		}
		c.need = size
	}
	if c.need == 0 || len(c.partial) < c.need && len(b) == 0 {
		return b, nil
	}
	n := min(c.need-len(c.partial), len(b))
	c.growPartial(n)
	c.partial, b = append(c.partial, b[:n]...), b[n:]
	if len(c.partial) < c.need {
		return b, nil
	}
	frame := c.partial
	c.partial, c.need = nil, 0
	err := c.frame(frame)
	c.loop.putBuffer(frame)
	return b, err
}

// frameSize checks as much of a frame's prefix as b holds, before any of the body is waited for, and returns the size of the
// whole frame, or 0 while that is unknown.
func (c *conn) frameSize(b []byte) (int, error) {
	if len(b) < lengthSize {
		return 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	limit := uint32(c.loop.srv.o.MaxFrame)
	if n < prefixSize-lengthSize || n > limit {
		return 0, fmt.Errorf("%w: length field is %d, must be %d..%d%s", ErrBadFrame, n, prefixSize-lengthSize, limit, resemblance(b))
	}
	if len(b) < prefixSize {
		return lengthSize + int(n), nil
	}
	word := binary.BigEndian.Uint32(b[lengthSize:])
	if form, header := codec.Serialize(word>>24), word&headerLimit; form > codec.Binary || header > n-lengthSize {
		return 0, fmt.Errorf("%w: header of form %d and %d bytes in a frame of %d", ErrBadFrame, form, header, n)
	}
	return lengthSize + int(n), nil
}

// resemblance says what a peer seems to speak instead.
func resemblance(b []byte) string {
	switch {
	case b[0] == 0x16:
		return " (looks like TLS, which this port does not speak)"
	case b[0] >= 'A' && b[0] <= 'Z' && b[1] >= 'A' && b[1] <= 'Z':
		return " (looks like HTTP or another text protocol)"
	}
	return ""
}

// frame hands one whole frame to the handler.
func (c *conn) frame(b []byte) error {
	v := &c.loop.view
	if err := v.Parse(b); err != nil {
		return fmt.Errorf("%w: %w", ErrBadFrame, err)
	}
	if len(c.out) > maxTurnOut {
		c.flush()
	}
	if c.admit(v) {
		c.loop.srv.h.OnFrame(c, v)
	}
	return nil
}

// maxTurnOut is how much output a turn collects before it is written early.
const maxTurnOut = 256 << 10

// growPartial makes room for n more bytes of the unfinished frame.
func (c *conn) growPartial(n int) {
	have := len(c.partial)
	if have+n <= cap(c.partial) {
		return
	}
	grown := c.loop.bigBuffer(min(c.need, max(growth*cap(c.partial), have+n, firstPart)))
	grown = append(grown, c.partial...)
	c.loop.putBuffer(c.partial)
	c.partial = grown
}

func (c *conn) dropInput() {
	c.loop.putBuffer(c.partial)
	c.partial, c.need = nil, 0
}
