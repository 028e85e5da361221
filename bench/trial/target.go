package trial

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/remote"
)

// Target is what one side came to. The JSON names are stable.
type Target struct {
	Label  string       `json:"label"`
	Own    bool         `json:"own"` // a broker of ours, started for this
	Loads  []TargetLoad `json:"loads"`
	Peer   bool         `json:"peer,omitempty"`   // somebody else's broker
	Failed string       `json:"failed,omitempty"` // what was not acknowledged

	Appends *remote.AppendTimes `json:"append_times,omitempty"` // of a master of ours, since its start
}

// TargetLoad is what one side came to with one load. All series are by turn, of which a round has one or
// more; round trips are in microseconds.
type TargetLoad struct {
	Load            string                `json:"load"` // one of the Load constants
	Throughput      bench.Series          `json:"throughput"`
	P50             bench.Series          `json:"round_trip_p50"`
	P99             bench.Series          `json:"round_trip_p99"`
	P999            bench.Series          `json:"round_trip_p99_9"`
	ThroughputRatio bench.Series          `json:"throughput_ratio"` // to the base's
	P50Ratio        bench.Series          `json:"round_trip_ratio"` // to the base's
	GeneratorNs     bench.Series          `json:"generator_ns_per_message"`
	Curve           []bench.CurvePoint    `json:"curve"` // point by point the median of all rounds
	Processes       []bench.ProcessReport `json:"processes,omitempty"`
	Unfit           string                `json:"unfit,omitempty"` // why nothing can be held against it: messages refused, or the rate not kept
}

// targetOf sums a side up, in relation to base.
func targetOf(s, base *side) Target {
	t := Target{Label: s.label, Own: s.broker, Peer: s.peer, Appends: s.appended}
	if s.failed != nil {
		t.Failed = s.failed.Error()
	}
	for _, name := range s.loads {
		runs := s.reports[name]
		if len(runs) == 0 {
			continue
		}
		l := TargetLoad{
			Load: name, Throughput: series(runs, throughput), P50: series(runs, p50), P99: series(runs, p99), P999: series(runs, p999),
			GeneratorNs: series(runs, generatorNs), Curve: medianCurve(runs), Processes: mergeProcesses(runs), Unfit: unfit(runs),
		}
		if of := base.reports[name]; len(of) > 0 {
			l.ThroughputRatio = divide(l.Throughput, series(of, throughput))
			l.P50Ratio = divide(l.P50, series(of, p50))
		}
		t.Loads = append(t.Loads, l)
	}
	return t
}

// keptRate is the share of a fixed rate that must be answered for it to be kept.
const keptRate = 0.99

// unfit names the first run whose values are those of another load than was asked for.
func unfit(runs []bench.SendReport) string {
	for _, r := range runs {
		if err := r.Err(); err != nil {
			return err.Error()
		}
		if r.Throughput < keptRate*r.Rate {
			return fmt.Sprintf("answered %.0f/s of %.0f/s", r.Throughput, r.Rate)
		}
	}
	return ""
}

func throughput(r bench.SendReport) float64  { return r.Throughput }
func p50(r bench.SendReport) float64         { return r.RoundTrip.P50 }
func p99(r bench.SendReport) float64         { return r.RoundTrip.P99 }
func p999(r bench.SendReport) float64        { return r.RoundTrip.P999 }
func generatorNs(r bench.SendReport) float64 { return r.GeneratorNs }

func series(runs []bench.SendReport, of func(bench.SendReport) float64) bench.Series {
	var values []float64
	for _, r := range runs {
		values = append(values, of(r))
	}
	return bench.NewSeries(values)
}

// medianCurve goes as far as all runs' curves.
func medianCurve(runs []bench.SendReport) []bench.CurvePoint {
	n := len(runs[0].Curve)
	for _, r := range runs {
		n = min(n, len(r.Curve))
	}
	var out []bench.CurvePoint
	for i := range n {
		point := func(r bench.SendReport) float64 { return r.Curve[i].Micros }
		out = append(out, bench.CurvePoint{Percentile: runs[0].Curve[i].Percentile, Micros: series(runs, point).Median})
	}
	return out
}

