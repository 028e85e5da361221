package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tandem/bench"
	"tandem/cluster"
)

// Labels of our own clusters.
const (
	LabelAsync = "tandem async"
	LabelSync  = "tandem sync"
)

// Peer is a broker that runs already and is measured beside our own. If its label has "apache" in it and not "async", it is taken
// for an Apache broker that replicates before it answers, and our figures against it are held to their bounds.
type Peer struct {
	Label, Addr string

	watch []bench.Watched
}

func isApacheSync(label string) bool {
	l := strings.ToLower(label)
	return strings.Contains(l, "apache") && !strings.Contains(l, "async")
}

// OverheadOptions say what is measured in turns.
type OverheadOptions struct {
	Setup
	Peers   []Peer // measured beside our own
	Apache  string // version of an Apache pair that is started and measured beside our own; "": none
	Redis   string // address of a Redis master that has a replica, or RedisHere; "": none
	NoOwn   bool   // only the peers: the first one is the base of the ratios
	NoFloor bool   // no bare exchanges beside them

	Rounds int           // default 5
	Run    time.Duration // of each single run; default 2 s
	Warmup time.Duration // before each single run; default 500 ms
	Sizes  []int         // of bodies; default 128 and 1024
	Rate   float64       // of the runs at a fixed rate, messages per second; 0: none

	JVMWarmup time.Duration // load on Apache before all that is measured; default 20 s

	redis *redis // started
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

	Absent map[string]string `json:"absent,omitempty"` // by label what was asked for and could not be measured, and why
}

// SizeReport is what was measured with one size of bodies.
type SizeReport struct {
	Size    int         `json:"size"`
	Frames  bench.Sizes `json:"frames"`
	Targets []Target    `json:"targets"`
}

func (o OverheadOptions) withDefaults() OverheadOptions {
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.Run, 2*time.Second)
	bench.OrDefault(&o.Warmup, 500*time.Millisecond)
	bench.OrDefault(&o.JVMWarmup, jvmWarmup)
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
// runs, and divides turn by turn. For each size all of them stand from beginning to end; one is loaded at a time.
func Overhead(ctx context.Context, o OverheadOptions) (rep OverheadReport, err error) {
	o = o.withDefaults()
	rep = OverheadReport{Conns: fullConns, Depth: fullDepth, Rate: o.Rate, Rounds: o.Rounds, Seconds: o.Run.Seconds()}
	if o.NoOwn && len(o.Peers) == 0 && o.Apache == "" {
		return rep, fmt.Errorf("%w: nothing to measure: no clusters of our own and no peer", bench.ErrOptions)
	}
	if err := checkPeers(ctx, o.Peers, o.Redis); err != nil {
		return rep, err
	}
	stop, err := o.startPeers(ctx, &rep)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return rep, err
	}
	if o.NoOwn && len(o.Peers) == 0 && o.redis == nil {
		return rep, fmt.Errorf("%w: %s", errAbsent, rep.absentText())
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

// startPeers starts the brokers of others that were asked for; they stand for all sizes. The returned function stops them, also after an
// error. Redis is measured where it is installed, Apache where it can be fetched; they are absent
// otherwise.
func (o *OverheadOptions) startPeers(ctx context.Context, rep *OverheadReport) (stop func() error, err error) {
	stopApache, stopRedis := func() error { return nil }, func() error { return nil }
	stop = func() error { return errors.Join(stopApache(), stopRedis()) }
	if o.Apache != "" {
		var p Peer
		p, stopApache, err = o.startApache(ctx, o.Apache, o.JVMWarmup)
		switch {
		case err == nil:
			o.Peers = append(slices.Clone(o.Peers), p)
		case errors.Is(err, errAbsent) && ctx.Err() == nil:
			rep.absent(LabelApache(o.Apache), err)
		default:
			return stop, err
		}
		err = nil
	}
	if o.Redis != "" {
		o.redis, stopRedis, err = o.startRedis(ctx, o.Redis)
		if errors.Is(err, cluster.ErrNoRedis) {
			rep.absent(LabelRedis, cluster.ErrNoRedis)
			o.redis, err = nil, nil
		}
	}
	return stop, err
}

// errAbsent says that a peer is not here, or is not one to be held against.
var errAbsent = errors.New("not measured")

func (r *OverheadReport) absent(label string, why error) {
	if r.Absent == nil {
		r.Absent = map[string]string{}
	}
	r.Absent[label] = strings.ReplaceAll(why.Error(), "\n", "; ")
}

// absentText has a line for each peer that is absent.
func (r OverheadReport) absentText() string {
	var lines []string
	for _, label := range slices.Sorted(maps.Keys(r.Absent)) {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", label, bench.Unknown, r.Absent[label]))
	}
	return strings.Join(lines, "\n")
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
			sides = append(sides, ownSide(own.label, p, size))
		}
	}
	for _, p := range o.Peers {
		peer := brokerSide(p.Label, p.Addr, size, p.watch)
		peer.peer = true
		sides = append(sides, peer)
	}
	if o.redis != nil {
		sides = append(sides, redisSide(size, o.redis))
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
	fmt.Fprintf(w, "Sync beside async, %d rounds of %.1f s each; ratios to %q, turn by turn\n", r.Rounds, r.Seconds, r.Base)
	if len(r.Absent) > 0 {
		fmt.Fprintln(w, r.absentText())
	}
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
			out = append(out, s.figures(r.Absent)...)
		}
	}
	return out
}

