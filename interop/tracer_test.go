package interop

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A tracer runs a broker as its child, looks at every system call that moves the log's bytes, and writes down how they left. It is a process of
// its own: who waits for a child would otherwise be told each of its stops.

// traffic is what left by the connections of one port.
type traffic struct {
	File       int64    `json:"file"`       // bytes by sendfile from a segment
	Mapped     int64    `json:"mapped"`     // bytes from inside a shared mapping of a segment
	Own        int64    `json:"own"`        // bytes from the process's own memory
	LargestOwn int64    `json:"largestOwn"` // the longest piece of those
	Calls      int64    `json:"calls"`
	Foreign    []string `json:"foreign"` // calls that move bytes in another way
}

// findings are what a tracer saw.
type findings struct {
	HA       traffic  `json:"ha"`
	Clients  traffic  `json:"clients"`
	LogReads []string `json:"logReads"` // reads of a segment into memory
	Stops    int64    `json:"stops"`
	Error    string   `json:"error,omitempty"`
}

// trace is the helper program: command (path and arguments, a line each), log (directory of the segments), ha and clients (ports), out (file for
// the findings).
func trace(args map[string]string) error {
	runtime.LockOSThread() // only the thread that began to trace may go on
	t := &tracer{log: resolved(args["log"]), ports: map[string]*traffic{}, calls: map[int]*call{}, sockets: map[string]string{}}
	t.ports[args["ha"]], t.ports[args["clients"]] = &t.found.HA, &t.found.Clients
	err := t.run(strings.Split(args["command"], "\n"))
	if err != nil {
		t.found.Error = err.Error()
	}
	text, _ := json.Marshal(t.found)
	return errors.Join(err, os.WriteFile(args["out"], text, 0o600))
}

type tracer struct {
	pid     int
	log     string
	ports   map[string]*traffic // by local port
	sockets map[string]string   // port by socket's link
	calls   map[int]*call       // of threads that are inside a call that matters
	found   findings
}

// call is one of interest, between its entry and its exit.
type call struct {
	on    *traffic
	file  bool
	parts []part
}

// part is one piece of memory to be sent.
type part struct {
	size   int64
	mapped bool
}

func (t *tracer) run(command []string) (err error) {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true}}
	if t.pid, err = syscall.ForkExec(command[0], command, attr); err != nil {
		return fmt.Errorf("a child cannot be traced here (ptrace must be permitted): %w", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(t.pid, &status, unix.WALL, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return fmt.Errorf("ptrace must be permitted: %w", err)
	}
	t.outlive()
	if err := unix.PtraceSyscall(t.pid, 0); err != nil {
		return err
	}
	return t.follow()
}

// outlive has the tracer go on until the child has ended: both are told to, since they are of one process group, and a child that is told twice
// stops in a hurry.
func (t *tracer) outlive() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT)
}

// follow goes from stop to stop until the child is gone.
func (t *tracer) follow() error {
	for seen := map[int]bool{t.pid: true}; ; {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case status.Exited() || status.Signaled():
			delete(t.calls, tid)
			if tid == t.pid {
				return nil
			}
			continue
		}
		t.found.Stops++
		pass := 0
		switch s := status.StopSignal(); {
		case s == unix.SIGTRAP|0x80:
			if err := t.syscall(tid); err != nil && err != unix.ESRCH {
				return err
			}
		case s == unix.SIGTRAP: // an event
		case s == unix.SIGSTOP && !seen[tid]: // a new thread's first stop
		default:
			pass = int(s)
		}
		seen[tid] = true
		if err := unix.PtraceSyscall(tid, pass); err != nil && err != unix.ESRCH {
			return err
		}
	}
}

// syscallInfo is the kernel's struct ptrace_syscall_info.
type syscallInfo struct {
	op      uint8
	_       [3]uint8
	_       uint32
	_, _    uint64
	nr      uint64 // the result, at an exit
	args    [6]uint64
	_, _, _ uint64
}

const (
	atEntry = 1
	atExit  = 2
)

func (t *tracer) syscall(tid int) error {
	var info syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	switch info.op {
	case atEntry:
		c, err := t.entry(info.nr, info.args)
		if err != nil {
			return err
		}
		if c != nil {
			t.calls[tid] = c
		}
	case atExit:
		if c := t.calls[tid]; c != nil {
			delete(t.calls, tid)
			c.leave(int64(info.nr))
		}
	}
	return nil
}

