package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench/remote"
	"tandem/cluster"
)

// CatchupOptions say what an empty slave has to fetch.
type CatchupOptions struct {
	Binary  string // our own executable
	Dir     string // the processes' files; the caller removes it
	Bytes   int64  // size of the master's log; default 1 GiB
	Size    int    // body bytes of its messages; default 1024
	Segment int64  // mappedFileSizeCommitLog; default 1 GiB

	Progress func(done, total int64, what string) // a few times a second
}

// CatchupReport is what Catchup measured. The JSON names are stable.
type CatchupReport struct {
	Bytes        int64           `json:"bytes"` // of the log
	Size         int             `json:"size"`
	Messages     int64           `json:"messages"`
	FillSeconds  float64         `json:"fill_seconds"`  // for the master's log to be written
	TotalSeconds float64         `json:"total_seconds"` // from the start of the slave's process until both logs ended alike
	CopySeconds  float64         `json:"copy_seconds"`  // from when the slave was first seen to have something
	CopyBytes    int64           `json:"copy_bytes"`    // that came in this time
	MBps         float64         `json:"mb_per_s"`      // CopyBytes by CopySeconds, in 10^6 bytes
	Processes    []ProcessReport `json:"processes"`     // what they used in TotalSeconds; per message of the log
}

// recordOverhead is what a record takes beside the body, topic and properties included; near enough to size a load.
const recordOverhead = 91 + 80

const catchupPoll = 5 * time.Millisecond

func (o CatchupOptions) withDefaults() CatchupOptions {
	orDefault(&o.Bytes, 1<<30)
	orDefault(&o.Size, 1024)
	orDefault(&o.Segment, 1<<30)
	return o
}

// Catchup fills a master without a slave, starts an empty slave that wants the whole log, and measures until it is level.
func Catchup(ctx context.Context, o CatchupOptions) (rep CatchupReport, err error) {
	o = o.withDefaults()
	c, err := cluster.New(cluster.Options{
		Dir: o.Dir, Slaves: 1, Role: "ASYNC_MASTER", Master: cluster.Tandem{Binary: o.Binary},
		Conf:      cluster.Conf{"mappedFileSizeCommitLog": fmt.Sprint(o.Segment)},
		SlaveConf: cluster.Conf{"haJoinFrom": "oldest"},
	})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, n := range []*cluster.Node{c.NameServer, c.Pairs[0].Master} {
		if err := n.Start(ctx); err != nil {
			return rep, err
		}
	}
	client := remote.New(0, nil)
	defer client.Close()
	if err := fill(ctx, o, c.Pairs[0].Master.Addr(), &rep); err != nil {
		return rep, err
	}
	return rep, follow(ctx, client, o, c.Pairs[0], &rep)
}

// fill sends until the master's log has about as many bytes as asked for.
func fill(ctx context.Context, o CatchupOptions, addr string, rep *CatchupReport) error {
	n := max(1, o.Bytes/int64(o.Size+recordOverhead))
	sent, err := Send(ctx, SendOptions{
		Addr: addr, Topic: "TandemCatchup", Size: o.Size, Messages: n, Duration: time.Hour,
		Progress: func(p Progress) { o.progress(p.Answered*int64(o.Size+recordOverhead), o.Bytes, "filling the master") },
	})
	if err = errors.Join(err, sent.Err(), ctx.Err()); err != nil {
		return fmt.Errorf("fill the master: %w", err)
	}
	rep.Size, rep.Messages, rep.FillSeconds = o.Size, sent.Acked, sent.Seconds
	return nil
}

func (o CatchupOptions) progress(done, total int64, what string) {
	if o.Progress != nil {
		o.Progress(min(done, total), total, what)
	}
}

// follow starts the slave and looks every few milliseconds how far it is.
func follow(ctx context.Context, client *remote.Client, o CatchupOptions, pair cluster.Pair, rep *CatchupReport) error {
	master, slave := pair.Master, pair.Slaves[0]
	want, err := client.LogRange(ctx, master.Addr())
	if err != nil {
		return err
	}
	rep.Bytes = want.Max - want.Min
	start := time.Now()
	if err := slave.Start(ctx); err != nil {
		return err
	}
	w := startWatch(&run{SendOptions: SendOptions{Watch: []Watched{watched("master", master), watched("slave", slave)}}, start: start})
	var first time.Time
	var had int64
	err = remote.Poll(ctx, catchupPoll, func() (bool, error) {
		have, err := client.LogRange(ctx, slave.Addr())
		if err != nil {
			return false, err
		}
		if first.IsZero() && have.Max > have.Min {
			first, had = time.Now(), have.Max
		}
		o.progress(have.Max-have.Min, rep.Bytes, "the slave fetches the log")
		if have.Max < want.Max {
			return false, fmt.Errorf("the slave's log ends at %d, the master's at %d", have.Max, want.Max)
		}
		return true, nil
	})
	rep.TotalSeconds = time.Since(start).Seconds()
	w.run.answered.Store(rep.Messages)
	rep.Processes = w.stop()
	if err != nil {
		return fmt.Errorf("wait for the slave: %w", err)
	}
	rep.CopyBytes, rep.CopySeconds = want.Max-had, time.Since(first).Seconds()
	if rep.CopyBytes == 0 { // level at the first look
		rep.CopyBytes, rep.CopySeconds = rep.Bytes, rep.TotalSeconds
	}
	rep.MBps = float64(rep.CopyBytes) / rep.CopySeconds / 1e6
	return nil
}

// WriteTable prints the report.
func (r CatchupReport) WriteTable(w io.Writer) {
	t := newTable("log", "messages", "fill", "from the slave's start", "copying", "MB/s")
	t.AppendRow(table.Row{
		mib(r.Bytes), r.Messages, fmt.Sprintf("%.2f s", r.FillSeconds), fmt.Sprintf("%.2f s", r.TotalSeconds),
		fmt.Sprintf("%.2f s", r.CopySeconds), fmt.Sprintf("%.0f", r.MBps),
	})
	fmt.Fprintln(w, t.Render())
	writeProcesses(w, r.Processes)
}
