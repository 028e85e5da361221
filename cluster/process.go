package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrExited says that a process ended although it was expected to run.
	ErrExited = errors.New("process has ended")
	// ErrNotReady says that a process runs but did not become ready in time.
	ErrNotReady = errors.New("process did not become ready")
	// ErrForced says that a process did not end on SIGTERM in time and was killed.
	ErrForced = errors.New("process did not stop by itself and was killed")
)

const (
	readyPoll  = 5 * time.Millisecond
	logTailMax = 1 << 20 // bytes of a log that are looked at for a line or a tail
)

// Process is one child process, running or ended. All methods are safe from any goroutine.
type Process struct {
	spec    Spec
	cmd     *exec.Cmd
	logFrom int64 // length of the log file before this start
	started time.Time
	done    chan struct{}

	mu     sync.Mutex // held while a signal is sent, so that the process id cannot have been given to another process
	reaped bool

	exit Exit // written before done is closed
}

// Exit says how a process ended.
type Exit struct {
	Code   int            // exit status; -1 if a signal ended it
	Signal syscall.Signal // 0 if it ended by itself
	CPU    time.Duration  // user and system time of its whole life
}

func (e Exit) String() string {
	if e.Signal != 0 {
		return "ended by signal " + unix.SignalName(e.Signal)
	}
	return fmt.Sprintf("ended with status %d", e.Code)
}

// Start starts the process and returns without waiting for readiness. The child has a process group of its own (a Ctrl-C
// at the terminal does not reach it) and is killed by the kernel when this process dies.
func Start(spec Spec) (*Process, error) {
	p := &Process{spec: spec.withDefaults(), done: make(chan struct{})}
	if err := p.prepare(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

func (p *Process) prepare() error {
	p.cmd = exec.Command(p.spec.Path, p.spec.Args...)
	p.cmd.Dir = p.spec.Dir
	p.cmd.Env = append(os.Environ(), p.spec.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.spec.Dir != "" {
		if err := os.MkdirAll(p.spec.Dir, 0o755); err != nil {
			return err
		}
	}
	if p.spec.LogFile == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.spec.LogFile), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p.spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err == nil {
		p.logFrom = st.Size()
	}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	return nil
}

// run is the process's goroutine. It holds its thread from the start of the child to its end.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if f, ok := p.cmd.Stdout.(*os.File); ok {
		f.Close() // the child has its own descriptor
	}
	p.started = time.Now()
	started <- err
	if err != nil {
		return
	}
	waitForEnd(p.cmd.Process.Pid)
	p.mu.Lock()
	p.reaped = true
	_ = p.cmd.Wait() // what it would tell is read from ProcessState
	p.mu.Unlock()
	p.exit = exitOf(p.cmd.ProcessState)
	close(p.done)
}

// waitForEnd blocks until the child has ended, and leaves it as a zombie: its id stays taken.
func waitForEnd(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func exitOf(st *os.ProcessState) Exit {
	e := Exit{Code: st.ExitCode(), CPU: st.UserTime() + st.SystemTime()}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	return e
}

// Name is the Spec's name.
func (p *Process) Name() string { return p.spec.Name }

// PID is the child's process id. After the end it may belong to somebody else.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Started is the time at which the child was started.
func (p *Process) Started() time.Time { return p.started }

// Done is closed when the process has ended, for whatever reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet. A paused process runs.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait blocks until the process has ended and tells how.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// WaitReady blocks until all probes hold. Its error is ErrExited with the log's last lines if the process ended first,
// ErrNotReady after ReadyTimeout, or the context's.
func (p *Process) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.spec.ReadyTimeout, ErrNotReady)
	defer cancel()
	for _, probe := range p.spec.Ready {
		if err := p.waitFor(ctx, probe); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) waitFor(ctx context.Context, probe Probe) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !probe.Check(ctx, p) {
		select {
		case <-p.done:
			return fmt.Errorf("%s waiting for %v: %w: it %v\n%s", p.spec.Name, probe, ErrExited, p.exit, p.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s waiting for %v: %w\n%s", p.spec.Name, probe, context.Cause(ctx), p.LogTail(20))
		case <-tick.C:
		}
	}
	if !p.Running() { // the port may be another process's
		return fmt.Errorf("%s: %w: it %v\n%s", p.spec.Name, ErrExited, p.exit, p.LogTail(20))
	}
	return nil
}

// Signal sends sig to the child's whole process group. It does nothing once the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s to %s: %w", unix.SignalName(sig), p.spec.Name, err)
	}
	return nil
}

// Pause stops the process where it is (SIGSTOP): its connections stay open and nothing is answered.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process without any chance to clean up (SIGKILL) and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// Stop asks the process to end (SIGTERM), also a paused one, and waits for it. After StopTimeout it is killed and the
// error is ErrForced. Stopping a process that has ended is no error.
func (p *Process) Stop() error {
	if err := errors.Join(p.Signal(syscall.SIGTERM), p.Resume()); err != nil {
		return err
	}
	late := time.NewTimer(p.spec.StopTimeout)
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w after %v", p.spec.Name, ErrForced, p.spec.StopTimeout)
}

// LogTail returns the last n lines that the process wrote since it was started, for error texts.
func (p *Process) LogTail(n int) string {
	text := strings.TrimRight(string(p.output()), "\n")
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (p *Process) output() []byte {
	if p.spec.LogFile == "" {
		return nil
	}
	return readFrom(p.spec.LogFile, p.logFrom, logTailMax)
}
