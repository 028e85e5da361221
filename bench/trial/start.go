package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sys/unix"

	"tandem/bench"
	"tandem/bench/remote"
	"tandem/cluster"
	"tandem/codec"
)

// StartOptions say how large a store is opened.
type StartOptions struct {
	Setup
	Bytes   int64         // of the log; default 5 GiB
	Segment int64         // mappedFileSizeCommitLog; default 1 GiB
	Size    int           // body bytes of its messages; default 1024
	Rounds  int           // of each kind of start; default 5
	Load    time.Duration // for which the broker takes messages before it is killed; default 1 s
}

// StartReport is how long a broker takes from the start of its process to the answer to its first message, in seconds. The JSON
// names are stable.
type StartReport struct {
	Bytes       int64                 `json:"bytes"`
	Size        int                   `json:"size"`
	Messages    int64                 `json:"messages"`
	Rounds      int                   `json:"rounds"`
	FillSeconds float64               `json:"fill_seconds"`
	GeneratorNs float64               `json:"generator_ns_per_message"`
	Empty       bench.Series          `json:"empty_seconds"`  // no store there
	Clean       bench.Series          `json:"clean_seconds"`  // closed by SIGTERM
	Killed      bench.Series          `json:"killed_seconds"` // killed by SIGKILL while it took messages
	Processes   []bench.ProcessReport `json:"processes"`      // with the full store, after each start
}

func (o StartOptions) withDefaults() StartOptions {
	bench.OrDefault(&o.Bytes, 5<<30)
	bench.OrDefault(&o.Segment, 1<<30)
	bench.OrDefault(&o.Size, 1024)
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.Load, time.Second)
	return o
}

