package part

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blocking is a connection as plain blocking system calls of one goroutine, of which Go's scheduler knows nothing: a part that only
// takes bytes and answers would spend most of its time there. Nothing else may depend on that goroutine's processor.
type blocking struct{ fd int }

// glance is how long a read waits at most before it lets the scheduler look: a collection or a stop would wait for it.
var glance = unix.Timeval{Usec: 100_000}

// block makes plain blocking calls of a connection, which is closed thereby. The returned function closes the descriptor; the end of the context
// ends a call that waits.
func block(ctx context.Context, c *net.TCPConn) (b *blocking, stop func(), err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	b = &blocking{fd: -1}
	ctlErr := raw.Control(func(own uintptr) { b.fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(ctlErr, err); err != nil {
		return nil, nil, fmt.Errorf("duplicate a connection's descriptor: %w", err)
	}
	err = errors.Join(unix.SetNonblock(b.fd, false), unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &glance))
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(b.fd))
	}
	hungUp := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(hungUp)
		_ = unix.Shutdown(b.fd, unix.SHUT_RDWR)
	})
	return b, func() {
		if !cancel() {
			<-hungUp
		}
		_ = unix.Close(b.fd)
	}, nil
}

// Read implements io.Reader.
func (b *blocking) Read(p []byte) (int, error) {
	for {
		n, errno := b.call(unix.SYS_READ, p)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN: // the scheduler asks, or may want to
			if err := b.yield(); err != nil {
				return 0, err
			}
		case errno != 0:
			return 0, os.NewSyscallError("read", errno)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// yield waits for bytes in a way that the scheduler knows of.
func (b *blocking) yield() error {
	fds := [1]unix.PollFd{{Fd: int32(b.fd), Events: unix.POLLIN}}
	_, err := unix.Poll(fds[:], -1)
	if err == nil || err == unix.EINTR {
		return nil
	}
	return os.NewSyscallError("poll", err)
}

// Write implements io.Writer.
func (b *blocking) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n, errno := b.call(unix.SYS_WRITE, p[done:])
		if errno != 0 && errno != unix.EINTR {
			return done, os.NewSyscallError("write", errno)
		}
		done += max(n, 0)
	}
	return done, nil
}

func (b *blocking) call(number uintptr, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(number, uintptr(b.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	return int(n), errno
}
