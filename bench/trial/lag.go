package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/remote"
)

// LagOptions say how an asynchronous pair is loaded.
type LagOptions struct {
	Setup
	Rounds   int           // default 5
	Run      time.Duration // of each round at half of the maximal rate; default 4 s
	PeakRun  time.Duration // of the run before it that finds the maximal rate; default 1.5 s
	Size     int           // default 128
	PollEach time.Duration // default 1 ms
}

// LagReport is how far the slave of an asynchronous master is behind at half of the master's maximal rate. The JSON names are
// stable. Series are by round.
type LagReport struct {
	Size        int                   `json:"size"`
	Rounds      int                   `json:"rounds"`
	Peak        bench.Series          `json:"peak"` // messages per second, as fast as it goes
	Rate        bench.Series          `json:"rate"` // asked for: half of that
	Throughput  bench.Series          `json:"throughput"`
	P50         bench.Series          `json:"lag_p50_ms"`
	P99         bench.Series          `json:"lag_p99_ms"`
	Max         bench.Series          `json:"lag_max_ms"`
	Samples     int                   `json:"samples"`
	GeneratorNs float64               `json:"generator_ns_per_message"`
	Failed      string                `json:"failed,omitempty"`
	Processes   []bench.ProcessReport `json:"processes"`
}

func (o LagOptions) withDefaults() LagOptions {
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.Run, 4*time.Second)
	bench.OrDefault(&o.PeakRun, 1500*time.Millisecond)
	bench.OrDefault(&o.Size, 128)
	bench.OrDefault(&o.PollEach, time.Millisecond)
	return o
}

// Lag asks the master again and again where its log ends and what the slave has acknowledged: the lag at some time is how long ago
// the log ended where the slave is now.
func Lag(ctx context.Context, o LagOptions) (rep LagReport, err error) {
	o = o.withDefaults()
	rep = LagReport{Size: o.Size, Rounds: o.Rounds}
	p, err := o.startPair(ctx, pairOptions{label: LabelAsync, dir: "lag", role: "ASYNC_MASTER", slaves: 1})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var rounds []lagRound
	for n := range o.Rounds {
		o.progress(n, o.Rounds, "lag at half of the maximal rate")
		r, err := o.round(ctx, p)
		if err != nil {
			return rep, err
		}
		rounds = append(rounds, r)
	}
	rep.sum(rounds)
	return rep, nil
}

// lagRound is one round.
type lagRound struct {
	peak float64
	sent bench.SendReport
	lags []float64 // ms, sorted
}

func (o LagOptions) round(ctx context.Context, p *pair) (r lagRound, err error) {
	load := bench.SendOptions{
		Addr: p.master.Addr(), Topic: topic, Size: o.Size, Conns: fullConns, Depth: fullDepth, Warmup: o.PeakRun / 4, Duration: o.PeakRun,
	}
	if err := o.warm(ctx); err != nil {
		return r, err
	}
	peak, err := bench.Send(ctx, load)
	if err = errors.Join(err, peak.Err(), ctx.Err()); err != nil {
		return r, fmt.Errorf("find the maximal rate: %w", err)
	}
	r.peak = peak.Throughput
	if err := p.client.WaitLevel(ctx, p.master.Addr(), p.slaves[0].Addr()); err != nil {
		return r, err
	}
	load.Depth, load.Rate, load.Duration, load.Warmup, load.Watch = pacedDepth, r.peak/2, o.Run, 0, p.watch
	if err := o.warm(ctx); err != nil {
		return r, err
	}
	polling, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		samples []lagSample
		err     error
	}
	polled := make(chan outcome, 1)
	go func() {
		s, err := pollLag(polling, p.client, p.master.Addr(), o.PollEach)
		polled <- outcome{s, err}
	}()
	r.sent, err = bench.Send(ctx, load)
	stop()
	got := <-polled
	if err = errors.Join(err, got.err, ctx.Err()); err != nil {
		return r, fmt.Errorf("lag: %w", err)
	}
	r.lags = lags(got.samples)
	return r, nil
}

// lagSample is a look at a master.
type lagSample struct {
	at         time.Duration
	end, acked int64
}

