package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/remote"
	"tandem/cluster"
)

// CatchupOptions say what an empty slave has to fetch.
type CatchupOptions struct {
	Setup
	Bytes   int64 // size of the master's log; default 1 GiB
	Size    int   // body bytes of its messages; default 1024
	Segment int64 // mappedFileSizeCommitLog; default 1 GiB
	Rounds  int   // of a catch-up and a bare transfer of the same files; default 5
	Cold    bool  // the files are not in memory: the master is restarted before each run, and the page cache told to forget them

	ProducerRate float64       // of the producers on the master in cold runs, messages per second; default 5,000
	IdleRun      time.Duration // for which they are measured without a slave, in each round; default 3 s
}

// CatchupReport is what Catchup measured. The JSON names are stable. All series are by round.
type CatchupReport struct {
	Bytes        int64                 `json:"bytes"` // of the log
	Size         int                   `json:"size"`
	Messages     int64                 `json:"messages"`
	Rounds       int                   `json:"rounds"`
	Cold         bool                  `json:"cold"`
	FillSeconds  float64               `json:"fill_seconds"` // for the master's log to be written
	GeneratorNs  float64               `json:"generator_ns_per_message"`
	TotalSeconds bench.Series          `json:"total_seconds"` // from the start of the slave's process until its log ended where the master's did
	CopySeconds  bench.Series          `json:"copy_seconds"`  // from when the slave was first seen to have something
	MBps         bench.Series          `json:"mb_per_s"`      // while it copied, in 10^6 bytes
	BareMBps     bench.Series          `json:"bare_mb_per_s"` // the same files, by sendfile and read into a new mapped file
	Ratio        bench.Series          `json:"ratio"`         // MBps ÷ BareMBps
	Processes    []bench.ProcessReport `json:"processes"`     // most memory of all rounds; the last one's processor time, by message of the log
	ColdFiles    *ColdReport           `json:"cold_files,omitempty"`
}

// recordOverhead is what a record takes beside the body, topic and properties included; near enough to size a load.
const recordOverhead = 91 + 80

const catchupPoll = 5 * time.Millisecond

func (o CatchupOptions) withDefaults() CatchupOptions {
	bench.OrDefault(&o.Bytes, 1<<30)
	bench.OrDefault(&o.Size, 1024)
	bench.OrDefault(&o.Segment, 1<<30)
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.ProducerRate, 5000)
	bench.OrDefault(&o.IdleRun, 3*time.Second)
	return o
}

// Catchup fills a master without a slave. Then, in turns, it starts an empty slave that wants the whole log and measures until it
// is level, and sends the same files to a bare receiver. Of cold files it also measures how fast they can be read at all, and what
// producers on the master notice of the slave.
func Catchup(ctx context.Context, o CatchupOptions) (rep CatchupReport, err error) {
	o = o.withDefaults()
	rep = CatchupReport{Size: o.Size, Rounds: o.Rounds, Cold: o.Cold}
	p, err := o.startPair(ctx, pairOptions{
		label: "catch-up", dir: "catchup", role: "ASYNC_MASTER", slaves: 1, masterOnly: true,
		conf: cluster.Conf{"mappedFileSizeCommitLog": fmt.Sprint(o.Segment)}, slaveConf: cluster.Conf{"haJoinFrom": "oldest"},
	})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	sent, err := o.fill(ctx, p.master.Addr(), o.Bytes, o.Size)
	if err != nil {
		return rep, err
	}
	rep.Messages, rep.FillSeconds, rep.GeneratorNs = sent.Acked, sent.Seconds, sent.GeneratorNs
	var runs []catchupRun
	for round := range o.Rounds {
		r, err := o.round(ctx, p, round)
		if err != nil {
			return rep, err
		}
		runs = append(runs, r)
	}
	rep.sum(runs)
	if o.Cold {
		rep.ColdFiles = coldReport(o.ProducerRate, runs, rep.MBps)
	}
	return rep, nil
}

// fill sends until a broker's log has about as many more bytes as asked for.
func (s Setup) fill(ctx context.Context, addr string, bytes int64, size int) (bench.SendReport, error) {
	n := max(1, bytes/int64(size+recordOverhead))
	sent, err := bench.Send(ctx, bench.SendOptions{
		Addr: addr, Topic: topic, Size: size, Messages: n, Duration: time.Hour, Strict: true,
		Progress: func(p bench.Progress) {
			s.progress(int(p.Answered), int(n), "filling the log")
		},
	})
	if err = errors.Join(err, sent.Err(), ctx.Err()); err != nil {
		return sent, fmt.Errorf("fill the log: %w", err)
	}
	return sent, nil
}

// catchupRun is one round.
type catchupRun struct {
	bytes             int64
	total, copy, mbps float64
	bare              float64
	processes         []bench.ProcessReport
	cold              coldRun
}

// round measures a new slave and a bare transfer, and of cold files a plain read; in each round another one comes first.
func (o CatchupOptions) round(ctx context.Context, p *pair, n int) (run catchupRun, err error) {
	steps := []func() error{
		func() error { return o.follow(ctx, p, &run, func() {}) },
		func() error { return o.bare(ctx, p, &run) },
	}
	if o.Cold {
		steps[0] = func() error { return o.followLoaded(ctx, p, &run) }
		steps = append(steps, func() error { return o.disk(ctx, p, &run) })
	}
	for i := range steps {
		if o.Cold {
			kept, err := forget(ctx, p)
			if err != nil {
				return run, err
			}
			run.cold.kept = max(run.cold.kept, kept)
		}
		if err := o.warm(ctx); err != nil {
			return run, err
		}
		if err := steps[(i+n)%len(steps)](); err != nil {
			return run, err
		}
	}
	return run, nil
}

