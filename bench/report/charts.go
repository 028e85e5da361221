package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tandem/bench"
	"tandem/bench/trial"
)

// charts are all drawings that a document's results allow.
func charts(d Document, earlier []Document) []chart {
	var out []chart
	r := d.Results
	if r.Overhead != nil {
		out = append(out, sizeCharts(r.Overhead.Sizes, fmt.Sprintf("%.0f/s", r.Overhead.Rate))...)
	}
	if r.Floor != nil {
		out = append(out, sizeCharts(r.Floor.Sizes, "")...)
	}
	out = append(out, ratioCharts(d.Figures)...)
	if r.Fanout != nil {
		out = append(out, fanoutChart(*r.Fanout))
	}
	if r.Soak != nil {
		out = append(out, soakChart(*r.Soak), chart{
			title: "Round trips at a fixed rate", x: "percentile", y: "µs", logY: true, xTicks: percentTicks,
			lines: []line{{r.Soak.Label, curve(r.Soak.Curve)}},
		})
	}
	if r.Catchup != nil {
		out = append(out, catchupChart(*r.Catchup))
	}
	if r.CatchupCold != nil {
		out = append(out, catchupChart(*r.CatchupCold))
	}
	if r.Lag != nil {
		out = append(out, chart{
			title: "Lag at half of the maximal rate", x: "round", y: "ms", xTicks: roundTicks(r.Lag.Rounds),
			lines: []line{byRound("p50", r.Lag.P50), byRound("p99", r.Lag.P99)},
		})
	}
	if r.Start != nil {
		out = append(out, chart{
			title: "Start to serving", x: "round", y: "s", xTicks: roundTicks(r.Start.Rounds),
			lines: []line{byRound("no store", r.Start.Empty), byRound("closed cleanly", r.Start.Clean), byRound("after kill -9", r.Start.Killed)},
		})
	}
	return append(out, courseCharts(append(append([]Document{}, earlier...), d))...)
}

func catchupChart(r trial.CatchupReport) chart {
	c := chart{
		title: "Catch-up beside the bare transfer", x: "round", y: "MB/s", xTicks: roundTicks(r.Rounds),
		lines: []line{byRound("slave", r.MBps), byRound("bare transfer", r.BareMBps)},
	}
	if r.ColdFiles != nil {
		c.title += ", cold files"
		c.lines = append(c.lines, byRound("plain read", r.ColdFiles.DiskMBps))
	}
	return c
}

// percentTicks spread the high percentiles: each step to the right is a tenth of the messages.
var percentTicks = []tick{{0, "0"}, {nines(50), "50"}, {1, "90"}, {2, "99"}, {3, "99.9"}, {4, "99.99"}}

func nines(percentile float64) float64 { return -math.Log10(1 - percentile/100) }

func curve(points []bench.CurvePoint) []point {
	var out []point
	for _, p := range points {
		out = append(out, point{nines(p.Percentile), p.Micros})
	}
	return out
}

// sizeCharts are percentile curves, one chart for each size and load. rate names the fixed rate.
func sizeCharts(sizes []trial.SizeReport, rate string) []chart {
	var out []chart
	for _, s := range sizes {
		for _, l := range []struct{ name, text string }{
			{trial.LoadSingle, "1 in flight"}, {trial.LoadPaced, rate}, {trial.LoadFull, "4 × 64 in flight"},
		} {
			c := chart{
				title: fmt.Sprintf("Round trips, %s, %d B", l.text, s.Size), x: "percentile", y: "µs", logY: true, xTicks: percentTicks,
			}
			for _, t := range s.Targets {
				for _, at := range t.Loads {
					if at.Load == l.name {
						c.lines = append(c.lines, line{t.Label, curve(at.Curve)})
					}
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// ratioCharts are the bounded ratios over the rounds of the run, one chart for each kind.
func ratioCharts(figures []bench.Figure) []chart {
	var out []chart
	for _, f := range figures {
		if f.Unit != "" || f.Sense == bench.NoBound || len(f.Values) < 2 {
			continue
		}
		out = append(out, chart{
			title: f.Text + ", round by round", x: "round", y: "ratio", lines: []line{byRound(f.Text, f.Series)}, xTicks: roundTicks(len(f.Values)),
			bounds: []line{{"bound " + f.BoundText(), []point{{1, f.Bound}, {float64(len(f.Values)), f.Bound}}}},
		})
	}
	return out
}

func byRound(name string, s bench.Series) line {
	l := line{name: name}
	for i, v := range s.Values {
		l.points = append(l.points, point{float64(i + 1), v})
	}
	return l
}

func roundTicks(n int) []tick {
	var out []tick
	for i := 1; i <= n; i++ {
		out = append(out, tick{float64(i), strconv.Itoa(i)})
	}
	return thin(out, 12)
}

func fanoutChart(r trial.FanoutReport) chart {
	l := line{name: "throughput ÷ that with the first"}
	var ticks []tick
	for _, row := range r.Rows {
		ticks = append(ticks, tick{float64(row.Slaves), strconv.Itoa(row.Slaves)})
		for _, at := range row.Loads {
			l.points = append(l.points, point{float64(row.Slaves), at.ThroughputRatio.Median})
		}
	}
	return chart{title: "Throughput by slaves that only receive and acknowledge", x: "slaves", y: "ratio", lines: []line{l}, xTicks: ticks}
}

func soakChart(r trial.SoakReport) chart {
	mid, tail, most := line{name: "p50"}, line{name: "p99.9"}, line{name: "max"}
	for _, s := range r.Course {
		mid.points = append(mid.points, point{s.Second, s.P50})
		tail.points = append(tail.points, point{s.Second, s.P999})
		most.points = append(most.points, point{s.Second, s.Max})
	}
	return chart{
		title: fmt.Sprintf("Round trips over time, %.0f/s", r.Rate), x: "second", y: "µs", logY: true, lines: []line{mid, tail, most},
	}
}

// courseCharts show bounded ratios from one document to the next, if there are at least two.
func courseCharts(all []Document) []chart {
	if len(all) < 2 {
		return nil
	}
	var out []chart
	for _, f := range all[len(all)-1].Figures {
		if f.Unit != "" || f.Sense == bench.NoBound {
			continue
		}
		l := line{name: f.Text}
		var ticks []tick
		for i, d := range all {
			ticks = append(ticks, tick{float64(i), strings.TrimPrefix(d.Date.Format("2006-01-02"), "20")})
			for _, g := range d.Figures {
				if g.Name == f.Name && len(g.Values) > 0 {
					l.points = append(l.points, point{float64(i), g.Median})
				}
			}
		}
		last := float64(len(all) - 1)
		out = append(out, chart{
			title: f.Text + ", from run to run", x: "run", y: "ratio", lines: []line{l}, xTicks: thin(ticks, 6),
			bounds: []line{{"bound " + f.BoundText(), []point{{0, f.Bound}, {last, f.Bound}}}},
		})
	}
	return out
}

// thin keeps about n of the ticks, the last one always.
func thin(ticks []tick, n int) []tick {
	step := max(1, (len(ticks)+n-1)/n)
	var out []tick
	for i := len(ticks) - 1; i >= 0; i -= step {
		out = append(out, ticks[i])
	}
	return out
}
