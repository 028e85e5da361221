package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell starts a script that is killed when the test ends.
func shell(t *testing.T, script string, change ...func(*Spec)) *Process {
	t.Helper()
	dir := t.TempDir()
	spec := Spec{Name: "script", Path: "sh", Args: []string{"-c", script}, Dir: dir, LogFile: filepath.Join(dir, "out.log")}
	for _, c := range change {
		c(&spec)
	}
	p, err := Start(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	return p
}

func ready(texts ...string) func(*Spec) {
	return func(s *Spec) {
		for _, text := range texts {
			s.Ready = append(s.Ready, LogLine(text))
		}
	}
}

func processState(t *testing.T, pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}

func TestAProcessThatEndsTellsItsStatus(t *testing.T) {
	p := shell(t, "exit 7")
	require.Equal(t, 7, p.Wait().Code)
	require.False(t, p.Running())
	require.Equal(t, "ended with status 7", p.Wait().String())
	require.NoError(t, p.Stop(), "stopping what has ended is no error")
}

func TestStartNamesWhatCannotBeStarted(t *testing.T) {
	_, err := Start(Spec{Name: "nobody", Path: "/does/not/exist"})
	require.ErrorContains(t, err, "start nobody")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWaitReadyReturnsWhenAllProbesHold(t *testing.T) {
	p := shell(t, "echo one; echo two; exec sleep 60", ready("one", "two"))
	require.NoError(t, p.WaitReady(t.Context()))
	require.Equal(t, "one\ntwo", p.LogTail(5))
	require.Equal(t, "two", p.LogTail(1))
}

func TestWaitReadyIgnoresWhatAnEarlierRunWrote(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "out.log")
	require.NoError(t, os.WriteFile(log, []byte("ready\n"), 0o644))
	p := shell(t, "exec sleep 60", ready("ready"), func(s *Spec) { s.LogFile = log; s.ReadyTimeout = 30 * time.Millisecond })
	require.ErrorIs(t, p.WaitReady(t.Context()), ErrNotReady)
}

func TestWaitReadyTellsWhyAProcessEnded(t *testing.T) {
	p := shell(t, "echo port is taken; exit 1", ready("ready"))
	err := p.WaitReady(t.Context())
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "status 1")
	require.ErrorContains(t, err, "port is taken")
}

func TestWaitReadyEndsWithItsContext(t *testing.T) {
	p := shell(t, "exec sleep 60", ready("ready"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.WaitReady(ctx), context.Canceled)
}

func TestAPortHeldByAnotherProcessIsNotReadiness(t *testing.T) {
	port, err := LeasePort(0)
	require.NoError(t, err)
	defer port.Release()
	first, err := Start(serveSpec(strconv.Itoa(port.Port), t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Stop()) }()
	require.NoError(t, first.WaitReady(t.Context()))

	second, err := Start(serveSpec(strconv.Itoa(port.Port), t.TempDir()))
	require.NoError(t, err)
	require.ErrorIs(t, second.WaitReady(t.Context()), ErrExited)
}

func TestStopLetsAProcessCleanUp(t *testing.T) {
	p := shell(t, `trap "echo cleaned; exit 0" TERM; echo up; while :; do sleep 0.01; done`, ready("up"))
	require.NoError(t, p.WaitReady(t.Context()))
	require.NoError(t, p.Stop())
	require.Equal(t, Exit{CPU: p.Wait().CPU}, p.Wait())
	require.Contains(t, p.LogTail(1), "cleaned")
}

func TestStopKillsAProcessThatDoesNotListen(t *testing.T) {
	p := shell(t, `trap "" TERM; echo up; while :; do sleep 0.01; done`, ready("up"),
		func(s *Spec) { s.StopTimeout = 50 * time.Millisecond })
	require.NoError(t, p.WaitReady(t.Context()))
	require.ErrorIs(t, p.Stop(), ErrForced)
	require.Equal(t, syscall.SIGKILL, p.Wait().Signal)
	require.Equal(t, "ended by signal SIGKILL", p.Wait().String())
}

func TestStopReachesAPausedProcess(t *testing.T) {
	p, err := Start(serveSpec("0", t.TempDir()))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(p.LogTail(1), "listening") }, 10*time.Second, time.Millisecond)
	require.NoError(t, p.Pause())
	require.Eventually(t, func() bool { return processState(t, p.PID()) == "T" }, 10*time.Second, time.Millisecond)
	require.NoError(t, p.Stop())
	require.Zero(t, p.Wait().Signal, "it ended by itself")
	require.Contains(t, p.LogTail(1), "stopping")
}

