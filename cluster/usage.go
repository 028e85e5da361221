package cluster

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: Linux shows user space 100 ticks a second on every platform.
const clockTick = 10 * time.Millisecond

// Usage is what a process holds and has used so far.
type Usage struct {
	RSS     int64         `json:"rss"`      // resident bytes, mapped files included
	RssAnon int64         `json:"rss_anon"` // resident bytes that belong to no file: heap, stacks
	CPU     time.Duration `json:"cpu_ns"`   // user and system time since the start
}

// Usage reads the process's memory and processor time. After its end only CPU is known.
func (p *Process) Usage() (Usage, error) {
	select {
	case <-p.done:
		return Usage{CPU: p.exit.CPU}, nil
	default:
		return UsageOf(p.PID())
	}
}

// UsageOf reads memory and processor time of any process of this machine.
func UsageOf(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	cpu, err := parseStat(stat)
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return Usage{RSS: statusBytes(status, "VmRSS:"), RssAnon: statusBytes(status, "RssAnon:"), CPU: cpu}, nil
}

// statusBytes finds a line "Name:   123 kB" and returns its value in bytes; 0 if there is none, as for a zombie.
func statusBytes(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 64)
		if err != nil {
			return 0
		}
		return n << 10
	}
	return 0
}

// parseStat returns utime + stime. The command's name stands in parentheses and may hold blanks and parentheses itself, so
// fields are counted from the last ')' on: state is the first, utime the 12th, stime the 13th.
func parseStat(stat []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("stat line %q has too few fields", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat line %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
