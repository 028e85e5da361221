package trial

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"tandem/bench"
)

// Report is what one trial came to.
type Report interface {
	WriteTable(io.Writer)
	Figures() []bench.Figure
	Faults() []string // what was not acknowledged: it makes the report worthless
}

// Results are the reports of those trials that were made. The JSON names are stable.
type Results struct {
	Floor       *FloorReport    `json:"floor,omitempty"`
	Overhead    *OverheadReport `json:"overhead,omitempty"`
	Lag         *LagReport      `json:"lag,omitempty"`
	Fanout      *FanoutReport   `json:"fanout,omitempty"`
	Soak        *SoakReport     `json:"soak,omitempty"`
	Catchup     *CatchupReport  `json:"catchup,omitempty"`
	CatchupCold *CatchupReport  `json:"catchup_cold,omitempty"`
	Start       *StartReport    `json:"start,omitempty"`
}

// Reports lists what is there.
func (r Results) Reports() []Report {
	var out []Report
	add := func(there bool, rep Report) {
		if there {
			out = append(out, rep)
		}
	}
	add(r.Floor != nil, r.Floor)
	add(r.Overhead != nil, r.Overhead)
	add(r.Lag != nil, r.Lag)
	add(r.Fanout != nil, r.Fanout)
	add(r.Soak != nil, r.Soak)
	add(r.Catchup != nil, r.Catchup)
	add(r.CatchupCold != nil, r.CatchupCold)
	add(r.Start != nil, r.Start)
	return out
}

// Figures of all reports.
func (r Results) Figures() []bench.Figure {
	var out []bench.Figure
	for _, rep := range r.Reports() {
		out = append(out, rep.Figures()...)
	}
	return out
}

// Faults of all reports.
func (r Results) Faults() []string {
	var out []string
	for _, rep := range r.Reports() {
		out = append(out, rep.Faults()...)
	}
	return out
}

// AllOptions say how thorough All is.
type AllOptions struct {
	Setup
	Peers  []Peer // measured in Overhead
	Apache string // as in OverheadOptions
	Redis  string // as in OverheadOptions
	Rounds int    // of each trial; default 5
	Quick  bool   // as little of everything as shows that it works; the figures mean nothing
}

// All runs all trials, one after the other. After an error it returns what it has.
func All(ctx context.Context, o AllOptions) (r Results, err error) {
	bench.OrDefault(&o.Rounds, 5)
	if err := checkPeers(ctx, o.Peers, o.Redis); err != nil {
		return r, err
	}
	p := o.plan()
	for _, step := range []struct {
		name string
		run  func(Setup) error
	}{
		{"floor", func(s Setup) error { p.floor.Setup = s; return keep(&r.Floor)(Floor(ctx, p.floor)) }},
		{"overhead", func(s Setup) error { p.overhead.Setup = s; return keep(&r.Overhead)(Overhead(ctx, p.overhead)) }},
		{"lag", func(s Setup) error { p.lag.Setup = s; return keep(&r.Lag)(Lag(ctx, p.lag)) }},
		{"fan-out", func(s Setup) error { p.fanout.Setup = s; return keep(&r.Fanout)(Fanout(ctx, p.fanout)) }},
		{"soak", func(s Setup) error { p.soak.Setup = s; return keep(&r.Soak)(Soak(ctx, p.soak)) }},
		{"catch-up", func(s Setup) error { p.catchup.Setup = s; return keep(&r.Catchup)(Catchup(ctx, p.catchup)) }},
		{"cold catch-up", func(s Setup) error { p.cold.Setup = s; return keep(&r.CatchupCold)(Catchup(ctx, p.cold)) }},
		{"start", func(s Setup) error { p.start.Setup = s; return keep(&r.Start)(Start(ctx, p.start)) }},
	} {
		if err := step.run(o.within(step.name)); err != nil {
			return r, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return r, nil
}

// within is a setup with a directory of its own, whose progress says what it is about.
func (s Setup) within(name string) Setup {
	in := Setup{Binary: s.Binary, Dir: filepath.Join(s.Dir, name), Memory: s.Memory}
	if s.Progress != nil {
		in.Progress = func(done, total int64, what string) { s.Progress(done, total, name+": "+what) }
	}
	return in
}

// keep stores a report where there is no error.
func keep[R any](to **R) func(R, error) error {
	return func(r R, err error) error {
		if err == nil {
			*to = &r
		}
		return err
	}
}

// plan holds the options of all trials.
type plan struct {
	floor    FloorOptions
	overhead OverheadOptions
	lag      LagOptions
	fanout   FanoutOptions
	soak     SoakOptions
	catchup  CatchupOptions
	cold     CatchupOptions
	start    StartOptions
}

func (o AllOptions) plan() plan {
	if o.Quick {
		return o.quickPlan()
	}
	return plan{
		floor:    FloorOptions{Rounds: o.Rounds, Run: time.Second},
		overhead: OverheadOptions{Peers: o.Peers, Apache: o.Apache, Redis: o.Redis, Rounds: o.Rounds, Rate: 20_000},
		lag:      LagOptions{Rounds: o.Rounds},
		fanout:   FanoutOptions{Rounds: o.Rounds, Slaves: []int{1, 4}},
		soak:     SoakOptions{Duration: 20 * time.Second},
		catchup:  CatchupOptions{Rounds: o.Rounds},
		cold:     CatchupOptions{Rounds: o.Rounds, Cold: true, Segment: 256 << 20},
		start:    StartOptions{Rounds: o.Rounds},
	}
}

func (o AllOptions) quickPlan() plan {
	const run, warmup = 200 * time.Millisecond, 50 * time.Millisecond
	return plan{
		floor: FloorOptions{Rounds: 1, Run: run, Warmup: warmup, Sizes: []int{128}, Bytes: 16 << 20},
		overhead: OverheadOptions{
			Peers: o.Peers, Apache: o.Apache, Redis: o.Redis, Rounds: 1, Run: run, Warmup: warmup, Sizes: []int{128}, Rate: 2000, JVMWarmup: run,
		},
		lag:     LagOptions{Rounds: 1, Run: run, PeakRun: run},
		fanout:  FanoutOptions{Rounds: 1, Run: run, Warmup: warmup, Slaves: []int{1, 2}},
		soak:    SoakOptions{Rate: 2000, Duration: time.Second, Warmup: warmup, Every: run},
		catchup: CatchupOptions{Rounds: 1, Bytes: 32 << 20, Segment: 16 << 20},
		cold:    CatchupOptions{Rounds: 1, Bytes: 32 << 20, Segment: 16 << 20, Cold: true, IdleRun: run},
		start:   StartOptions{Rounds: 1, Bytes: 32 << 20, Segment: 16 << 20, Load: run},
	}
}
