package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench/remote"
	"tandem/cluster"
)

// Labels of our own clusters in an OverheadReport.
const (
	LabelAsync = "tandem async"
	LabelSync  = "tandem sync"
)

// The two loads of each round.
const (
	overheadConns = 4
	overheadDepth = 64
)

// Peer is a broker that runs already and is measured beside our own.
type Peer struct{ Label, Addr string }

// OverheadOptions say what is measured in turns.
type OverheadOptions struct {
	Binary string // our own executable, for clusters of a name server, a master and a slave each: one sync, one async
	Dir    string // below which they keep their files; the caller removes it
	Peers  []Peer // measured beside them
	NoOwn  bool   // only the peers: the first one is the base of the ratios

	Rounds int           // default 5
	Run    time.Duration // of each single run; default 3 s
	Warmup time.Duration // before each single run; default 1 s
	Size   int           // default 128

	Progress func(done, total int, what string) // before each single run
}

// OverheadReport is what Overhead measured. The JSON names are stable.
type OverheadReport struct {
	Base    string            `json:"base"` // label by whose values the ratios are divided
	Size    int               `json:"size"`
	Conns   int               `json:"conns"` // of the throughput runs
	Depth   int               `json:"depth"` // of the throughput runs
	Rounds  int               `json:"rounds"`
	Seconds float64           `json:"seconds"` // of each single run
	Targets []OverheadTarget  `json:"targets"`
	Failed  map[string]string `json:"failed,omitempty"` // label: what was not acknowledged
}

// OverheadTarget is one of the brokers that were measured in turns.
type OverheadTarget struct {
	Label           string          `json:"label"`
	Throughput      Series          `json:"throughput"`       // messages per second
	RoundTrip       Series          `json:"round_trip_us"`    // median of each run with one message in flight
	RoundTripP999   Series          `json:"round_trip_p99_9"` // of the same runs, µs
	ThroughputRatio Series          `json:"throughput_ratio"` // to the base's, round by round
	RoundTripRatio  Series          `json:"round_trip_ratio"` // to the base's, round by round
	Processes       []ProcessReport `json:"processes,omitempty"`
}

func (o OverheadOptions) withDefaults() OverheadOptions {
	orDefault(&o.Rounds, 5)
	orDefault(&o.Run, 3*time.Second)
	orDefault(&o.Warmup, time.Second)
	orDefault(&o.Size, 128)
	return o
}

// side is one target while it is measured.
type side struct {
	Peer
	watch                    []Watched
	throughput, trips, tails []float64
	processes                []ProcessReport
	failed                   error
}

// Overhead measures what synchronous replication costs: it runs a cluster that answers when the slave has the message and one
// that answers at once (its slave attached and level all the same), and any peers, in turns of short runs, and divides
// round by round. All clusters stand from beginning to end; one is loaded at a time.
func Overhead(ctx context.Context, o OverheadOptions) (rep OverheadReport, err error) {
	o = o.withDefaults()
	if o.NoOwn && len(o.Peers) == 0 {
		return rep, fmt.Errorf("%w: nothing to measure: no clusters of our own and no peer", ErrOptions)
	}
	var sides []*side
	if !o.NoOwn {
		own, closeOwn, err := startOwn(ctx, o)
		defer func() { err = errors.Join(err, closeOwn()) }()
		if err != nil {
			return rep, err
		}
		sides = own
	}
	for _, p := range o.Peers {
		sides = append(sides, &side{Peer: p})
	}
	if err := alternate(ctx, o, sides); err != nil {
		return rep, err
	}
	return overheadReport(o, sides), nil
}

// alternate runs the rounds, every other one in reverse order.
func alternate(ctx context.Context, o OverheadOptions, sides []*side) error {
	done, total := 0, 2*o.Rounds*len(sides)
	for round := range o.Rounds {
		order := slices.Clone(sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, load := range []struct{ conns, depth int }{{1, 1}, {overheadConns, overheadDepth}} {
			for _, s := range order {
				if o.Progress != nil {
					o.Progress(done, total, fmt.Sprintf("%s, %d in flight", s.Label, load.conns*load.depth))
				}
				if err := s.measure(ctx, o, load.conns, load.depth); err != nil {
					return err
				}
				done++
			}
		}
	}
	if o.Progress != nil {
		o.Progress(total, total, "done")
	}
	return nil
}

func (s *side) measure(ctx context.Context, o OverheadOptions, conns, depth int) error {
	r, err := Send(ctx, SendOptions{
		Addr: s.Addr, Label: s.Label, Topic: "TandemOverhead", Size: o.Size, Conns: conns, Depth: depth,
		Duration: o.Run, Warmup: o.Warmup, Watch: s.watch,
	})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("%s: %w", s.Label, err)
	}
	s.failed = errors.Join(s.failed, r.Err())
	if conns*depth == 1 {
		s.trips = append(s.trips, r.RoundTrip.P50)
		s.tails = append(s.tails, r.RoundTrip.P999)
	} else {
		s.throughput = append(s.throughput, r.Throughput)
		s.processes = r.Processes
	}
	return nil
}