func (o CatchupOptions) bare(ctx context.Context, p *pair, run *catchupRun) error {
	o.progress(0, 1, "bare transfer of the same files")
	log, err := p.client.LogRange(ctx, p.master.Addr())
	if err != nil {
		return err
	}
	files, err := segments(p.master.Store())
	if err != nil {
		return err
	}
	run.bare, err = o.transferOnce(ctx, files, log.Max-log.Min)
	return err
}

// follow starts the slave over an empty store and looks every few milliseconds how far it is. It calls ended when the slave has all
// that the master had, or does not come to it, and before the slave is stopped.
func (o CatchupOptions) follow(ctx context.Context, p *pair, run *catchupRun, ended func()) (err error) {
	end := sync.OnceFunc(ended)
	defer end()
	slave := p.slaves[0]
	want, err := p.client.LogRange(ctx, p.master.Addr())
	if err != nil {
		return err
	}
	run.bytes = want.Max - want.Min
	start := time.Now()
	if err := slave.Start(ctx); err != nil {
		return err
	}
	w := bench.StartWatch([]bench.Watched{watched("master", p.master), watched("slave", slave)}, nil)
	defer func() {
		end()
		run.processes = w.Stop(run.bytes / int64(o.Size+recordOverhead))
		err = errors.Join(err, slave.Stop(), os.RemoveAll(slave.Store()))
	}()
	var first time.Time
	var had int64
	err = remote.Poll(ctx, catchupPoll, func() (bool, error) {
		have, err := p.client.LogRange(ctx, slave.Addr())
		if err != nil {
			return false, err
		}
		if first.IsZero() && have.Max > have.Min {
			first, had = time.Now(), have.Max
		}
		o.progress(int(have.Max-have.Min), int(run.bytes), "a slave fetches the log")
		if have.Max < want.Max {
			return false, fmt.Errorf("the slave's log ends at %d, the master's at %d", have.Max, want.Max)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the slave: %w", err)
	}
	run.total, run.copy = time.Since(start).Seconds(), time.Since(first).Seconds()
	end()
	copied := want.Max - had
	if copied == 0 { // level at the first look
		copied, run.copy = run.bytes, run.total
	}
	run.mbps = float64(copied) / run.copy / 1e6
	return nil
}

func (r *CatchupReport) sum(runs []catchupRun) {
	pick := func(of func(catchupRun) float64) bench.Series { return pickRuns(runs, of) }
	r.Bytes = runs[0].bytes
	r.TotalSeconds = pick(func(c catchupRun) float64 { return c.total })
	r.CopySeconds = pick(func(c catchupRun) float64 { return c.copy })
	r.MBps = pick(func(c catchupRun) float64 { return c.mbps })
	r.BareMBps = pick(func(c catchupRun) float64 { return c.bare })
	r.Ratio = divide(r.MBps, r.BareMBps)
	for _, run := range runs {
		r.Processes = highest(r.Processes, run.processes)
	}
}

func pickRuns(runs []catchupRun, of func(catchupRun) float64) bench.Series {
	var values []float64
	for _, run := range runs {
		values = append(values, of(run))
	}
	return bench.NewSeries(values)
}

// highest has the most memory of both rows of the same processes, and all else of the second.
func highest(a, b []bench.ProcessReport) []bench.ProcessReport {
	for i := range min(len(a), len(b)) {
		b[i].RSS, b[i].RssAnon = max(a[i].RSS, b[i].RSS), max(a[i].RssAnon, b[i].RssAnon)
	}
	return b
}

func (r CatchupReport) state() string {
	if r.Cold {
		return "cold"
	}
	return "hot"
}

// WriteTable prints the report.
func (r CatchupReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "Catch-up of an empty slave beside a bare transfer of the same files, %s, %d rounds\n", r.state(), r.Rounds)
	t := bench.NewTable("log", "messages", "fill", "from the slave's start", "copying", "MB/s", "bare MB/s", "ratio", "from … to")
	t.AppendRow(table.Row{
		bench.MiB(r.Bytes), r.Messages, fmt.Sprintf("%.2f s", r.FillSeconds), fmt.Sprintf("%.2f s", r.TotalSeconds.Median),
		fmt.Sprintf("%.2f s", r.CopySeconds.Median), fmt.Sprintf("%.0f", r.MBps.Median), fmt.Sprintf("%.0f", r.BareMBps.Median),
		ratioText(r.Ratio), spreadText(r.Ratio),
	})
	fmt.Fprintln(w, t.Render())
	if r.ColdFiles != nil {
		r.ColdFiles.write(w)
	}
	bench.WriteProcesses(w, r.Processes)
	writeGenerator(w, r.GeneratorNs)
}

func writeGenerator(w io.Writer, ns float64) {
	fmt.Fprintf(w, "the generator used %.0f ns of processor time per message\n", ns)
}

// Figures of the report.
func (r CatchupReport) Figures() []bench.Figure {
	sense := bench.AtLeast
	if r.Cold { // the disk's speed is no matter of ours
		sense = bench.NoBound
	}
	out := []bench.Figure{
		bench.NewFigure("catchup_bare_"+r.state(), "catch-up ÷ bare transfer of the same files, "+r.state(), "", r.Ratio, sense, boundCatchup),
	}
	if r.ColdFiles != nil {
		out = append(out, r.ColdFiles.figures()...)
	}
	return append(out, memoryFigure("catchup_"+r.state(), "catch-up, "+r.state(), r.Processes))
}

// Faults implements Report: anything else that went wrong has ended the trial.
func (r CatchupReport) Faults() []string {
	if r.ColdFiles == nil {
		return nil
	}
	return r.ColdFiles.faults()
}
