package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"tandem/bench"
)

// Labels of our own clusters.
const (
	LabelAsync = "tandem async"
	LabelSync  = "tandem sync"
)

// Peer is a broker that runs already and is measured beside our own. If its label has "apache" in it and not "async", it is taken
// for an Apache broker that replicates before it answers, and our figures against it are held to their bounds.
type Peer struct{ Label, Addr string }

func isApacheSync(label string) bool {
	l := strings.ToLower(label)
	return strings.Contains(l, "apache") && !strings.Contains(l, "async")
}

// OverheadOptions say what is measured in turns.
type OverheadOptions struct {
	Setup
	Peers   []Peer // measured beside our own
	NoOwn   bool   // only the peers: the first one is the base of the ratios
	NoFloor bool   // no bare exchanges beside them

	Rounds int           // default 5
	Run    time.Duration // of each single run; default 2 s
	Warmup time.Duration // before each single run; default 500 ms
	Sizes  []int         // of bodies; default 128 and 1024
	Rate   float64       // of the runs at a fixed rate, messages per second; 0: none
}

// OverheadReport is what Overhead measured. The JSON names are stable.
type OverheadReport struct {
	Base    string       `json:"base"`  // label by whose values ratios are divided
	Conns   int          `json:"conns"` // at full load and at the fixed rate
	Depth   int          `json:"depth"` // at full load
	Rate    float64      `json:"rate"`
	Rounds  int          `json:"rounds"`
	Seconds float64      `json:"seconds"` // of each single run
	Sizes   []SizeReport `json:"sizes"`
}

// SizeReport is what was measured with one size of bodies.
type SizeReport struct {
	Size    int         `json:"size"`
	Frames  bench.Sizes `json:"frames"`
	Targets []Target    `json:"targets"`
}

func (o OverheadOptions) withDefaults() OverheadOptions {
	orDefault(&o.Rounds, 5)
	orDefault(&o.Run, 2*time.Second)
	orDefault(&o.Warmup, 500*time.Millisecond)
	if len(o.Sizes) == 0 {
		o.Sizes = []int{128, 1024}
	}
	return o
}

func (o OverheadOptions) loads() []load {
	if o.Rate <= 0 {
		return []load{single, full}
	}
	return []load{single, full, pacedLoad(o.Rate)}
}

// Overhead measures what synchronous replication costs: it runs a cluster that answers when the slave has the message and one
// that answers at once (its slave attached and level all the same), bare exchanges of the same bytes, and any peers, in turns of short
// runs, and divides round by round. For each size all of them stand from beginning to end; one is loaded at a time.
func Overhead(ctx context.Context, o OverheadOptions) (OverheadReport, error) {
	o = o.withDefaults()
	rep := OverheadReport{Conns: fullConns, Depth: fullDepth, Rate: o.Rate, Rounds: o.Rounds, Seconds: o.Run.Seconds()}
	if o.NoOwn && len(o.Peers) == 0 {
		return rep, fmt.Errorf("%w: nothing to measure: no clusters of our own and no peer", bench.ErrOptions)
	}
	for _, size := range o.Sizes {
		r, err := o.size(ctx, size)
		if err != nil {
			return rep, err
		}
		rep.Base = r.Targets[0].Label
		rep.Sizes = append(rep.Sizes, r)
	}
	return rep, nil
}

// size measures one size of bodies with clusters of its own.
func (o OverheadOptions) size(ctx context.Context, size int) (_ SizeReport, err error) {
	sides, stop, err := o.sides(ctx, size)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return SizeReport{}, err
	}
	t := turns{Setup: o.Setup, rounds: o.Rounds, warmup: o.Warmup, run: o.Run, loads: o.loads(), prefix: bodies(size)}
	if err := t.measure(ctx, sides); err != nil {
		return SizeReport{}, err
	}
	return sizeReport(size, sides)
}

// sides starts what is to be measured, the base first. The returned function stops it, also after an error.
func (o OverheadOptions) sides(ctx context.Context, size int) (sides []*side, stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, f := range stops {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if !o.NoOwn {
		for _, own := range []struct{ label, role, dir string }{
			{LabelAsync, "ASYNC_MASTER", "async"}, {LabelSync, "SYNC_MASTER", "sync"},
		} {
			p, err := o.startPair(ctx, pairOptions{label: own.label, dir: own.dir + "-" + strconv.Itoa(size), role: own.role, slaves: 1})
			if err != nil {
				return nil, stop, err
			}
			stops = append(stops, p.Close)
			sides = append(sides, brokerSide(own.label, p.master.Addr(), size, p.watch))
		}
	}
	for _, p := range o.Peers {
		sides = append(sides, brokerSide(p.Label, p.Addr, size, nil))
	}
	if o.NoFloor {
		return sides, stop, nil
	}
	floor, stopFloor, err := o.floorSides(ctx, size)
	stops = append(stops, stopFloor)
	return append(sides, floor...), stop, err
}

func sizeReport(size int, sides []*side) (SizeReport, error) {
	frames, err := bench.SizesOf(topic, size)
	r := SizeReport{Size: size, Frames: frames}
	for _, s := range sides {
		r.Targets = append(r.Targets, targetOf(s, sides[0]))
	}
	return r, err
}

func (r SizeReport) suffix() string { return "_" + strconv.Itoa(r.Size) }
func (r SizeReport) words() string  { return fmt.Sprintf(", %d B", r.Size) }

func (r SizeReport) write(w io.Writer, loads []load) {
	fmt.Fprintf(w, "\nbodies of %d bytes: request %d, answer %d, record %d bytes\n", r.Size, r.Frames.Request, r.Frames.Answer, r.Frames.Record)
	writeTargets(w, r.Targets, loads)
}

// Faults implements Report.
func (r OverheadReport) Faults() []string {
	var out []string
	for _, s := range r.Sizes {
		out = append(out, faultsOf(s.Targets)...)
	}
	return out
}

// WriteTable prints the report.
func (r OverheadReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "Sync beside async, %d rounds of %.1f s each; ratios to %q, round by round\n", r.Rounds, r.Seconds, r.Base)
	loads := OverheadOptions{Rate: r.Rate}.loads()
	for _, s := range r.Sizes {
		s.write(w, loads)
	}
}

