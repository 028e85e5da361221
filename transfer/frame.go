package transfer

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tandem/codec"
	"tandem/commitlog"
)

// body is the piece of the log a frame carries, pinned until it has left: either as a segment to send from its file, or as
// a slice of the mapping. The kernel copies from the page cache in both; this process never does.
type body struct {
	segment *commitlog.SegmentRef // by sendfile
	at      int64                 // offset in the segment's file; sendfile moves it
	slice   commitlog.Slice       // by writev
	left    int
}

func (b *body) release() {
	if b.segment != nil {
		b.segment.Release()
		b.segment = nil
	}
	b.slice.Release()
	b.slice = commitlog.Slice{}
	b.left = 0
}

// frame is one frame on its way: what is left of header and body. Any call may take part of it only, and the next one goes
// on there. A frame is never given up half way but with its connection.
type frame struct {
	header     [codec.HAHeaderSize]byte
	headerLeft int
	body       body
	copied     []byte // the body, in the mode that copies
	iov        [2]unix.Iovec
	msg        unix.Msghdr
}

// pending says that a frame has begun and not ended.
func (f *frame) pending() bool { return f.headerLeft > 0 || f.body.left > 0 }

// begin starts the next frame. An empty body makes a heartbeat.
func (f *frame) begin(offset int64, b body) {
	codec.PutHAHeader(f.header[:], offset, int32(b.left))
	f.headerLeft = len(f.header)
	f.body = b
}

// abandon gives back what the frame holds.
func (f *frame) abandon() {
	f.body.release()
	f.headerLeft = 0
}

// errAgain says that the socket is full.
const errAgain = unix.EAGAIN

// send moves the frame on until it is out or the socket is full (errAgain). It gives the bytes the socket took, and in how many
// system calls, also when an error follows.
func (f *frame) send(socket int) (taken, calls int, err error) {
	for f.pending() {
		var n int
		calls++
		if f.headerLeft > 0 || f.body.segment == nil {
			n, err = f.sendMemory(socket)
		} else {
			n, err = f.sendFile(socket)
		}
		taken += n
		switch {
		case err == unix.EINTR:
		case err != nil:
			return taken, calls, err
		}
	}
	f.body.release()
	return taken, calls, nil
}

// sendMemory sends what is left of the header, and the body with it if that is mapped. A header that its body follows by
// sendfile waits for it in the socket (MSG_MORE), so that both leave in one packet.
func (f *frame) sendMemory(socket int) (int, error) {
	flags, parts := unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0
	if f.headerLeft > 0 {
		f.setPart(parts, f.header[len(f.header)-f.headerLeft:])
		parts++
	}
	switch {
	case f.body.segment != nil:
		flags |= unix.MSG_MORE
	case f.body.left > 0:
		f.setPart(parts, f.body.slice.Bytes[len(f.body.slice.Bytes)-f.body.left:])
		parts++
	}
	f.msg.Iov, f.msg.Iovlen = &f.iov[0], uint64(parts)
	r, errno := f.sendmsg(socket, flags)
	if errno != 0 {
		return 0, errno
	}
	n := int(r)
	header := min(n, f.headerLeft)
	f.headerLeft -= header
	f.body.left -= n - header
	return n, nil
}

// plainSend is up to how many bytes Go's scheduler is not told of a call that sends them: they were just appended and are in memory, so it
// never waits. Told, the scheduler hands the loop's processor on where the kernel lets another process run first.
const plainSend = mappedMost

func (f *frame) sendmsg(socket, flags int) (uintptr, unix.Errno) {
	fd, msg := uintptr(socket), uintptr(unsafe.Pointer(&f.msg))
	if f.body.segment != nil || f.body.left <= plainSend {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, msg, uintptr(flags))
		return n, errno
	}
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, msg, uintptr(flags))
	return n, errno
}

func (f *frame) setPart(i int, b []byte) {
	f.iov[i].Base = &b[0]
	f.iov[i].SetLen(len(b))
}

func (f *frame) sendFile(socket int) (int, error) {
	file := f.body.segment.File()
	n, err := unix.Sendfile(socket, int(file.Fd()), &f.body.at, f.body.left)
	if n > 0 {
		f.body.left -= n
		return n, nil
	}
	if err == nil {
		return 0, fmt.Errorf("segment %d ends at %d, before the log does: %w", f.body.segment.Base(), f.body.at, io.ErrUnexpectedEOF)
	}
	return 0, err
}

// isHangUp says that the peer is gone, which is no fault of anybody here.
func isHangUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}
