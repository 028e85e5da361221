package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/remote"
)

// SoakOptions say how long a pair is loaded at a fixed rate.
type SoakOptions struct {
	Setup
	Addr     string        // a broker that runs already; "": a synchronous master and a slave of our own
	Rate     float64       // messages per second; default 20,000
	Tick     time.Duration // of the schedule; default bench.DefaultTick
	Duration time.Duration // default 1 min
	Warmup   time.Duration // default 2 s
	Every    time.Duration // length of the stretches reported; default 1 s, or a 300th of the duration
	Size     int           // default 128
}

// SoakReport is what Soak measured: a SendReport with its course. The JSON names are stable.
type SoakReport struct {
	Every float64 `json:"every_seconds"` // length of a stretch
	bench.SendReport
	WorstP999 float64             `json:"worst_p99_9"`            // µs, of all stretches
	Appends   *remote.AppendTimes `json:"append_times,omitempty"` // of a master of our own, since its start
}

func (o SoakOptions) withDefaults() SoakOptions {
	bench.OrDefault(&o.Rate, 20_000)
	bench.OrDefault(&o.Duration, time.Minute)
	bench.OrDefault(&o.Warmup, 2*time.Second)
	bench.OrDefault(&o.Every, max(time.Second, o.Duration/300))
	bench.OrDefault(&o.Size, 128)
	return o
}

// Soak loads a synchronous pair at a fixed rate and reports how the round trips' tail goes over time.
func Soak(ctx context.Context, o SoakOptions) (rep SoakReport, err error) {
	o = o.withDefaults()
	send := bench.SendOptions{
		Addr: o.Addr, Label: "soak", Topic: topic, Size: o.Size, Conns: fullConns, Depth: pacedDepth, Rate: o.Rate, Tick: o.Tick,
		Warmup: o.Warmup, Duration: o.Duration, Every: o.Every,
		Progress: func(p bench.Progress) { o.progress(int(p.Elapsed), int(p.Total), "at a fixed rate") },
	}
	appends := func() (*remote.AppendTimes, error) { return nil, nil }
	if o.Addr == "" {
		p, err := o.startPair(ctx, pairOptions{label: LabelSync, dir: "soak", role: "SYNC_MASTER", slaves: 1})
		if err != nil {
			return rep, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		send.Addr, send.Watch = p.master.Addr(), p.watch
		appends = func() (*remote.AppendTimes, error) { return p.client.AppendTimes(ctx, p.master.Addr()) }
	}
	if err := o.warm(ctx); err != nil {
		return rep, err
	}
	r, err := bench.Send(ctx, send)
	r.Addrs = nil // a report may be kept, and an address names a host
	rep = SoakReport{Every: o.Every.Seconds(), SendReport: r}
	if err == nil && ctx.Err() == nil {
		rep.Appends, err = appends()
	}
	for _, s := range r.Course {
		rep.WorstP999 = max(rep.WorstP999, s.P999)
	}
	return rep, errors.Join(err, ctx.Err())
}

// soakRows is how many stretches the table shows at most; the other reports have all.
const soakRows = 20

// WriteTable prints the report.
func (r SoakReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "At %.0f messages a second for %.0f s, bodies of %d bytes\n", r.Rate, r.Seconds, r.Size)
	bench.WriteTable(w, r.SendReport)
	writeAppends(w, LabelSync, r.Appends)
	t := bench.NewTable("second", "messages/s", "p50", "p99", "p99.9", "max")
	step := max(1, (len(r.Course)+soakRows-1)/soakRows)
	for i := 0; i < len(r.Course); i += step {
		s := worst(r.Course[i:min(i+step, len(r.Course))])
		t.AppendRow(table.Row{
			fmt.Sprintf("%.1f", s.Second), fmt.Sprintf("%.0f", s.Throughput), bench.Micros(s.P50), bench.Micros(s.P99), bench.Micros(s.P999), bench.Micros(s.Max),
		})
	}
	if step > 1 {
		fmt.Fprintf(w, "the worst of every %d stretches of %.1f s:\n", step, r.Every)
	}
	fmt.Fprintln(w, t.Render())
}

// worst has of each column the worst value, and the first one's time.
func worst(list []bench.Stretch) bench.Stretch {
	out := list[0]
	for _, s := range list[1:] {
		out.Throughput = min(out.Throughput, s.Throughput)
		out.P50, out.P99, out.P999, out.Max = max(out.P50, s.P50), max(out.P99, s.P99), max(out.P999, s.P999), max(out.Max, s.Max)
	}
	return out
}

// Figures of the report.
func (r SoakReport) Figures() []bench.Figure {
	var tail []float64
	for _, s := range r.Course {
		tail = append(tail, s.P999)
	}
	out := []bench.Figure{
		bench.NewFigure("soak_p99_9", fmt.Sprintf("p99.9 at %.0f/s, by stretch", r.Rate), "µs", bench.NewSeries(tail), bench.NoBound, 0),
		memoryFigure("soak", "soak", r.Processes),
	}
	return append(out, appendFigures("soak", "at a fixed rate", r.Appends)...)
}

// Faults implements Report.
func (r SoakReport) Faults() []string {
	if err := r.Err(); err != nil {
		return []string{"soak: " + err.Error()}
	}
	return nil
}