// entry looks at a call that begins; nil means that it does not matter.
func (t *tracer) entry(nr uint64, args [6]uint64) (*call, error) {
	switch nr {
	case unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_READV, unix.SYS_PREADV, unix.SYS_PREADV2:
		if path := t.link(args[0]); t.isLog(path) {
			t.found.LogReads = append(t.found.LogReads, fmt.Sprintf("call %d of %s", nr, path))
		}
		return nil, nil
	case unix.SYS_SENDFILE:
		on := t.traffic(args[0])
		if on == nil {
			return nil, nil
		}
		if path := t.link(args[1]); !t.isLog(path) {
			on.Foreign = append(on.Foreign, "sendfile from "+path)
		}
		return &call{on: on, file: true}, nil
	case unix.SYS_WRITE, unix.SYS_SENDTO:
		return t.memory(args[0], []iovec{{args[1], args[2]}}, nil)
	case unix.SYS_WRITEV:
		return t.vector(args[0], args[1], args[2])
	case unix.SYS_SENDMSG:
		var msg [7]uint64
		if t.traffic(args[0]) == nil {
			return nil, nil
		}
		if err := t.peek(args[1], msg[:]); err != nil {
			return nil, err
		}
		return t.vector(args[0], msg[2], msg[3])
	case unix.SYS_SENDMMSG, unix.SYS_SPLICE, unix.SYS_PWRITEV2, unix.SYS_VMSPLICE, unix.SYS_IO_URING_ENTER:
		if on := t.traffic(args[0]); on != nil {
			on.Foreign = append(on.Foreign, fmt.Sprintf("call %d", nr))
		}
	}
	return nil, nil
}

type iovec struct{ base, size uint64 }

func (t *tracer) vector(fd, at, count uint64) (*call, error) {
	if t.traffic(fd) == nil {
		return nil, nil
	}
	words := make([]uint64, 2*count)
	err := t.peek(at, words)
	parts := make([]iovec, count)
	for i := range parts {
		parts[i] = iovec{words[2*i], words[2*i+1]}
	}
	return t.memory(fd, parts, err)
}

func (t *tracer) memory(fd uint64, parts []iovec, err error) (*call, error) {
	on := t.traffic(fd)
	if on == nil || err != nil {
		return nil, err
	}
	maps, err := t.mappings()
	c := &call{on: on}
	for _, p := range parts {
		c.parts = append(c.parts, part{int64(p.size), maps.hold(p)})
	}
	return c, err
}

// leave accounts for what a call that returned n had sent.
func (c *call) leave(n int64) {
	if n <= 0 {
		return
	}
	c.on.Calls++
	if c.file {
		c.on.File += n
		return
	}
	for _, p := range c.parts {
		took := min(n, p.size)
		n -= took
		if p.mapped {
			c.on.Mapped += took
			continue
		}
		c.on.Own += took
		c.on.LargestOwn = max(c.on.LargestOwn, took)
	}
}

// ranges are those of the address space that are shared mappings of segments.
type ranges []iovec

func (r ranges) hold(p iovec) bool {
	for _, m := range r {
		if p.base >= m.base && p.base+p.size <= m.base+m.size {
			return true
		}
	}
	return false
}

func (t *tracer) mappings() (all ranges, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", t.pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasSuffix(fields[1], "s") || !t.isLog(fields[5]) {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, _ := strconv.ParseUint(from, 16, 64)
		end, _ := strconv.ParseUint(to, 16, 64)
		if n := len(all); n > 0 && all[n-1].base+all[n-1].size == begin {
			all[n-1].size += end - begin
		} else {
			all = append(all, iovec{begin, end - begin})
		}
	}
	return all, nil
}

func (t *tracer) link(fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, int32(fd)))
	return path
}

// resolved is a path as the kernel names it, also if the last parts of it are not there yet.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == filepath.Dir(path) {
		return real
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

func (t *tracer) isLog(path string) bool { return filepath.Dir(path) == t.log }

// traffic is that of the port a connection belongs to, nil if it is none of those that matter.
func (t *tracer) traffic(fd uint64) *traffic {
	link := t.link(fd)
	if !strings.HasPrefix(link, "socket:") {
		return nil
	}
	if _, ok := t.sockets[link]; !ok {
		t.sockets[link] = ""
		t.readSockets()
	}
	return t.ports[t.sockets[link]]
}

// readSockets notes the local port of each TCP connection.
func (t *tracer) readSockets() {
	for _, name := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", t.pid, name))
		for _, l := range strings.Split(string(text), "\n") {
			fields := strings.Fields(l)
			if len(fields) < 10 {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
				t.sockets["socket:["+fields[9]+"]"] = strconv.FormatUint(port, 10)
			}
		}
	}
}

// peek reads words of the child's memory.
func (t *tracer) peek(at uint64, words []uint64) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", t.pid))
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 8*len(words))
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		return fmt.Errorf("memory at %#x: %w", at, err)
	}
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return nil
}
