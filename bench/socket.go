package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a connection whose reads and writes never wait, and of which Go's runtime knows nothing: one goroutine moves many of
// them, without a wake-up of another one in between.
type socket struct{ fd int }

// errAgain says that a socket has nothing to read, or no room for what is to be written.
var errAgain = unix.EAGAIN

// takeSocket makes a socket of a connection, which is closed thereby.
func takeSocket(nc net.Conn) (s *socket, err error) {
	defer func() { err = errors.Join(err, nc.Close()) }()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	ctlErr := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(ctlErr, err); err != nil {
		return nil, fmt.Errorf("duplicate a connection's descriptor: %w", err)
	}
	return &socket{fd}, nil
}

// Read implements io.Reader, with errAgain where another one would wait.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.call(unix.SYS_READ, b)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write writes as much as there is room for.
func (s *socket) Write(b []byte) (int, error) { return s.call(unix.SYS_WRITE, b) }

// call makes a system call that does not wait, and so need not be told to Go's scheduler.
func (s *socket) call(number uintptr, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errAgain
	}
	n, _, errno := unix.RawSyscall(number, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, errAgain
	}
	return 0, errno
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// poller waits for sockets and for a time. It belongs to one goroutine.
//
// The time is a timer of its own and not the wait's limit, because to set a timer may cost more than all else that a generator does
// (10 µs and more in a virtual machine), and a limit is set and taken back by every wait that something else ends.
type poller struct {
	fd, timer int
	wakeAt    int64 // for when the timer is set, by the caller's clock; 0: not
	events    []unix.EpollEvent
}

const (
	pollEvents = 256 // sockets told of at once; the others come next time
	timerID    = -1
)

func newPoller() (p *poller, err error) {
	p = &poller{fd: -1, timer: -1, events: make([]unix.EpollEvent, pollEvents)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	// By its edge, so that it need not be read.
	return p, p.control(unix.EPOLL_CTL_ADD, p.timer, timerID, unix.EPOLLIN|unix.EPOLLET)
}

func (p *poller) Close() error {
	var errs []error
	for _, fd := range [...]int{p.fd, p.timer} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// add watches a socket for something to read. Closing the socket ends that. id, from 0 on, comes with its events.
func (p *poller) add(s *socket, id int) error {
	return p.control(unix.EPOLL_CTL_ADD, s.fd, id, unix.EPOLLIN)
}

// watchRoom says whether the socket's room for writing is waited for too.
func (p *poller) watchRoom(s *socket, id int, on bool) error {
	events := uint32(unix.EPOLLIN)
	if on {
		events |= unix.EPOLLOUT
	}
	return p.control(unix.EPOLL_CTL_MOD, s.fd, id, events)
}

func (p *poller) control(op, fd, id int, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: int32(id)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &ev))
}

// alarm lets a wait end at a time by the caller's clock, which shows now. Both are in ns, and the time is later than now.
func (p *poller) alarm(at, now int64) error {
	if p.wakeAt == at {
		return nil
	}
	p.wakeAt = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at - now)}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(p.timer, 0, &spec, nil))
}

// wait blocks until sockets are ready or the alarm comes, at most so many milliseconds. What it returns is valid until the next call,
// and may hold the alarm, as timerID.
//
// Go's scheduler is not told of the wait: it would look after it every 20 µs, hand the processor on and want it back, which costs more
// than the wait. When it needs the processor before the wait is over, its signal ends the wait.
func (p *poller) wait(ms int64) ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)),
		uintptr(max(ms, 0)), 0, 0)
	switch errno {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	}
	return nil, os.NewSyscallError("epoll_pwait", errno)
}
