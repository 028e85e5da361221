package transfer

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a slave's connection as blocking system calls. A thread that sleeps in the kernel's own read is woken by the packet
// itself; by way of Go's poller it takes one more thread and one more wake-up, for every message of a lone producer.
//
// read, write and close belong to the slave's goroutine; hangUp may come from any, and makes the others end.
type socket struct {
	fd    int
	spare bool // the scheduler has processors beside the one that a wait keeps

	mu     sync.Mutex // of closed: the descriptor may be somebody else's afterwards
	closed bool
}

// takeOver makes a blocking socket of a connection, which is closed in any case. A read gives up after readTimeout without a byte
// (errAgain), a write after writeTimeout in which nothing was taken.
func takeOver(conn *net.TCPConn, readTimeout, writeTimeout time.Duration) (*socket, error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{spare: runtime.GOMAXPROCS(0) > 1}
	var dupErr error
	err = raw.Control(func(fd uintptr) {
		s.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, os.NewSyscallError("fcntl", dupErr)
	}
	if err := s.block(readTimeout, writeTimeout); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) block(readTimeout, writeTimeout time.Duration) error {
	if err := unix.SetNonblock(s.fd, false); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if err := setTimeout(s.fd, unix.SO_RCVTIMEO, readTimeout); err != nil {
		return err
	}
	return setTimeout(s.fd, unix.SO_SNDTIMEO, writeTimeout)
}

func setTimeout(fd, option int, d time.Duration) error {
	tv := unix.NsecToTimeval(max(d, time.Millisecond).Nanoseconds()) // 0 would be for ever
	return os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &tv))
}

// readv fills the vector's parts with what has come; it waits only while that is nothing. 0 is the end of the stream.
//
// soon says that more bytes are expected within a few ms, after which the read gives up. Go's scheduler is not told of such a wait: it
// would look after it every 20 µs, hand its processor on and want it back, which takes a third of a busy slave's time. When it needs the processor
// before the wait is over, for a collection, its signal ends the wait (EINTR).
func (s *socket) readv(parts []unix.Iovec, soon bool) (int, error) {
	fd, first, n := uintptr(s.fd), uintptr(unsafe.Pointer(&parts[0])), uintptr(len(parts))
	var errno unix.Errno
	if soon && s.spare {
		n, _, errno = unix.RawSyscall(unix.SYS_READV, fd, first, n)
	} else {
		n, _, errno = unix.Syscall(unix.SYS_READV, fd, first, n)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// more tells whether bytes, or the end of the stream, are there to be read at once. false may be wrong: what there is then is found by
// the next read.
func (s *socket) more() bool {
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	var atOnce unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 0, 0)
	return errno == 0 && n > 0
}

// write sends all of b, which is short: there is nearly always room for it at once.
func (s *socket) write(b []byte) error {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno == 0 {
		b = b[n:]
	}
	for len(b) > 0 {
		n, err := unix.Write(s.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return fmt.Errorf("write: %w", os.ErrDeadlineExceeded)
		case err != nil:
			return os.NewSyscallError("write", err)
		default:
			b = b[n:]
		}
	}
	return nil
}

// hangUp ends the connection in both directions. Calls that wait return.
func (s *socket) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		_ = unix.Close(s.fd)
	}
}