func TestAPausedProcessGoesOnAfterResume(t *testing.T) {
	p := shell(t, "exec sleep 60")
	require.NoError(t, p.Pause())
	require.Eventually(t, func() bool { return processState(t, p.PID()) == "T" }, 10*time.Second, time.Millisecond)
	require.NoError(t, p.Resume())
	require.Eventually(t, func() bool { return processState(t, p.PID()) == "S" }, 10*time.Second, time.Millisecond)
}

func TestKillReachesTheWholeGroup(t *testing.T) {
	p := shell(t, "sleep 60 & echo child $!; wait", ready("child "))
	require.NoError(t, p.WaitReady(t.Context()))
	child, err := strconv.Atoi(strings.TrimPrefix(p.LogTail(1), "child "))
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return gone(child) }, 10*time.Second, time.Millisecond)
}

// gone tells whether a process has ended, be it reaped by its new parent or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestAChildDiesWithItsParent(t *testing.T) {
	log := filepath.Join(t.TempDir(), "grandchild")
	parent, err := Start(Spec{
		Name: "parent", Path: os.Args[0], Args: []string{"-test.run=^TestParentRole$"}, Env: []string{"TANDEM_TEST_PARENT=" + log},
	})
	require.NoError(t, err)
	var pid int
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(log)
		pid, err = strconv.Atoi(strings.TrimSuffix(string(text), "\n"))
		return err == nil && strings.HasSuffix(string(text), "\n")
	}, 20*time.Second, 5*time.Millisecond)
	require.False(t, gone(pid))

	require.NoError(t, syscall.Kill(parent.PID(), syscall.SIGKILL), "the parent alone, not its group")
	parent.Wait()
	require.Eventually(t, func() bool { return gone(pid) }, 10*time.Second, time.Millisecond)
}

// TestParentRole is the parent of the test above: it starts a child, says its id, and waits to be killed.
func TestParentRole(t *testing.T) {
	log := os.Getenv("TANDEM_TEST_PARENT")
	if log == "" {
		return
	}
	p, err := Start(Spec{Name: "sleep", Path: "sleep", Args: []string{"60"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(log, fmt.Appendln(nil, p.PID()), 0o644))
	p.Wait()
}

func TestUsageTellsMemoryAndProcessorTime(t *testing.T) {
	p := shell(t, "while :; do :; done")
	require.Eventually(t, func() bool {
		u, err := p.Usage()
		require.NoError(t, err)
		return u.CPU >= 20*time.Millisecond && u.RSS > 0 && u.RssAnon > 0 && u.RssAnon <= u.RSS
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, p.Kill())
	u, err := p.Usage()
	require.NoError(t, err)
	require.GreaterOrEqual(t, u.CPU, 20*time.Millisecond, "it outlives the process")
}

func TestUsageOfNobodyIsAnError(t *testing.T) {
	_, err := UsageOf(1 << 30)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestStatLinesAreReadBehindTheCommandName(t *testing.T) {
	cpu, err := parseStat([]byte("12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 1 0 100 1 1"))
	require.NoError(t, err)
	require.Equal(t, 120*time.Millisecond, cpu)
	for _, bad := range []string{"", "12 (x) S 1 2", "12 (x) S 1 12 12 0 -1 4194560 100 0 0 0 x 5 0"} {
		_, err := parseStat([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestStatusValuesAreKilobytes(t *testing.T) {
	status := []byte("Name:\tx\nVmRSS:\t    1200 kB\nRssAnon:\t 300 kB\nEmpty:\nOdd: many kB\n")
	require.EqualValues(t, 1200<<10, statusBytes(status, "VmRSS:"))
	require.EqualValues(t, 300<<10, statusBytes(status, "RssAnon:"))
	for _, none := range []string{"Missing:", "Empty:", "Odd:"} {
		require.Zero(t, statusBytes(status, none), none)
	}
}

func TestRunReturnsOutputAndStatus(t *testing.T) {
	out, err := Run(t.Context(), Spec{Name: "ok", Path: "sh", Args: []string{"-c", "echo out; echo err >&2"}})
	require.NoError(t, err)
	require.Equal(t, "out\nerr\n", out)

	_, err = Run(t.Context(), Spec{Name: "bad", Path: "sh", Args: []string{"-c", "echo reason; exit 2"}})
	var failed *RunError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 2, failed.Exit.Code)
	require.ErrorContains(t, err, "reason")
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, Spec{Name: "long", Path: "sleep", Args: []string{"60"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
