package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/bench"
)

// Memory makes the pages that a run will dirty ones that the machine has already. The host of a virtual machine may take free pages
// back; the next touch of each then costs a fault of the host, some ten times what the page costs otherwise, in the page cache too, and
// the figures of a run depend on which pages the kernel happens to hand out. A machine that has run for long has a full page cache,
// whose pages are never of that kind. So before each run so much memory as the run may dirty is taken, touched and given back
// right away: the kernel hands out first what it got last. It stays so for some seconds, until the host takes free pages again. Where
// there is no such host it costs some tenths of a second per GiB.
//
// The nil *Memory leaves all pages as they are. It is used by one goroutine at a time, as trials are.
type Memory struct {
	most int64 // bytes before a run; 0: by what is available
	rep  MemoryReport

	all touched // of all runs together
}

// NewMemory warms at most so many bytes before a run, and never more than the run may dirty; 0 is a quarter of what is available then.
func NewMemory(most int64) *Memory { return &Memory{most: most} }

// MemoryReport tells in which state runs found the machine's free memory. The JSON names are stable.
type MemoryReport struct {
	Warmed  bool    `json:"warmed"`             // before each run; false: it was left as it was
	Runs    int     `json:"runs"`               // before which it was
	Bytes   int64   `json:"bytes"`              // before all of them
	Most    int64   `json:"most_bytes"`         // before one
	Seconds float64 `json:"seconds"`            // that it took in all
	PageNs  float64 `json:"page_ns"`            // of a page, when it was warmed, the mean: less than 1000, or many where the host had taken pages
	Highest float64 `json:"page_ns_highest"`    // the mean before the run where it was highest
	Failed  string  `json:"failed,omitempty"`   // the last reason for which memory was not warmed before a run
	Missed  int     `json:"failures,omitempty"` // runs before which it was not
}

// Report is what was done so far.
func (m *Memory) Report() MemoryReport {
	if m == nil {
		return MemoryReport{}
	}
	r := m.rep
	r.Warmed, r.PageNs = r.Runs > 0, m.all.pageNs()
	return r
}

// String is the report in one line.
func (r MemoryReport) String() string {
	if !r.Warmed {
		return "memory: left as it was found" + r.failedText()
	}
	us := func(ns float64) string { return fmt.Sprintf("%.2f µs", ns/1e3) }
	return fmt.Sprintf("memory: warmed before each of %d runs, %s at most, %.1f s in all; a page took %s of processor time (%s before the worst one)%s",
		r.Runs, bench.MiB(r.Most), r.Seconds, us(r.PageNs), us(r.Highest), r.failedText())
}

func (r MemoryReport) failedText() string {
	if r.Failed == "" {
		return ""
	}
	return fmt.Sprintf("; %d times it could not be warmed: %s", r.Missed, r.Failed)
}

const (
	largePage   = 2 << 20
	warmStep    = 64 << 20 // taken between two looks at the context: about a quarter of a second of cold pages
	mostOfAll   = 4        // a run's share of the available memory is one of so many
	leastNeeded = 16 << 20 // of a run: what brokers prepare ahead
)

// warm makes ready what a run may dirty, in bytes. Its error is the context's: where memory cannot be had the run finds it as it is.
func (s Setup) warm(ctx context.Context, need int64) error {
	if s.Memory == nil {
		return ctx.Err()
	}
	return s.Memory.warm(ctx, need)
}

func (m *Memory) warm(ctx context.Context, need int64) error {
	most := m.most
	if most == 0 {
		available, err := availableMemory()
		if err != nil {
			return m.miss(ctx, err)
		}
		most = available / mostOfAll
	}
	got, err := touchAndFree(ctx, min(max(need, leastNeeded), most))
	if err != nil {
		return m.miss(ctx, err)
	}
	m.note(got)
	return nil
}

// miss notes a run before which there was no memory to be had.
func (m *Memory) miss(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		m.rep.Failed = err.Error()
		m.rep.Missed++
	}
	return ctx.Err()
}

func (m *Memory) note(t touched) {
	m.all.add(t)
	m.rep.Runs++
	m.rep.Bytes += t.bytes
	m.rep.Most = max(m.rep.Most, t.bytes)
	m.rep.Seconds += t.took.Seconds()
	m.rep.Highest = max(m.rep.Highest, t.pageNs())
}

// touched is memory of which each page was written to.
type touched struct {
	bytes int64
	took  time.Duration
	cpu   time.Duration // processor time of that, without giving it back
}

func (t *touched) add(o touched) {
	t.bytes, t.took, t.cpu = t.bytes+o.bytes, t.took+o.took, t.cpu+o.cpu
}

// pageNs is the mean of a page's processor time, 0 of no memory.
func (t touched) pageNs() float64 {
	if t.bytes == 0 {
		return 0
	}
	return float64(t.cpu.Nanoseconds()) * float64(os.Getpagesize()) / float64(t.bytes)
}

// touchAndFree takes so many bytes, rounded up to whole large pages, writes to each page, and gives all back. The pages are large where they
// can be had. Not just because they take a fraction of the time: small ones come of what is free in small pieces, and what a log's
// file then gets are other, larger pieces, as cold as before.
func touchAndFree(ctx context.Context, bytes int64) (t touched, err error) {
	bytes = (bytes + largePage - 1) / largePage * largePage
	start := time.Now()
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return t, fmt.Errorf("take %s of memory: %w", bench.MiB(bytes), err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(m)) }()
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // where that is not to be had, small ones do in part
	cpu, err := touch(ctx, m)
	return touched{bytes, time.Since(start), cpu}, err
}

// touch writes to each page, and returns the processor time that it took: other processes may be busy meanwhile.
func touch(ctx context.Context, m []byte) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	for rest := m; len(rest) > 0; rest = rest[min(len(rest), warmStep):] {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for i := 0; i < min(len(rest), warmStep); i += os.Getpagesize() {
			rest[i] = 1
		}
	}
	return threadTime() - start, nil
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails only for clocks that do not exist
	return time.Duration(t.Nano())
}

// errNoMeminfo says that the kernel does not tell how much memory is available.
var errNoMeminfo = errors.New("/proc/meminfo does not tell what is available")

// availableMemory is what may be had without taking it from anybody, in bytes.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return availableOf(string(text))
}

func availableOf(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		value, ok := strings.CutPrefix(line, "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 54)
		if err != nil || kib < 0 {
			break
		}
		return kib << 10, nil
	}
	return 0, errNoMeminfo
}

// What loads come to on a fast machine, to tell what memory a run may dirty.
const (
	fastSingle = 20_000    // messages per second, one in flight
	fastFull   = 500_000   // many in flight
	fastLog    = 256 << 20 // bytes per second of a log
	queueEntry = 20        // bytes of a consume queue for a message
)

// warmLasts is how long memory that was given back stays warm, more or less: to warm more than a run dirties until then is of no use.
const warmLasts = 10 * time.Second

// dirties is how many bytes of memory a run of this load may dirty in so many stores while warm memory stays so, with bodies of size bytes.
func (l load) dirties(run time.Duration, size, stores int) int64 {
	perSecond := float64(fastFull)
	switch {
	case l.rate > 0:
		perSecond = l.rate
	case l.conns*l.depth == 1:
		perSecond = fastSingle
	}
	bytes := min(perSecond*float64(size+recordOverhead+queueEntry), fastLog) * float64(stores)
	return int64(bytes * min(run, warmLasts).Seconds())
}