// mergeProcesses has the most memory and all processor time of the runs, and the median per message.
func mergeProcesses(runs []bench.SendReport) []bench.ProcessReport {
	var out []bench.ProcessReport
	for i, p := range runs[0].Processes {
		var perMessage []float64
		p.CPU = 0
		for _, r := range runs {
			q := r.Processes[i]
			p.RSS, p.RssAnon, p.CPU = max(p.RSS, q.RSS), max(p.RssAnon, q.RssAnon), p.CPU+q.CPU
			perMessage = append(perMessage, q.CPUNs)
		}
		p.CPUNs = bench.NewSeries(perMessage).Median
		out = append(out, p)
	}
	return out
}

// faultsOf names what targets did not acknowledge. A peer that is too busy for the load is no fault of the measurement: the tables
// tell it.
func faultsOf(targets []Target) []string {
	var out []string
	for _, t := range targets {
		if t.Failed != "" && !t.Peer {
			out = append(out, t.Label+": "+t.Failed)
		}
	}
	return out
}

// find returns a target's load; an empty one if it was not measured.
func find(targets []Target, label, name string) TargetLoad {
	for _, t := range targets {
		if t.Label != label {
			continue
		}
		for _, l := range t.Loads {
			if l.Load == name {
				return l
			}
		}
	}
	return TargetLoad{}
}

// ownProcesses are the brokers of ours, with all their loads.
func ownProcesses(targets []Target) []bench.ProcessReport {
	var out []bench.ProcessReport
	for _, t := range targets {
		if !t.Own {
			continue
		}
		for _, l := range t.Loads {
			out = append(out, l.Processes...)
		}
	}
	return out
}

// memoryFigure holds brokers' anonymous memory against its bound: the highest of all.
func memoryFigure(name, text string, ps []bench.ProcessReport) bench.Figure {
	var values []float64
	if len(ps) > 0 {
		most := slices.MaxFunc(ps, func(a, b bench.ProcessReport) int { return int(a.RssAnon - b.RssAnon) })
		values = append(values, float64(most.RssAnon)/(1<<20))
	}
	return bench.NewFigure("rss_anon_"+name, "anonymous memory of a broker, "+text, "MiB", bench.NewSeries(values), bench.AtMost, boundRssAnon)
}

// writeTargets prints one table for each load.
func writeTargets(w io.Writer, targets []Target, loads []load) {
	for _, l := range loads {
		t := bench.NewTable(l.text, "messages/s", "ratio", "from … to", "p50", "ratio", "from … to", "p99", "p99.9", "generator ns/message")
		for _, x := range targets {
			at := find([]Target{x}, x.Label, l.name)
			if at.Load == "" {
				continue
			}
			t.AppendRow(table.Row{
				x.Label, fmt.Sprintf("%.0f", at.Throughput.Median), ratioText(at.ThroughputRatio), spreadText(at.ThroughputRatio),
				bench.Micros(at.P50.Median), ratioText(at.P50Ratio), spreadText(at.P50Ratio), bench.Micros(at.P99.Median), bench.Micros(at.P999.Median),
				fmt.Sprintf("%.0f", at.GeneratorNs.Median),
			})
		}
		if t.Length() > 0 {
			fmt.Fprintln(w, t.Render())
		}
	}
	for _, x := range targets {
		for _, at := range x.Loads {
			if at.Load == LoadFull && len(at.Processes) > 0 {
				fmt.Fprintf(w, "%s, %s:\n", x.Label, full.text)
				bench.WriteProcesses(w, at.Processes)
			}
		}
		writeAppends(w, x.Label, x.Appends)
		if x.Failed != "" {
			fmt.Fprintf(w, "%s: %s\n", x.Label, x.Failed)
		}
	}
}

func ratioText(s bench.Series) string {
	if len(s.Values) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", s.Median)
}

func spreadText(s bench.Series) string {
	if len(s.Values) == 0 {
		return ""
	}
	return s.Spread()
}
