package engine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Output goes straight to the socket while nothing is queued for the connection; what the socket does not take is copied into
// the poller's queue, which drains it as the socket becomes writable. So bytes keep their order and a caller its memory.

const (
	joinLimit  = 4 << 10  // vectors up to this size join the turn's output: a copy is cheaper than a system call
	queueChunk = 64 << 10 // queued output is cut into pieces of this size
	maxVector  = 1024     // the kernel's limit of slices in one writev
)

func (c *conn) Out() *[]byte {
	l := c.loop
	l.lastOut = c
	if !c.touched {
		c.touched = true
		l.touched = append(l.touched, c)
	}
	if c.out == nil {
		c.out = l.buffer()
	}
	return &c.out
}

func (c *conn) WriteVec(head []byte, body [][]byte) {
	l := c.loop
	l.lastOut = c
	if c.Closed() {
		return
	}
	size := len(head)
	for _, b := range body {
		size += len(b)
	}
	if size <= joinLimit || c.pending() > 0 {
		c.join(head, body)
		return
	}
	l.vec.add(c.out)
	l.vec.add(head)
	for _, b := range body {
		l.vec.add(b)
	}
	c.sendVec(&l.vec)
	l.vec.reset()
	if c.out != nil {
		c.out = c.out[:0]
	}
}

// join appends a vector to the turn's output, passing it on in pieces where it is long.
func (c *conn) join(head []byte, body [][]byte) {
	out := c.Out()
	*out = append(*out, head...)
	for _, b := range body {
		for len(b) > 0 {
			n := min(len(b), max(queueChunk-len(*out), 0))
			*out = append(*out, b[:n]...)
			b = b[n:]
			if len(*out) >= queueChunk {
				c.sendOut()
				*out = (*out)[:0]
			}
		}
	}
}

// flush writes the turn's output.
func (c *conn) flush() {
	c.touched = false
	if c.out == nil {
		return
	}
	c.sendOut()
	c.loop.putBuffer(c.out)
	c.out = nil
}

func (c *conn) sendOut() {
	if len(c.out) == 0 || c.Closed() {
		return
	}
	b := c.out
	c.account(len(b))
	if c.pending() == 0 {
		n, err := write(c.gc.Fd(), b)
		if err != nil {
			c.fail(err)
			return
		}
		b = b[n:]
	}
	c.enqueue(b)
	c.noteBacklog()
}

// sendVec writes a vector while nothing is queued.
func (c *conn) sendVec(v *vector) {
	c.account(v.size)
	rest := v.slices
	for len(rest) > 0 {
		chunk := rest[:min(len(rest), maxVector)]
		n, err := v.write(c.gc.Fd(), chunk)
		if err != nil {
			c.fail(err)
			return
		}
		rest = advance(rest, n)
		if len(rest) > 0 && n < sizeOf(chunk) {
			break
		}
	}
	c.enqueueVec(rest)
	c.noteBacklog()
}

// advance drops the first n bytes of a vector; it changes at most the slice header in which they end.
func advance(v [][]byte, n int) [][]byte {
	for len(v) > 0 && n >= len(v[0]) {
		n -= len(v[0])
		v = v[1:]
	}
	if n > 0 {
		v[0] = v[0][n:]
	}
	return v
}

func sizeOf(v [][]byte) (n int) {
	for _, b := range v {
		n += len(b)
	}
	return n
}

func (c *conn) account(n int) {
	c.sent += int64(n)
	c.active = c.loop.now
}

// enqueue copies b into the poller's queue.
func (c *conn) enqueue(b []byte) {
	for len(b) > 0 && !c.closed {
		n := min(len(b), queueChunk)
		_, _ = c.gc.Write(b[:n]) // an error has closed the connection already
		b = b[n:]
	}
}

// enqueueVec copies a vector into the poller's queue, joined to pieces of a useful size.
func (c *conn) enqueueVec(v [][]byte) {
	if len(v) == 0 {
		return
	}
	joined := c.loop.bigBuffer(min(sizeOf(v), queueChunk))
	for _, b := range v {
		for len(b) > 0 {
			n := min(len(b), queueChunk-len(joined))
			joined, b = append(joined, b[:n]...), b[n:]
			if len(joined) == queueChunk {
				c.enqueue(joined)
				joined = joined[:0]
			}
		}
	}
	c.enqueue(joined)
	c.loop.putBuffer(joined)
}

// pending is the number of bytes that wait for the socket.
func (c *conn) pending() int {
	if !c.backlogged || c.closed {
		return 0
	}
	return c.gc.OutboundBuffered()
}

// noteBacklog looks at what the socket left in the queue after a write.
func (c *conn) noteBacklog() {
	if c.closed {
		return
	}
	l := c.loop
	n := c.gc.OutboundBuffered()
	if n == 0 && !c.backlogged {
		return
	}
	if !c.backlogged {
		c.backlogged = true
		c.waitAt = len(l.backlog)
		l.backlog = append(l.backlog, c)
		c.acked, c.moved = c.taken(n), l.clock()
	}
	l.queued += n - c.queued
	c.queued = n
	if n > l.srv.o.HardOut {
		l.srv.overflowed(c, n)
		c.fail(ErrOutputLimit)
	}
}

// leaveBacklog forgets a connection for which nothing waits any more.
func (l *Loop) leaveBacklog(c *conn) {
	if !c.backlogged {
		return
	}
	last := len(l.backlog) - 1
	l.backlog[c.waitAt], l.backlog[last].waitAt = l.backlog[last], c.waitAt
	l.backlog[last] = nil
	l.backlog = l.backlog[:last]
	l.queued -= c.queued
	c.queued, c.backlogged = 0, false
}

// taken is how many of all bytes ever sent the peer's system has acknowledged, with pending of them still queued here.
func (c *conn) taken(pending int) int64 {
	return c.sent - int64(pending) - int64(c.unacked())
}

// unacked is the number of bytes that the socket has taken and the peer's system has not acknowledged.
func (c *conn) unacked() int {
	n, err := unix.IoctlGetInt(c.gc.Fd(), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// write writes what the socket takes at once: n is 0 if that is nothing. As it never waits, Go's scheduler is not told of it: told, it hands the
// loop's processor on where the kernel lets another process run first.
func write(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, os.NewSyscallError("write", errno)
		}
	}
}

// vector is a loop's reusable list of slices to write together.
type vector struct {
	slices [][]byte
	size   int
	iov    []unix.Iovec
}

func (v *vector) add(b []byte) {
	if len(b) > 0 {
		v.slices = append(v.slices, b)
		v.size += len(b)
	}
}

// reset lets go of all slices.
func (v *vector) reset() {
	clear(v.slices)
	v.slices = v.slices[:0]
	if cap(v.slices) > 4*maxVector {
		v.slices = nil
	}
	v.size = 0
}

// write writes what the socket takes at once of up to maxVector slices.
func (v *vector) write(fd int, slices [][]byte) (int, error) {
	v.iov = v.iov[:0]
	for _, b := range slices {
		v.iov = append(v.iov, unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))})
	}
	defer clear(v.iov)
	for {
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(len(v.iov)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, os.NewSyscallError("writev", errno)
		}
	}
}