// figure makes a figure of one size, whose unit is none.
func (r SizeReport) figure(name, text string, s bench.Series, sense bench.Sense, bound float64) bench.Figure {
	return bench.NewFigure(name+r.suffix(), text+r.words(), "", s, sense, bound)
}

func (r SizeReport) figures(absent map[string]string) []bench.Figure {
	at := func(label, load string) TargetLoad { return find(r.Targets, label, load) }
	syncFull := at(LabelSync, LoadFull)
	out := []bench.Figure{
		r.figure("sync_async_throughput", "sync ÷ async, throughput at 4 × 64", byRound(divide(syncFull.Throughput, at(LabelAsync, LoadFull).Throughput), full), bench.AtLeast, boundSyncAsync),
	}
	if at(LabelStub, LoadFull).Load != "" {
		out = append(out, r.overFloor()...)
	}
	if at(LabelRedis, LoadSingle).Load != "" || absent[LabelRedis] != "" {
		ratio := byRound(divide(at(LabelSync, LoadSingle).P50, at(LabelRedis, LoadSingle).P50), single)
		out = append(out, r.figure("sync_redis_p50", "sync ÷ "+LabelRedis+", p50 at 1 in flight", ratio, bench.AtMost, boundRedis).Unmeasured(absent[LabelRedis]))
	}
	for _, t := range r.Targets {
		if !t.Own && at(t.Label, LoadFull).Load != "" && t.Label != LabelStub {
			out = append(out, r.against(t)...)
		}
	}
	for _, label := range slices.Sorted(maps.Keys(absent)) {
		if label != LabelRedis {
			out = append(out, r.againstAbsent(label, absent[label])...)
		}
	}
	for _, t := range r.Targets {
		if t.Label != LabelStub {
			out = append(out, r.costs(t)...)
			out = append(out, appendFigures("overhead:"+t.Label+r.suffix(), t.Label+r.words(), t.Appends)...)
		}
	}
	return append(out, memoryFigure("overhead"+r.suffix(), "sync and async"+r.words(), ownProcesses(r.Targets)))
}

// overFloor sets our clusters beside the bare exchanges.
func (r SizeReport) overFloor() []bench.Figure {
	at := func(label, load string) TargetLoad { return find(r.Targets, label, load) }
	sync, async := at(LabelSync, LoadSingle), at(LabelAsync, LoadSingle)
	out := []bench.Figure{
		r.figure("sync_stub_throughput", "sync ÷ bare stub, throughput at 4 × 64",
			byRound(divide(at(LabelSync, LoadFull).Throughput, at(LabelStub, LoadFull).Throughput), full), bench.AtLeast, boundSyncStub),
		r.figure("sync_ping4_p50", "sync ÷ bare four hops, p50 at 1 in flight", byRound(divide(sync.P50, at(LabelPing4, LoadSingle).P50), single), bench.AtMost, boundSyncPing),
		r.figure("sync_above_async_p50", "(sync − async) ÷ bare two hops, p50 at 1 in flight",
			byRound(divide(minus(sync.P50, async.P50), at(LabelPing2, LoadSingle).P50), single), bench.AtMost, boundSyncAbove),
	}
	if stub := at(LabelStub, LoadPaced); stub.Load != "" {
		out = append(out, r.figure("sync_stub_p99_9", "sync ÷ bare stub, p99.9 at the fixed rate", divide(at(LabelSync, LoadPaced).P999, stub.P999), bench.NoBound, 0))
	}
	return out
}

