package transfer

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// apart runs f on a thread of its own that has a processor only when no other thread wants it, and waits for it. It is for catching up
// over long distances. A producer's or consumer's thread that wakes takes the processor from such a thread at once; from an
// ordinary one it may have to wait for the rest of its turn, some milliseconds.
//
// f must not hold a lock that others wait for: who waits for it waits for all that goes before it. The thread ends with f; to
// raise its priority again would take a privilege.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the process's first thread, which the runtime never ends
			err := apart(f) // on another one, since this goroutine keeps this
			runtime.UnlockOSThread()
			done <- err
			return
		}
		lowerPriority() // and stay locked: the runtime ends such a thread
		done <- f()
	}()
	return <-done
}

// lowerPriority puts the calling thread behind all others, or, where that is forbidden, at the least share. Without either it only
// disturbs more.
func lowerPriority() {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), leastNice)
	}
}

const leastNice = 19

// delayed gives for how long, all its life, the calling thread has been ready to run and had no processor. false: the kernel does
// not tell.
func delayed() (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		return 0, false
	}
	return parseSchedstat(stat)
}

// parseSchedstat reads the ns a thread ran, those it was delayed, and how often it ran; that is 0 where nothing is counted.
func parseSchedstat(stat []byte) (time.Duration, bool) {
	fields := bytes.Fields(stat)
	if len(fields) != 3 || string(fields[2]) == "0" {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(ns), err == nil
}
