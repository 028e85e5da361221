package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"tandem/bench"
	"tandem/codec"
)

// Labels of the bare exchanges.
const (
	LabelPing2 = "ping-pong, 2 hops"
	LabelPing4 = "ping-pong, 4 hops"
	LabelStub  = "gnet stub"
)

// floorSides starts the bare exchanges of messages with bodies of size bytes. The returned function stops them, also after an error.
//
// Two hops: the request goes to a process that answers. Four hops: that process first sends a replication header and the record to a
// third one and waits for its report. The stub takes whole frames from the same generator as a broker, at full load and at the fixed rate: what
// its tail shows there is the machine's own.
func (s Setup) floorSides(ctx context.Context, size int) (sides []*side, stop func() error, err error) {
	var parts []*running
	stop = func() error { return stopAll(parts) }
	z, err := bench.SizesOf(topic, size)
	if err != nil {
		return nil, stop, err
	}
	start := func(name, kind string, flags ...string) *running {
		if err != nil {
			return nil
		}
		var p *running
		if p, err = s.startPart(ctx, name, kind, true, flags...); err == nil {
			parts = append(parts, p)
		}
		return p
	}
	exchange := func(request, answer int) []string {
		return []string{"--request=" + strconv.Itoa(request), "--answer=" + strconv.Itoa(answer)}
	}
	third := start("third", "echo", exchange(codec.HAHeaderSize+z.Record, codec.HAReportSize)...)
	echo := start("echo", "echo", exchange(z.Request, z.Answer)...)
	stub := start("stub", "stub")
	if err != nil {
		return nil, stop, err
	}
	relay := start("relay", "echo", append(exchange(z.Request, z.Answer), "--next="+third.addr,
		"--nextRequest="+strconv.Itoa(codec.HAHeaderSize+z.Record), "--nextAnswer="+strconv.Itoa(codec.HAReportSize))...)
	if err != nil {
		return nil, stop, err
	}
	return []*side{
		pingSide(LabelPing2, z, echo.addr, echo.watched()),
		pingSide(LabelPing4, z, relay.addr, relay.watched(), third.watched()),
		stubSide(size, stub),
	}, stop, nil
}

func pingSide(label string, z bench.Sizes, addr string, watch ...bench.Watched) *side {
	return &side{label: label, loads: []string{LoadSingle}, measure: func(ctx context.Context, _ load, warmup, run time.Duration) (bench.SendReport, error) {
		return bench.Ping(ctx, bench.PingOptions{
			Addr: addr, Label: label, Request: z.Request, Answer: z.Answer, Warmup: warmup, Duration: run, Watch: watch,
		})
	}}
}

func stubSide(size int, stub *running) *side {
	return &side{label: LabelStub, loads: []string{LoadFull, LoadPaced}, measure: func(ctx context.Context, l load, warmup, run time.Duration) (bench.SendReport, error) {
		return bench.Send(ctx, bench.SendOptions{
			Addr: stub.addr, Label: LabelStub, Topic: topic, Size: size, Conns: l.conns, Depth: l.depth, Rate: l.rate, NoTopic: true,
			Warmup: warmup, Duration: run, Watch: []bench.Watched{stub.watched()},
		})
	}}
}

// FloorOptions say what bare exchanges are measured.
type FloorOptions struct {
	Setup
	Rounds int           // default 5
	Run    time.Duration // of each single run; default 2 s
	Warmup time.Duration // before each single run; default 500 ms
	Sizes  []int         // of bodies; default 128 and 1024
	Bytes  int64         // of the bare transfer; default 1 GiB
}

// FloorReport is what the machine, the network and Go cost without a broker. The JSON names are stable.
type FloorReport struct {
	Rounds   int            `json:"rounds"`
	Seconds  float64        `json:"seconds"` // of each single run
	Sizes    []SizeReport   `json:"sizes"`
	Transfer TransferReport `json:"transfer"`
}

func (o FloorOptions) withDefaults() FloorOptions {
	bench.OrDefault(&o.Rounds, 5)
	bench.OrDefault(&o.Run, 2*time.Second)
	bench.OrDefault(&o.Warmup, 500*time.Millisecond)
	bench.OrDefault(&o.Bytes, 1<<30)
	if len(o.Sizes) == 0 {
		o.Sizes = []int{128, 1024}
	}
	return o
}

// Floor measures the bare exchanges and the bare transfer alone. [Overhead] and [Catchup] measure them again, beside brokers.
func Floor(ctx context.Context, o FloorOptions) (rep FloorReport, err error) {
	o = o.withDefaults()
	rep = FloorReport{Rounds: o.Rounds, Seconds: o.Run.Seconds()}
	for _, size := range o.Sizes {
		r, err := o.floorOf(ctx, size)
		if err != nil {
			return rep, err
		}
		rep.Sizes = append(rep.Sizes, r)
	}
	rep.Transfer, err = o.transfers(ctx)
	return rep, err
}

func (o FloorOptions) floorOf(ctx context.Context, size int) (_ SizeReport, err error) {
	sides, stop, err := o.floorSides(ctx, size)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return SizeReport{}, err
	}
	t := turns{Setup: o.Setup, rounds: o.Rounds, warmup: o.Warmup, run: o.Run, loads: []load{single, full}, prefix: bodies(size)}
	if err := t.measure(ctx, sides); err != nil {
		return SizeReport{}, err
	}
	return sizeReport(size, sides)
}

func bodies(size int) string { return fmt.Sprintf("%d B: ", size) }

// WriteTable prints the report.
func (r FloorReport) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "Bare exchanges, %d rounds of %.1f s each\n", r.Rounds, r.Seconds)
	for _, s := range r.Sizes {
		s.write(w, []load{single, full})
	}
	r.Transfer.WriteTable(w)
}

// Figures of the report; none has a bound.
func (r FloorReport) Figures() []bench.Figure {
	var out []bench.Figure
	for _, s := range r.Sizes {
		for _, f := range []struct{ name, label, text string }{
			{"floor_ping2_p50", LabelPing2, "bare ping-pong, two hops, p50"},
			{"floor_ping4_p50", LabelPing4, "bare ping-pong, four hops, p50"},
		} {
			at := find(s.Targets, f.label, LoadSingle)
			out = append(out, bench.NewFigure(f.name+s.suffix(), f.text+s.words(), "µs", at.P50, bench.NoBound, 0))
		}
		stub := find(s.Targets, LabelStub, LoadFull)
		out = append(out, bench.NewFigure("floor_stub"+s.suffix(), "bare gnet stub, 4 × 64"+s.words(), "/s", stub.Throughput, bench.NoBound, 0))
	}
	return append(out, bench.NewFigure("floor_transfer", "bare transfer into a new mapped file", "MB/s", r.Transfer.MBps, bench.NoBound, 0))
}

// Faults implements Report.
func (r FloorReport) Faults() []string {
	var out []string
	for _, s := range r.Sizes {
		out = append(out, faultsOf(s.Targets)...)
	}
	return out
}