// costs are what the brokers of a target used at full load, master and slave together, and held.
func (r SizeReport) costs(t Target) []bench.Figure {
	ps := find([]Target{t}, t.Label, LoadFull).Processes
	if len(ps) == 0 {
		return nil
	}
	var ns, most float64
	for _, p := range ps {
		ns, most = ns+p.CPUNs, max(most, float64(p.RssAnon)/(1<<20))
	}
	figure := func(name, text, unit string, v float64) bench.Figure {
		return bench.NewFigure(name+":"+t.Label+r.suffix(), text+", "+t.Label+r.words(), unit, bench.NewSeries([]float64{v}), bench.NoBound, 0)
	}
	return []bench.Figure{
		figure("cpu_per_message", "processor time per message at 4 × 64, master and slave", "µs", ns/1e3),
		figure("rss_anon_of", "anonymous memory, the higher of master and slave", "MiB", most),
	}
}

// againstAbsent are the figures that against would have judged.
func (r SizeReport) againstAbsent(label, why string) []bench.Figure {
	var out []bench.Figure
	for _, f := range r.against(Target{Label: label}) {
		if f.Sense != bench.NoBound {
			out = append(out, f.Unmeasured(why))
		}
	}
	return out
}

// against sets our sync cluster beside a peer.
func (r SizeReport) against(peer Target) []bench.Figure {
	more, tail := bench.NoBound, bench.NoBound
	if isApacheSync(peer.Label) {
		more, tail = bench.AtLeast, bench.AtMost
	}
	at := func(load string) TargetLoad { return find(r.Targets, peer.Label, load) }
	ratio := func(load string, of func(TargetLoad) bench.Series) bench.Series {
		return divide(of(find(r.Targets, LabelSync, load)), of(at(load)))
	}
	out := []bench.Figure{
		r.figure("sync_peer_throughput:"+peer.Label, "sync ÷ "+peer.Label+", throughput at 4 × 64",
			byRound(ratio(LoadFull, func(l TargetLoad) bench.Series { return l.Throughput }), full), more, boundApache).Unmeasured(at(LoadFull).Unfit),
		r.figure("sync_peer_p50:"+peer.Label, "sync ÷ "+peer.Label+", p50 at 1 in flight",
			byRound(ratio(LoadSingle, func(l TargetLoad) bench.Series { return l.P50 }), single), bench.NoBound, 0).Unmeasured(at(LoadSingle).Unfit),
	}
	if at(LoadPaced).Load != "" {
		out = append(out, r.figure("sync_peer_p99_9:"+peer.Label, "sync ÷ "+peer.Label+", p99.9 at the fixed rate",
			ratio(LoadPaced, func(l TargetLoad) bench.Series { return l.P999 }), tail, boundApacheTail).Unmeasured(at(LoadPaced).Unfit))
	}
	return out
}

func divide(what, by bench.Series) bench.Series { return bench.Ratios(what.Raw(), by.Raw()) }

// byRound makes of values by turn, as a load takes them, those by round: the median of each round's, which of two is their mean. A turn's value alone says how its
// processes happened to be placed; the spread from round to round is what a figure's noise means.
func byRound(s bench.Series, l load) bench.Series {
	var out []float64
	for turns := range slices.Chunk(s.Raw(), l.perRound()) {
		round := bench.NewSeries(turns)
		if len(round.Missing) > 0 {
			round.Median = math.NaN()
		}
		out = append(out, round.Median)
	}
	return bench.NewSeries(out)
}

// minus subtracts turn by turn.
func minus(what, less bench.Series) bench.Series {
	var out []float64
	from, by := what.Raw(), less.Raw()
	for i := range min(len(from), len(by)) {
		out = append(out, from[i]-by[i])
	}
	return bench.NewSeries(out)
}