func pollLag(ctx context.Context, client *remote.Client, master string, every time.Duration) (out []lagSample, err error) {
	start := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r, err := client.Replication(ctx, master)
		if ctx.Err() != nil {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(r.Slaves) != 1 {
			return out, fmt.Errorf("%w: master %s has %d slaves", remote.ErrNoPair, master, len(r.Slaves))
		}
		out = append(out, lagSample{time.Since(start), r.End, r.Slaves[0].Offset})
		select {
		case <-ctx.Done():
			return out, nil
		case <-tick.C:
		}
	}
}

// lags are how many ms before each sample the log ended where the slave was at the sample, sorted. Between two samples the log is
// taken to have grown evenly. Samples whose position the log had before the first one are left out: nothing tells since when.
func lags(samples []lagSample) []float64 {
	var out []float64
	i := 0 // samples before i ended before the slave's position
	for _, s := range samples {
		if s.acked >= s.end {
			out = append(out, 0)
			continue
		}
		for i < len(samples) && samples[i].end <= s.acked {
			i++
		}
		if i == 0 {
			continue
		}
		a, b := samples[i-1], samples[i]
		part := float64(s.acked-a.end) / float64(b.end-a.end)
		passed := a.at + time.Duration(part*float64(b.at-a.at))
		out = append(out, float64(s.at-passed)/1e6)
	}
	slices.Sort(out)
	return out
}

// quantile of sorted values; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (r *LagReport) sum(rounds []lagRound) {
	pick := func(of func(lagRound) float64) bench.Series {
		var values []float64
		for _, x := range rounds {
			values = append(values, of(x))
		}
		return bench.NewSeries(values)
	}
	r.Peak = pick(func(x lagRound) float64 { return x.peak })
	r.Rate = pick(func(x lagRound) float64 { return x.sent.Rate })
	r.Throughput = pick(func(x lagRound) float64 { return x.sent.Throughput })
	r.P50 = pick(func(x lagRound) float64 { return quantile(x.lags, 0.5) })
	r.P99 = pick(func(x lagRound) float64 { return quantile(x.lags, 0.99) })
	r.Max = pick(func(x lagRound) float64 { return quantile(x.lags, 1) })
	r.GeneratorNs = pick(func(x lagRound) float64 { return x.sent.GeneratorNs }).Median
	for _, x := range rounds {
		r.Samples += len(x.lags)
		r.Processes = highest(r.Processes, x.sent.Processes)
		if err := x.sent.Err(); err != nil && r.Failed == "" {
			r.Failed = err.Error()
		}
	}
}

// WriteTable prints the report.
func (r LagReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "Lag of an asynchronous slave at half of the maximal rate, %d rounds, bodies of %d bytes\n", r.Rounds, r.Size)
	t := bench.NewTable("maximal rate", "rate", "lag p50", "p99", "from … to", "max", "samples")
	ms := func(s bench.Series) string { return bench.Micros(s.Median * 1e3) }
	t.AppendRow(table.Row{
		fmt.Sprintf("%.0f/s", r.Peak.Median), fmt.Sprintf("%.0f/s", r.Throughput.Median), ms(r.P50), ms(r.P99),
		bench.Micros(r.P99.Low*1e3) + " … " + bench.Micros(r.P99.High*1e3), bench.Micros(r.Max.High * 1e3), r.Samples,
	})
	fmt.Fprintln(w, t.Render())
	bench.WriteProcesses(w, r.Processes)
	writeGenerator(w, r.GeneratorNs)
	if r.Failed != "" {
		fmt.Fprintln(w, r.Failed)
	}
}

// Figures of the report.
func (r LagReport) Figures() []bench.Figure {
	return []bench.Figure{
		bench.NewFigure("lag_p99", "async slave's lag at half of the maximal rate, p99", "ms", r.P99, bench.AtMost, boundLagMs),
		memoryFigure("lag", "lag", r.Processes),
	}
}

// Faults implements Report.
func (r LagReport) Faults() []string {
	if r.Failed == "" {
		return nil
	}
	return []string{"lag: " + r.Failed}
}