// Start measures starts of a master over no store, over one that was closed cleanly, and over one whose broker was killed.
func Start(ctx context.Context, o StartOptions) (rep StartReport, err error) {
	o = o.withDefaults()
	rep = StartReport{Size: o.Size, Rounds: o.Rounds}
	if err := o.checkSpace(); err != nil {
		return rep, err
	}
	p, err := o.startPair(ctx, pairOptions{
		label: "start", dir: "start", role: "ASYNC_MASTER", masterOnly: true,
		conf: cluster.Conf{"mappedFileSizeCommitLog": fmt.Sprint(o.Segment)},
	})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	m := &starts{StartOptions: o, pair: p, rep: &rep}
	for _, step := range []func(context.Context) error{m.empty, m.fillStore, m.clean, m.killed} {
		if err := step(ctx); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

// checkSpace also counts what the killed broker takes, and segments that are made ahead.
func (o StartOptions) checkSpace() error {
	var fs unix.Statfs_t
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	if err := unix.Statfs(o.Dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", o.Dir, err)
	}
	free, need := int64(fs.Bavail)*fs.Bsize, o.Bytes+o.Bytes/2+3*o.Segment
	if free < need {
		return fmt.Errorf("%w: a log of %s needs %s of disk, %s are free in %s", bench.ErrOptions, bench.MiB(o.Bytes), bench.MiB(need), bench.MiB(free), o.Dir)
	}
	return nil
}

// starts is a master that is started over and over.
type starts struct {
	StartOptions
	*pair
	rep *StartReport
}

func (m *starts) empty(ctx context.Context) error {
	var values []float64
	for n := range m.Rounds {
		m.progress(n, m.Rounds, "start without a store")
		if err := errors.Join(m.master.Stop(), os.RemoveAll(m.master.Store())); err != nil {
			return err
		}
		s, err := m.start(ctx)
		if err != nil {
			return err
		}
		values = append(values, s)
	}
	m.rep.Empty = bench.NewSeries(values)
	return nil
}

func (m *starts) fillStore(ctx context.Context) error {
	sent, err := m.fill(ctx, m.master.Addr(), m.Bytes, m.Size)
	if err != nil {
		return err
	}
	log, err := m.client.LogRange(ctx, m.master.Addr())
	m.rep.Bytes, m.rep.Messages = log.Max-log.Min, sent.Acked
	m.rep.FillSeconds, m.rep.GeneratorNs = sent.Seconds, sent.GeneratorNs
	return err
}

func (m *starts) clean(ctx context.Context) error {
	var values []float64
	for n := range m.Rounds {
		m.progress(n, m.Rounds, "start after a clean close")
		if err := m.master.Stop(); err != nil {
			return err
		}
		s, err := m.start(ctx)
		if err != nil {
			return err
		}
		values = append(values, s)
	}
	m.rep.Clean = bench.NewSeries(values)
	return nil
}

func (m *starts) killed(ctx context.Context) error {
	var values []float64
	for n := range m.Rounds {
		m.progress(n, m.Rounds, "start after a kill")
		if err := m.killLoaded(ctx); err != nil {
			return err
		}
		s, err := m.start(ctx)
		if err != nil {
			return err
		}
		values = append(values, s)
	}
	m.rep.Killed = bench.NewSeries(values)
	return nil
}

// killLoaded kills the master while it takes messages.
func (m *starts) killLoaded(ctx context.Context) error {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := bench.Send(loading, bench.SendOptions{
			Addr: m.master.Addr(), Topic: topic, Size: m.Size, Conns: 1, Depth: 16, Duration: time.Hour,
		})
		ended <- err
	}()
	late := time.NewTimer(m.Load)
	defer late.Stop()
	select {
	case <-late.C:
	case err := <-ended:
		return fmt.Errorf("load before a kill: %w", errors.Join(err, ctx.Err()))
	}
	err := m.master.Kill()
	stop()
	return errors.Join(err, <-ended)
}

// start starts the master and returns the seconds until it has stored a message.
func (m *starts) start(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("the broker did not answer within two minutes"))
	defer cancel()
	begin := time.Now()
	started := make(chan error, 1)
	go func() {
		err := m.master.Start(ctx)
		if err != nil {
			cancel() // nobody will answer
		}
		started <- err
	}()
	client := remote.New(0, nil)
	defer client.Close()
	err := remote.Poll(ctx, time.Millisecond, func() (bool, error) {
		sent, err := client.Send(ctx, m.master.Addr(), remote.Message{Topic: topic, Body: []byte("does it serve?")})
		if err == nil && sent.Code != codec.Success {
			err = fmt.Errorf("a message is answered %s", codec.CodeName(sent.Code))
		}
		return err == nil, err
	})
	took := time.Since(begin).Seconds()
	if err := errors.Join(<-started, err); err != nil {
		return 0, err
	}
	w := bench.StartWatch([]bench.Watched{watched("master", m.master)}, nil)
	m.rep.Processes = highest(m.rep.Processes, w.Stop(0))
	return took, nil
}

// WriteTable prints the report.
func (r StartReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "From the start of the process to the first message's answer, %d rounds; the log had %s, %d messages\n", r.Rounds, bench.MiB(r.Bytes), r.Messages)
	t := bench.NewTable("store", "median", "from … to")
	for _, row := range []struct {
		name string
		s    bench.Series
	}{{"none", r.Empty}, {"closed cleanly", r.Clean}, {"after kill -9", r.Killed}} {
		t.AppendRow(table.Row{row.name, fmt.Sprintf("%.3f s", row.s.Median), fmt.Sprintf("%.3f … %.3f s", row.s.Low, row.s.High)})
	}
	fmt.Fprintln(w, t.Render())
	bench.WriteProcesses(w, r.Processes)
	writeGenerator(w, r.GeneratorNs)
}

// Figures of the report.
func (r StartReport) Figures() []bench.Figure {
	size := bench.MiB(r.Bytes)
	return []bench.Figure{
		bench.NewFigure("start_empty", "start to serving, no store", "s", r.Empty, bench.AtMost, boundStartEmpty),
		bench.NewFigure("start_clean", "start to serving, "+size+" closed cleanly", "s", r.Clean, bench.AtMost, boundStartClean),
		bench.NewFigure("start_killed", "start to serving, "+size+" after kill -9", "s", r.Killed, bench.AtMost, boundStartKilled),
	}
}

// Faults implements Report: what went wrong has ended the trial.
func (r StartReport) Faults() []string { return nil }