// Figures of the report. Those about our own clusters are missing where only peers were measured.
func (r OverheadReport) Figures() []bench.Figure {
	var out []bench.Figure
	for _, s := range r.Sizes {
		if find(s.Targets, LabelSync, LoadFull).Load != "" {
			out = append(out, s.figures()...)
		}
	}
	return out
}

func (r SizeReport) figures() []bench.Figure {
	at := func(label, load string) TargetLoad { return find(r.Targets, label, load) }
	syncFull, syncSingle, async := at(LabelSync, LoadFull), at(LabelSync, LoadSingle), at(LabelAsync, LoadSingle)
	figure := func(name, text string, s bench.Series, sense bench.Sense, bound float64) bench.Figure {
		return bench.NewFigure(name+r.suffix(), text+r.words(), "", s, sense, bound)
	}
	out := []bench.Figure{
		figure("sync_async_throughput", "sync ÷ async, throughput at 4 × 64", divide(syncFull.Throughput, at(LabelAsync, LoadFull).Throughput), bench.AtLeast, boundSyncAsync),
	}
	if stub := at(LabelStub, LoadFull); stub.Load != "" {
		two := at(LabelPing2, LoadSingle).P50
		out = append(out,
			figure("sync_stub_throughput", "sync ÷ bare stub, throughput at 4 × 64", divide(syncFull.Throughput, stub.Throughput), bench.AtLeast, boundSyncStub),
			figure("sync_ping4_p50", "sync ÷ bare four hops, p50 at 1 in flight", divide(syncSingle.P50, at(LabelPing4, LoadSingle).P50), bench.AtMost, boundSyncPing),
			figure("sync_above_async_p50", "(sync − async) ÷ bare two hops, p50 at 1 in flight", divide(minus(syncSingle.P50, async.P50), two), bench.AtMost, boundSyncAbove),
		)
	}
	for _, t := range r.Targets {
		if t.Own || t.Label == LabelStub || t.Label == LabelPing2 || t.Label == LabelPing4 {
			continue
		}
		out = append(out, r.against(t, figure)...)
	}
	return append(out, memoryFigure("overhead"+r.suffix(), "sync and async"+r.words(), ownProcesses(r.Targets)))
}

// against sets our sync cluster beside a peer.
func (r SizeReport) against(peer Target, figure func(name, text string, s bench.Series, sense bench.Sense, bound float64) bench.Figure) []bench.Figure {
	more, tail := bench.NoBound, bench.NoBound
	if isApacheSync(peer.Label) {
		more, tail = bench.AtLeast, bench.AtMost
	}
	ratio := func(load string, of func(TargetLoad) bench.Series) bench.Series {
		return divide(of(find(r.Targets, LabelSync, load)), of(find(r.Targets, peer.Label, load)))
	}
	out := []bench.Figure{
		figure("sync_peer_throughput:"+peer.Label, "sync ÷ "+peer.Label+", throughput at 4 × 64",
			ratio(LoadFull, func(l TargetLoad) bench.Series { return l.Throughput }), more, boundApache),
		figure("sync_peer_p50:"+peer.Label, "sync ÷ "+peer.Label+", p50 at 1 in flight",
			ratio(LoadSingle, func(l TargetLoad) bench.Series { return l.P50 }), bench.NoBound, 0),
	}
	if find(r.Targets, peer.Label, LoadPaced).Load != "" {
		out = append(out, figure("sync_peer_p99_9:"+peer.Label, "sync ÷ "+peer.Label+", p99.9 at the fixed rate",
			ratio(LoadPaced, func(l TargetLoad) bench.Series { return l.P999 }), tail, boundApacheTail))
	}
	return out
}

func divide(what, by bench.Series) bench.Series { return bench.Ratios(what.Values, by.Values) }

// minus subtracts round by round.
func minus(what, less bench.Series) bench.Series {
	var out []float64
	for i := range min(len(what.Values), len(less.Values)) {
		out = append(out, what.Values[i]-less.Values[i])
	}
	return bench.NewSeries(out)
}
