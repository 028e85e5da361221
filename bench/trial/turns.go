package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tandem/bench"
	"tandem/bench/remote"
)

// Names of loads in reports.
const (
	LoadSingle = "single" // one message in flight, over one connection
	LoadFull   = "full"   // 4 connections with 64 messages in flight each, as fast as it goes
	LoadPaced  = "paced"  // 4 connections, at a fixed rate
)

const (
	fullConns = 4
	fullDepth = 64
)

// singleTurns is how often the sides take turns with one message in flight within a round. Such an exchange costs one or three times as
// much, depending on which processors its processes find themselves on, and stays so for some tenths of a second: many short runs
// meet both states in all sides, where few long ones would compare one side's good state with another's bad one. Of a round's
// ratios the median counts.
const singleTurns = 5

// fullTurns is how often they do so at full load: forth and back, so that what goes on changing while a round lasts is the same to all
// of them in the round's mean.
const fullTurns = 2

// load is one way to load a side.
type load struct {
	name, text   string
	conns, depth int
	rate         float64
	turns        int // in each round, of a part of the run each; 0 is 1
}

var (
	single = load{name: LoadSingle, text: "1 in flight", conns: 1, depth: 1, turns: singleTurns}
	full   = load{name: LoadFull, text: fmt.Sprintf("%d × %d in flight", fullConns, fullDepth), conns: fullConns, depth: fullDepth, turns: fullTurns}
)

// pacedDepth bounds what is in flight at a fixed rate: as many as make a broker's stall of some tenths of a second visible in full.
const pacedDepth = 4096

func pacedLoad(rate float64) load {
	return load{name: LoadPaced, text: fmt.Sprintf("%.0f/s", rate), conns: fullConns, depth: pacedDepth, rate: rate}
}

// side is one of those that are measured in turns.
type side struct {
	label   string
	loads   []string // those that make sense for it
	broker  bool     // its processes are brokers of ours
	peer    bool     // somebody else's broker
	measure func(ctx context.Context, l load, warmup, run time.Duration) (bench.SendReport, error)
	reports map[string][]bench.SendReport // by load, one a turn
	failed  error

	appends  func(ctx context.Context) (*remote.AppendTimes, error) // asks the master, after all turns; nil: it cannot be asked
	appended *remote.AppendTimes
}

// ownSide is a side of brokers of ours.
func ownSide(label string, p *pair, size int) *side {
	s := brokerSide(label, p.master.Addr(), size, p.watch)
	s.broker = true
	s.appends = func(ctx context.Context) (*remote.AppendTimes, error) {
		return p.client.AppendTimes(ctx, p.master.Addr())
	}
	return s
}

// brokerSide is a side that takes messages with bodies of size bytes.
func brokerSide(label, addr string, size int, watch []bench.Watched) *side {
	return &side{
		label: label, loads: []string{LoadSingle, LoadFull, LoadPaced},
		measure: func(ctx context.Context, l load, warmup, run time.Duration) (bench.SendReport, error) {
			return bench.Send(ctx, bench.SendOptions{
				Addr: addr, Label: label, Topic: topic, Size: size, Conns: l.conns, Depth: l.depth, Rate: l.rate,
				Warmup: warmup, Duration: run, Watch: watch,
			})
		},
	}
}

// topic is what all trials send to.
const topic = "TandemBench"

// turns measures all sides with all loads, turn by turn, every other turn in reverse order.
type turns struct {
	Setup
	rounds      int
	warmup, run time.Duration // of each round
	loads       []load
	prefix      string // of what is told as progress
}

func (l load) perRound() int { return max(1, l.turns) }

func (t turns) steps(sides []*side) int {
	n := 0
	for _, l := range t.loads {
		for _, s := range sides {
			if s.takes(l) {
				n += t.rounds * l.perRound()
			}
		}
	}
	return n
}

func (t turns) measure(ctx context.Context, sides []*side) error {
	done, total := 0, t.steps(sides)
	for round := range t.rounds {
		for _, l := range t.loads {
			for n := range l.perRound() {
				for _, s := range inTurn(sides, round*l.perRound()+n) {
					if !s.takes(l) {
						continue
					}
					t.progress(done, total, fmt.Sprintf("%s%s, %s", t.prefix, s.label, l.text))
					if err := t.once(ctx, s, l); err != nil {
						return err
					}
					done++
				}
			}
		}
	}
	t.progress(total, total, "done")
	return askAppends(ctx, sides)
}

// once is one turn of one side.
func (t turns) once(ctx context.Context, s *side, l load) error {
	parts := time.Duration(l.perRound())
	warmup, run := t.warmup/parts, t.run/parts
	if err := t.warm(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.label, err)
	}
	return s.once(ctx, l, warmup, run)
}

// askAppends asks all masters that can be asked how long their appends took.
func askAppends(ctx context.Context, sides []*side) (err error) {
	for _, s := range sides {
		if s.appends == nil {
			continue
		}
		if s.appended, err = s.appends(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.label, err)
		}
	}
	return nil
}

// inTurn is the order of the n-th turn.
func inTurn(sides []*side, n int) []*side {
	order := slices.Clone(sides)
	if n%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

func (s *side) takes(l load) bool { return slices.Contains(s.loads, l.name) }

func (s *side) once(ctx context.Context, l load, warmup, run time.Duration) error {
	r, err := s.measure(ctx, l, warmup, run)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("%s: %w", s.label, err)
	}
	if s.failed == nil {
		s.failed = r.Err()
	}
	if s.reports == nil {
		s.reports = map[string][]bench.SendReport{}
	}
	s.reports[l.name] = append(s.reports[l.name], r)
	return nil
}