func overheadReport(o OverheadOptions, sides []*side) OverheadReport {
	base := sides[0]
	rep := OverheadReport{
		Base: base.Label, Size: o.Size, Conns: overheadConns, Depth: overheadDepth, Rounds: o.Rounds, Seconds: o.Run.Seconds(),
	}
	for _, s := range sides {
		rep.Targets = append(rep.Targets, OverheadTarget{
			Label: s.Label, Throughput: newSeries(s.throughput), RoundTrip: newSeries(s.trips), RoundTripP999: newSeries(s.tails),
			ThroughputRatio: ratios(s.throughput, base.throughput), RoundTripRatio: ratios(s.trips, base.trips), Processes: s.processes,
		})
		if s.failed != nil {
			if rep.Failed == nil {
				rep.Failed = map[string]string{}
			}
			rep.Failed[s.Label] = s.failed.Error()
		}
	}
	return rep
}

// startOwn starts the async cluster and the sync one, and waits until each slave follows. The returned function stops
// them, also after an error.
func startOwn(ctx context.Context, o OverheadOptions) ([]*side, func() error, error) {
	var sides []*side
	var started []*cluster.Cluster
	stop := func() error {
		var errs []error
		for _, c := range started {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	client := remote.New(0, nil)
	defer client.Close()
	for _, want := range []struct{ label, role, dir string }{
		{LabelAsync, "ASYNC_MASTER", "async"}, {LabelSync, "SYNC_MASTER", "sync"},
	} {
		c, err := cluster.New(cluster.Options{
			Dir: filepath.Join(o.Dir, want.dir), Name: want.dir, Slaves: 1, Role: want.role, Master: cluster.Tandem{Binary: o.Binary},
		})
		if err != nil {
			return nil, stop, err
		}
		started = append(started, c)
		if err := c.Start(ctx); err != nil {
			return nil, stop, err
		}
		pair := c.Pairs[0]
		if err := client.WaitPair(ctx, pair.Master.Addr(), pair.Slaves[0].Addr()); err != nil {
			return nil, stop, fmt.Errorf("%s: %w", want.label, err)
		}
		sides = append(sides, &side{
			Peer:  Peer{want.label, pair.Master.Addr()},
			watch: []Watched{watched("master", pair.Master), watched("slave", pair.Slaves[0])},
		})
	}
	return sides, stop, nil
}

func watched(name string, n *cluster.Node) Watched { return Watched{name, n.Process().PID()} }

// WriteTable prints the report.
func (r OverheadReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "%d rounds of %.1f s each, bodies of %d bytes; ratios to %q, round by round\n", r.Rounds, r.Seconds, r.Size, r.Base)
	t := newTable("", fmt.Sprintf("messages/s (%d × %d)", r.Conns, r.Depth), "ratio", "from … to", "p50 (1 in flight)", "ratio", "from … to", "p99.9")
	for _, x := range r.Targets {
		t.AppendRow(table.Row{
			x.Label, fmt.Sprintf("%.0f", x.Throughput.Median), fmt.Sprintf("%.3f", x.ThroughputRatio.Median), x.ThroughputRatio.spread(),
			Micros(x.RoundTrip.Median), fmt.Sprintf("%.2f", x.RoundTripRatio.Median), x.RoundTripRatio.spread(), Micros(x.RoundTripP999.Median),
		})
	}
	fmt.Fprintln(w, t.Render())
	for _, x := range r.Targets {
		if len(x.Processes) > 0 {
			fmt.Fprintf(w, "%s, last throughput run:\n", x.Label)
			writeProcesses(w, x.Processes)
		}
		if failed, ok := r.Failed[x.Label]; ok {
			fmt.Fprintf(w, "%s: %s\n", x.Label, failed)
		}
	}
}

func (s Series) spread() string { return fmt.Sprintf("%.3f … %.3f", s.Low, s.High) }
