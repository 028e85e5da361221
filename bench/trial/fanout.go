package trial

import (
	"context"
	"errors"
	"fmt"
	"io"

	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/remote"
	"tandem/cluster"
)

// FanoutOptions say how many slaves a master feeds.
type FanoutOptions struct {
	Setup
	Slaves []int         // default 1, 2, 4 and 8; ratios are to the first one
	Rounds int           // default 5
	Run    time.Duration // default 2 s
	Warmup time.Duration // default 500 ms
	Size   int           // default 128
}

// FanoutReport is what Fanout measured. The JSON names are stable.
type FanoutReport struct {
	Size    int         `json:"size"`
	Rounds  int         `json:"rounds"`
	Seconds float64     `json:"seconds"` // of each single run
	Rows    []FanoutRow `json:"rows"`
}

// FanoutRow is what a master came to with so many slaves.
type FanoutRow struct {
	Slaves int `json:"slaves"`
	Target
}

func (o FanoutOptions) withDefaults() FanoutOptions {
	if len(o.Slaves) == 0 {
		o.Slaves = []int{1, 2, 4, 8}
	}
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.Run, 2*time.Second)
	bench.OrDefault(&o.Warmup, 500*time.Millisecond)
	bench.OrDefault(&o.Size, 128)
	return o
}

// Fanout loads a synchronous master that has slaves which only receive and acknowledge, each a process of its own: one, then more
// of them, in turns.
func Fanout(ctx context.Context, o FanoutOptions) (rep FanoutReport, err error) {
	o = o.withDefaults()
	rep = FanoutReport{Size: o.Size, Rounds: o.Rounds, Seconds: o.Run.Seconds()}
	for _, n := range o.Slaves {
		if n < 1 {
			return rep, fmt.Errorf("%w: %d slaves, 1 or more are expected", bench.ErrOptions, n)
		}
	}
	p, err := o.startPair(ctx, pairOptions{label: "fan-out", dir: "fanout", role: "SYNC_MASTER", masterOnly: true})
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	var sides []*side
	for _, n := range o.Slaves {
		sides = append(sides, o.side(p, n))
	}
	t := turns{Setup: o.Setup, rounds: o.Rounds, warmup: o.Warmup, run: o.Run, loads: []load{full}}
	if err := t.measure(ctx, sides); err != nil {
		return rep, err
	}
	for i, s := range sides {
		rep.Rows = append(rep.Rows, FanoutRow{Slaves: o.Slaves[i], Target: targetOf(s, sides[0])})
	}
	return rep, nil
}

// side is the master with n slaves, which come for each run and go after it.
func (o FanoutOptions) side(p *pair, n int) *side {
	label := strconv.Itoa(n) + " slave"
	if n > 1 {
		label += "s"
	}
	s := &side{label: label, loads: []string{LoadFull}, broker: true}
	s.measure = func(ctx context.Context, l load, warmup, run time.Duration) (rep bench.SendReport, err error) {
		sinks, err := o.startSinks(ctx, p, n)
		defer func() { err = errors.Join(err, stopAll(sinks)) }()
		if err != nil {
			return rep, err
		}
		watch := slices.Clone(p.watch)
		for _, sink := range sinks {
			watch = append(watch, sink.watched())
		}
		return brokerSide(label, p.master.Addr(), o.Size, watch).measure(ctx, l, warmup, run)
	}
	return s
}

// startSinks starts n sinks at the log's end and waits until the master has just them, in sync. What it returns must be stopped,
// also after an error.
func (o FanoutOptions) startSinks(ctx context.Context, p *pair, n int) (sinks []*running, err error) {
	master := p.master.Addr()
	if err := o.waitSlaves(ctx, p.client, master, 0); err != nil {
		return nil, err
	}
	log, err := p.client.LogRange(ctx, master)
	if err != nil {
		return nil, err
	}
	ha := cluster.Local(p.master.Ports.HA())
	for i := range n {
		s, err := o.startPart(ctx, "sink "+strconv.Itoa(i+1), "sink", false, "--master="+ha, "--from="+strconv.FormatInt(log.Max, 10))
		if err != nil {
			return sinks, err
		}
		sinks = append(sinks, s)
	}
	return sinks, o.waitSlaves(ctx, p.client, master, n)
}

// waitSlaves waits until a master has n slaves, all in sync.
func (o FanoutOptions) waitSlaves(ctx context.Context, client *remote.Client, master string, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, remote.ErrNoPair)
	defer cancel()
	return remote.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		r, err := client.Replication(ctx, master)
		if err != nil {
			return false, err
		}
		behind := func(a remote.Acknowledged) bool { return !a.Reported || !a.InSync }
		if len(r.Slaves) != n || slices.ContainsFunc(r.Slaves, behind) {
			return false, fmt.Errorf("master %s has %d slaves, %d in sync are waited for", master, len(r.Slaves), n)
		}
		return true, nil
	})
}

// WriteTable prints the report.
func (r FanoutReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "Slaves that only receive and acknowledge, sync, %d rounds of %.1f s each, bodies of %d bytes\n", r.Rounds, r.Seconds, r.Size)
	t := bench.NewTable("slaves", "messages/s", "ratio", "from … to", "p50", "p99", "master's CPU ns/message", "generator ns/message")
	for _, row := range r.Rows {
		at := find([]Target{row.Target}, row.Label, LoadFull)
		cpu := 0.0
		if len(at.Processes) > 0 {
			cpu = at.Processes[0].CPUNs
		}
		t.AppendRow(table.Row{
			row.Slaves, fmt.Sprintf("%.0f", at.Throughput.Median), ratioText(at.ThroughputRatio), spreadText(at.ThroughputRatio),
			bench.Micros(at.P50.Median), bench.Micros(at.P99.Median), fmt.Sprintf("%.0f", cpu), fmt.Sprintf("%.0f", at.GeneratorNs.Median),
		})
	}
	fmt.Fprintln(w, t.Render())
	for _, row := range r.Rows {
		if row.Failed != "" {
			fmt.Fprintf(w, "%s: %s\n", row.Label, row.Failed)
		}
	}
}

// Figures of the report: four slaves are held to a bound, other numbers are reported.
func (r FanoutReport) Figures() []bench.Figure {
	var out []bench.Figure
	var processes []bench.ProcessReport
	for i, row := range r.Rows {
		at := find([]Target{row.Target}, row.Label, LoadFull)
		processes = append(processes, at.Processes[:min(1, len(at.Processes))]...) // the master, not the sinks
		if i == 0 {
			continue
		}
		sense := bench.NoBound
		if row.Slaves == 4 && r.Rows[0].Slaves == 1 {
			sense = bench.AtLeast
		}
		out = append(out, bench.NewFigure(fmt.Sprintf("fanout_%d_%d", row.Slaves, r.Rows[0].Slaves),
			fmt.Sprintf("%d slaves ÷ %d, throughput at 4 × 64", row.Slaves, r.Rows[0].Slaves), "", byRound(at.ThroughputRatio, full), sense, boundFanout))
	}
	return append(out, memoryFigure("fanout", "fan-out", processes))
}

// Faults implements Report.
func (r FanoutReport) Faults() []string {
	var targets []Target
	for _, row := range r.Rows {
		targets = append(targets, row.Target)
	}
	return faultsOf(targets)
}
