package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tandem/bench"
)

// ColdReport is what a cold catch-up tells beside its speed. The JSON names are stable. Series are by round.
type ColdReport struct {
	ProducerRate float64      `json:"producer_rate"`            // messages per second on the master, without a slave and while one catches up
	IdleP99      bench.Series `json:"idle_p99_us"`              // of the producers' round trips, without a slave
	CatchupP99   bench.Series `json:"catchup_p99_us"`           // while the slave fetches the log
	ProducersP99 bench.Series `json:"producers_p99"`            // CatchupP99 ÷ IdleP99
	DiskMBps     bench.Series `json:"disk_mb_per_s"`            // of a plain read of the same cold files, from begin to end
	DiskRatio    bench.Series `json:"disk_ratio"`               // of the catch-up to that
	Kept         bench.Series `json:"kept_in_memory"`           // share of the files that stayed in memory although it was told to forget them
	Resident     bench.Series `json:"resident_at_start"`        // share of the log before the producers' run that was in memory when the slave started
	GeneratorNs  bench.Series `json:"generator_ns_per_message"` // processor time of the producers during the catch-up
	Failed       string       `json:"failed,omitempty"`         // what was not acknowledged
}

// coldRun is a round's part of it.
type coldRun struct {
	idle, during bench.SendReport
	disk         float64 // 10^6 bytes per second
	kept         float64
	resident     float64
}

// mostKept is the share of the log that may be in memory for it to count as cold.
const mostKept = 0.1

// idleWarmup goes before the producers' run without a slave: it follows a restart of the master.
const idleWarmup = time.Second

// producers are a load at a moderate rate on the master; stop, which may be nil, ends it early.
func (o CatchupOptions) producers(ctx context.Context, p *pair, warmup, run time.Duration, stop <-chan struct{}) (bench.SendReport, error) {
	r, err := bench.Send(ctx, bench.SendOptions{
		Addr: p.master.Addr(), Topic: topic, Size: o.Size, Conns: fullConns, Depth: pacedDepth, Rate: o.ProducerRate,
		Warmup: warmup, Duration: run, Stop: stop,
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return r, fmt.Errorf("producers on the master: %w", err)
	}
	return r, nil
}

// followLoaded measures a slave that fetches the log while producers send, and the same producers before, without it.
func (o CatchupOptions) followLoaded(ctx context.Context, p *pair, run *catchupRun) (err error) {
	log, err := p.client.LogRange(ctx, p.master.Addr())
	if err != nil {
		return err
	}
	o.progress(0, 1, "producers without a slave")
	if run.cold.idle, err = o.producers(ctx, p, idleWarmup, o.IdleRun, nil); err != nil {
		return err
	}
	files, err := segments(p.master.Store())
	if err != nil {
		return err
	}
	if run.cold.resident, err = residentShare(files, log.Min, log.Max); err != nil {
		return err
	}
	level := make(chan struct{})
	type outcome struct {
		sent bench.SendReport
		err  error
	}
	loaded := make(chan outcome, 1)
	go func() {
		sent, err := o.producers(ctx, p, 0, time.Hour, level)
		loaded <- outcome{sent, err}
	}()
	err = o.follow(ctx, p, run, func() { close(level) })
	got := <-loaded
	run.cold.during = got.sent
	return errors.Join(err, got.err)
}

// disk reads the files of the log once, from begin to end.
func (o CatchupOptions) disk(ctx context.Context, p *pair, run *catchupRun) error {
	o.progress(0, 1, "plain read of the same files")
	files, err := segments(p.master.Store())
	if err != nil {
		return err
	}
	log, err := p.client.LogRange(ctx, p.master.Addr())
	if err != nil {
		return err
	}
	start := time.Now()
	n, err := readFiles(ctx, files, log.Max-log.Min)
	run.cold.disk = float64(n) / time.Since(start).Seconds() / 1e6
	return err
}

// readFiles reads the first total bytes of the files, which are one row.
func readFiles(ctx context.Context, files []string, total int64) (n int64, err error) {
	block := make([]byte, 1<<20)
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return n, err
		}
		for err == nil && n < total && ctx.Err() == nil {
			var got int
			got, err = f.Read(block[:min(int64(len(block)), total-n)])
			n += int64(got)
		}
		f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
	}
	return n, ctx.Err()
}

// forget restarts the master and drops the pages of its log in between, while nobody has them mapped. It returns the share of the
// files that stayed in memory.
func forget(ctx context.Context, p *pair) (kept float64, err error) {
	log, err := p.client.LogRange(ctx, p.master.Addr())
	if err != nil {
		return 0, err
	}
	if err := p.master.Stop(); err != nil {
		return 0, err
	}
	files, err := segments(p.master.Store())
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		if err := dropPages(path); err != nil {
			return 0, err
		}
	}
	if kept, err = residentShare(files, log.Min, log.Max); err != nil {
		return 0, err
	}
	return kept, p.master.Start(ctx)
}

func dropPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only clean pages are dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// residentShare is the share of a log's pages from offset from to before to that are in memory. Each of its files is named by its first
// byte's offset; the room that is only set aside for more does not count.
func residentShare(files []string, from, to int64) (float64, error) {
	var in, all int
	page := int64(os.Getpagesize())
	for _, path := range files {
		pages, err := residency(path)
		if err != nil {
			return 0, fmt.Errorf("which pages of %s are in memory: %w", path, err)
		}
		base, err := strconv.ParseInt(filepath.Base(path), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("offset of a segment: %w", err)
		}
		first := min(int64(len(pages)), max(0, from-base)/page)
		last := max(first, min(int64(len(pages)), (to-base+page-1)/page))
		all += int(last - first)
		for _, p := range pages[first:last] {
			in += int(p & 1)
		}
	}
	return float64(in) / float64(max(all, 1)), nil
}

// residency has for each page of a file whether it is in memory, in the lowest bit.
func residency(path string) (pages []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return nil, err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(m)) }()
	page := os.Getpagesize()
	pages = make([]byte, (len(m)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return nil, os.NewSyscallError("mincore", errno)
	}
	return pages, nil
}

func coldReport(rate float64, runs []catchupRun, mbps bench.Series) *ColdReport {
	pick := func(of func(coldRun) float64) bench.Series {
		return pickRuns(runs, func(r catchupRun) float64 { return of(r.cold) })
	}
	c := &ColdReport{
		ProducerRate: rate,
		IdleP99:      pick(func(r coldRun) float64 { return r.idle.RoundTrip.P99 }),
		CatchupP99:   pick(func(r coldRun) float64 { return r.during.RoundTrip.P99 }),
		DiskMBps:     pick(func(r coldRun) float64 { return r.disk }),
		GeneratorNs:  pick(func(r coldRun) float64 { return r.during.GeneratorNs }),
		Kept:         pick(func(r coldRun) float64 { return r.kept }),
		Resident:     pick(func(r coldRun) float64 { return r.resident }),
	}
	c.ProducersP99, c.DiskRatio = divide(c.CatchupP99, c.IdleP99), divide(mbps, c.DiskMBps)
	for _, r := range runs {
		if err := errors.Join(r.cold.idle.Err(), r.cold.during.Err()); err != nil && c.Failed == "" {
			c.Failed = err.Error()
		}
	}
	return c
}

func (c *ColdReport) write(w io.Writer) {
	t := bench.NewTable("producers", "p99 without a slave", "p99 during the catch-up", "ratio", "from … to", "plain read MB/s", "catch-up ÷ that", "in memory at its start")
	t.AppendRow([]any{
		fmt.Sprintf("%.0f/s", c.ProducerRate), bench.Micros(c.IdleP99.Median), bench.Micros(c.CatchupP99.Median), ratioText(c.ProducersP99),
		spreadText(c.ProducersP99), fmt.Sprintf("%.0f", c.DiskMBps.Median), ratioText(c.DiskRatio), fmt.Sprintf("%.1f %%", 100*c.Resident.Median),
	})
	fmt.Fprintln(w, t.Render())
	fmt.Fprintf(w, "the producers used %.0f ns of processor time per message\n", c.GeneratorNs.Median)
}

func (c *ColdReport) figures() []bench.Figure {
	return []bench.Figure{
		bench.NewFigure("catchup_producers_p99", "producers' p99 during a cold catch-up ÷ without a slave", "", c.ProducersP99, bench.AtMost, boundProducers),
		bench.NewFigure("catchup_disk", "cold catch-up ÷ plain read of the same cold files", "", c.DiskRatio, bench.NoBound, 0),
		c.residentFigure(),
	}
}

// residentFigure judges whether the log was cold. To have nothing of it in memory is no measurement that failed.
func (c *ColdReport) residentFigure() bench.Figure {
	f := bench.NewFigure("catchup_resident", "share of a cold log that is in memory when the slave starts", "", c.Resident, bench.AtMost, mostKept)
	if len(f.Values) > 0 && len(f.Missing) == 0 && f.High == 0 {
		f.Verdict = bench.Holds
	}
	return f
}

func (c *ColdReport) faults() []string {
	var out []string
	if c.Kept.High > mostKept {
		out = append(out, fmt.Sprintf("cold catch-up: %.0f %% of the log stayed in memory: this file system forgets nothing", 100*c.Kept.High))
	}
	if c.Failed != "" {
		out = append(out, "producers during a cold catch-up: "+c.Failed)
	}
	return out
}
