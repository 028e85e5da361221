package bench

import (
	"context"
	"net"
)

// closedLoop keeps all slots of a link in flight: each burst of answers is followed by one write of as many new messages. One
// goroutine does both, so that at depth 1 no wake-up stands between an answer and the next message.
type closedLoop struct {
	*link
	free []int32
}

func (l *link) runClosed(ctx context.Context) error {
	c := &closedLoop{link: l}
	return l.loop(ctx, c.over, c.session)
}

func (c *closedLoop) over(ctx context.Context) bool { return c.link.over(ctx, c.to) }

// session runs on one connection until the run is over and all is answered (nil), or until the connection breaks.
func (c *closedLoop) session(ctx context.Context, nc net.Conn) error {
	c.free = c.free[:0]
	for slot := range c.Depth {
		c.free = append(c.free, int32(slot))
	}
	in := newFrameReader(nc)
	for {
		if err := c.refill(ctx, nc); err != nil {
			return err
		}
		if len(c.free) == c.Depth {
			return nil
		}
		if err := in.fill(); err != nil {
			return err
		}
		if err := c.take(in, c.now(), c.release); err != nil {
			return err
		}
	}
}

func (c *closedLoop) release(slot int32) { c.free = append(c.free, slot) }

// refill sends one message for each free slot.
func (c *closedLoop) refill(ctx context.Context, nc net.Conn) error {
	if len(c.free) == 0 || c.over(ctx) {
		return nil
	}
	n := c.claim(len(c.free))
	now := c.now()
	c.born.set(c.start.UnixMilli() + now/1e6)
	for range n {
		slot := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.put(slot, now)
		if len(c.out) < writeChunk {
			continue
		}
		if err := c.flush(nc); err != nil {
			return err
		}
		now = c.now()
	}
	return c.flush(nc)
}
