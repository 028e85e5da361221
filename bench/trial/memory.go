package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/bench"
)

// Memory keeps the kernel's page cache full, as it is on a host that has run for long: then the pages that a run dirties are some that
// the machine has, taken from what nobody needs. Without it runs on a fresh machine take pages that are free, and those the host of a virtual machine has yet
// to provide, or has taken back: the first touch of each costs some ten times what the page costs otherwise, and figures tell what the
// kernel happened to hand out. What fills the cache are pages of a file of nothing but holes, which takes no space on the disk; what a trial frees, by
// removing its stores, is filled up before the next run. Among them lie single pages that stay: a host takes back free memory in whole large
// pieces only, and so no piece is ever free as a whole, as on a machine whose memory is mixed up from use.
//
// The nil *Memory leaves all as it is. It is used by one goroutine at a time, as trials are.
type Memory struct {
	most int64    // bytes of the file; 0: as many as the machine has memory
	file *os.File // without a name; nil before the first run
	size int64
	next int64 // where it is read from next: what lies there was read longest ago
	buf  []byte
	pins []byte // pages that stay, one for each pinStep of the file
	rep  MemoryReport
}

// NewMemory fills the page cache with at most so many bytes, 0: with as many as it takes. Close empties it again.
func NewMemory(most int64) *Memory { return &Memory{most: most} }

// Close lets go of the pages.
func (m *Memory) Close() error {
	if m == nil || m.file == nil {
		return nil
	}
	return errors.Join(m.file.Close(), unix.Munmap(m.pins))
}

// MemoryReport tells in which state runs found the machine's memory. The JSON names are stable.
type MemoryReport struct {
	Filled  bool    `json:"filled"`             // the page cache, before each run; false: it was left as it was
	Runs    int     `json:"runs"`               // before which it was
	Bytes   int64   `json:"bytes"`              // read for that, in all
	Seconds float64 `json:"seconds"`            // that it took in all
	Free    int64   `json:"free_bytes_highest"` // what nothing was in, before the run where that was most
	Failed  string  `json:"failed,omitempty"`   // the last reason for which it was not filled before a run
	Missed  int     `json:"failures,omitempty"` // runs before which it was not
}

// Report is what was done so far.
func (m *Memory) Report() MemoryReport {
	if m == nil {
		return MemoryReport{}
	}
	r := m.rep
	r.Filled = r.Runs > 0
	return r
}

// String is the report in one line.
func (r MemoryReport) String() string {
	if !r.Filled {
		return "memory: left as it was found" + r.failedText()
	}
	return fmt.Sprintf("memory: page cache filled before each of %d runs, %.1f s in all; %s were free at most%s",
		r.Runs, r.Seconds, bench.MiB(r.Free), r.failedText())
}

func (r MemoryReport) failedText() string {
	if r.Failed == "" {
		return ""
	}
	return fmt.Sprintf("; %d times it could not be filled: %s", r.Missed, r.Failed)
}

const (
	fillStep = 64 << 20 // read between two looks at what is free
	// fullSteps is how many steps in a row must not make less free for the cache to be full: what one reads may have been there.
	fullSteps = 4
	fillBlock = 256 << 10
	pinStep   = 1 << 20 // half of the least that a host takes back
)

// warm makes memory what it would be on a host that has run for long. Its error is the context's: where that cannot be had the run
// finds it as it is.
func (s Setup) warm(ctx context.Context) error {
	if s.Memory == nil {
		return ctx.Err()
	}
	if s.Memory.file == nil {
		s.progress(0, 1, "filling the page cache")
	}
	return s.Memory.warm(ctx, s.Dir)
}

func (m *Memory) warm(ctx context.Context, dir string) error {
	start := time.Now()
	err := m.open(dir)
	if err == nil {
		err = m.fill(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		m.rep.Failed = err.Error()
		m.rep.Missed++
		return nil
	}
	m.rep.Runs++
	m.rep.Seconds += time.Since(start).Seconds()
	return nil
}

// open makes the file, once, and takes its name away: its pages end with this process, however that ends.
func (m *Memory) open(dir string) (err error) {
	if m.file != nil {
		return nil
	}
	if m.size = m.most; m.size == 0 {
		if m.size, err = meminfo("MemTotal"); err != nil {
			return err
		}
	}
	m.size = (m.size + pinStep - 1) / pinStep * pinStep
	f, err := os.CreateTemp(dir, "page-cache.*")
	if err != nil {
		return err
	}
	err = errors.Join(os.Remove(f.Name()), f.Truncate(m.size))
	if err == nil {
		err = unix.Fadvise(int(f.Fd()), 0, m.size, unix.FADV_RANDOM) // pages one by one, as they are after a long time, not in large pieces
	}
	if err == nil {
		m.pins, err = unix.Mmap(-1, 0, int(m.size/pinStep)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_ = unix.Madvise(m.pins, unix.MADV_NOHUGEPAGE) // where there are no large pages anyway, the kernel does not know the word
	m.file, m.buf = f, make([]byte, fillBlock)
	return nil
}

// fill reads until that makes nothing less free: the kernel then takes from what is there as much as it gives.
func (m *Memory) fill(ctx context.Context) error {
	free, err := meminfo("MemFree")
	for read, full := int64(0), 0; err == nil && read < m.size && full < fullSteps; {
		var n int64
		if n, err = m.step(ctx); err != nil {
			return err
		}
		read += n
		was := free
		free, err = meminfo("MemFree")
		if full++; was-free > n/2 {
			full = 0
		}
	}
	if err == nil {
		m.rep.Free = max(m.rep.Free, free)
	}
	return err
}

// step reads the file's next part.
func (m *Memory) step(ctx context.Context) (n int64, err error) {
	for n < fillStep && n < m.size && err == nil {
		m.pins[int(m.next/pinStep)*os.Getpagesize()] = 1
		var got int
		got, err = m.file.ReadAt(m.buf, m.next)
		n += int64(got)
		if m.next += int64(got); m.next >= m.size {
			m.next = 0
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = ctx.Err()
		}
	}
	m.rep.Bytes += n
	return n, err
}

// errNoMeminfo says that the kernel does not tell about its memory.
var errNoMeminfo = errors.New("/proc/meminfo does not tell")

// meminfo is what the kernel tells of its memory under this name, in bytes.
func meminfo(name string) (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return meminfoOf(string(text), name)
}

func meminfoOf(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 54)
		if err != nil || kib < 0 {
			break
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%w: %s", errNoMeminfo, name)
}
