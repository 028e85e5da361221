package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/bench"
	"tandem/bench/trial"
)

func seriesOf(values ...float64) bench.Series { return bench.NewSeries(values) }

// everything has a bit of all results, and a text that must be escaped wherever a peer's label shows up.
func everything() trial.Results {
	const evil = `<script src="http://x">"'&`
	load := func(name string) trial.TargetLoad {
		return trial.TargetLoad{
			Load: name, Throughput: seriesOf(1000, 1100), P50: seriesOf(50, 60), P999: seriesOf(500, 600), ThroughputRatio: seriesOf(1, 0.9),
			Curve: []bench.CurvePoint{{Percentile: 0, Micros: 10}, {Percentile: 50, Micros: 50}, {Percentile: 99.99, Micros: 5000}},
		}
	}
	target := func(label string, own bool) trial.Target {
		return trial.Target{Label: label, Own: own, Loads: []trial.TargetLoad{load(trial.LoadSingle), load(trial.LoadFull), load(trial.LoadPaced)}}
	}
	size := trial.SizeReport{Size: 128, Targets: []trial.Target{
		target(trial.LabelAsync, true), target(trial.LabelSync, true), target(trial.LabelStub, false), target(trial.LabelPing2, false),
		target(trial.LabelPing4, false), target(evil, false),
	}}
	size.Targets[5].Failed = evil
	return trial.Results{
		Floor:    &trial.FloorReport{Transfer: trial.TransferReport{Bytes: 1, MBps: seriesOf(1, 2)}},
		Overhead: &trial.OverheadReport{Base: trial.LabelAsync, Rate: 20000, Sizes: []trial.SizeReport{size}},
		Lag:      &trial.LagReport{P50: seriesOf(1, 2), P99: seriesOf(3, 4)},
		Fanout:   &trial.FanoutReport{Rows: []trial.FanoutRow{{Slaves: 1, Target: target("1", true)}, {Slaves: 4, Target: target("4", true)}}},
		Soak: &trial.SoakReport{Every: 1, SendReport: bench.SendReport{Label: "soak", Course: []bench.Stretch{
			{Second: 0, P50: 1, P999: 10, Max: 100}, {Second: 1}, {Second: 2, P50: 2, P999: 20, Max: 200}}}},
		Catchup: &trial.CatchupReport{MBps: seriesOf(900, 1000), BareMBps: seriesOf(1000, 1000), Ratio: seriesOf(0.9, 1)},
		CatchupCold: &trial.CatchupReport{
			Cold: true, MBps: seriesOf(90, 100), BareMBps: seriesOf(100, 100), Ratio: seriesOf(0.9, 1),
			ColdFiles: &trial.ColdReport{DiskMBps: seriesOf(200, 210), DiskRatio: seriesOf(0.4, 0.5), ProducersP99: seriesOf(3, 4)},
		},
		Start: &trial.StartReport{Empty: seriesOf(0.1, 0.1), Clean: seriesOf(2, 2), Killed: seriesOf(1, 1)},
	}
}

func document(day int) Document {
	d := New(everything(), time.Date(2026, 3, day, 10, 0, 0, 0, time.UTC), time.Date(2026, 3, day, 10, 9, 0, 0, time.UTC))
	d.Machine = Machine{CPU: "Imagined(R) CPU @ 3.0GHz", Cores: 2}
	return d
}

func render(t *testing.T, d Document, earlier ...Document) string {
	var b strings.Builder
	require.NoError(t, WriteHTML(&b, d, earlier))
	return b.String()
}

// elements counts the page's elements by name, and fails if it is not well-formed.
func elements(t *testing.T, page string) map[string]int {
	dec := xml.NewDecoder(strings.NewReader(page))
	out := map[string]int{}
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			out[e.Name.Local]++
		}
	}
}

func TestThePageIsWellFormedAndNeedsNoNetwork(t *testing.T) {
	page := render(t, document(2), document(1))
	count := elements(t, page)
	require.Greater(t, count["svg"], 10)
	require.Equal(t, count["svg"], count["figure"])
	for _, name := range []string{"script", "link", "img", "iframe", "object", "image", "use"} {
		require.Zero(t, count[name], "%s", name)
	}
	withoutText := regexp.MustCompile(`(?s)>[^<]*<`).ReplaceAllString(page, "><")
	require.NotRegexp(t, `(?i)(src|href|url|@import|https?:)`, withoutText, "nothing is fetched")
	require.NotRegexp(t, `NaN|Inf`, page)
}

func TestThePageShowsFiguresVerdictsAndFaults(t *testing.T) {
	d := document(1)
	d.Error = "the time is up"
	page := render(t, d)
	for _, want := range []string{"sync ÷ async, throughput at 4 × 64, 128 B", "FALLS SHORT", "holds", "not measured", "≥ 0.950", "Imagined(R) CPU", "the time is up",
		"Round trips, 1 in flight, 128 B", "Round trips over time", "round by round", "cold files", "plain read", "producers&#39; p99", "Ended early", "&lt;script"} {
		require.True(t, strings.Contains(page, want), want) // without the whole page in the error
	}
	require.False(t, strings.Contains(page, "from run to run"), "there is but one run")
	require.True(t, strings.Contains(render(t, document(2), document(1)), "from run to run"))
}

func TestAnEmptyDocumentIsAPageToo(t *testing.T) {
	require.Zero(t, elements(t, render(t, Document{}))["svg"])
}

func TestAKeptDocumentComesBackAsItWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	d := document(1)
	jsonPath, htmlPath, err := Save(dir, d)
	require.NoError(t, err)
	require.Equal(t, "2026-03-01-100900_imagined-r-cpu-3-0ghz.json", filepath.Base(jsonPath))
	require.FileExists(t, htmlPath)
	text, err := os.ReadFile(jsonPath)
	require.NoError(t, err)
	var back Document
	require.NoError(t, json.Unmarshal(text, &back))
	again, err := json.MarshalIndent(back, "", " ")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(text)), string(again))
	host, err := os.Hostname()
	require.NoError(t, err)
	if len(host) > 3 {
		require.NotContains(t, string(text), host)
	}
}

func TestOnlyRunsOfTheSameCPUAreCompared(t *testing.T) {
	dir := t.TempDir()
	other := document(1)
	other.Machine.CPU = "another"
	quick := document(2)
	quick.Unjudged()
	for _, d := range []Document{document(4), document(3), other, quick} {
		_, _, err := Save(dir, d)
		require.NoError(t, err)
	}
	got, err := load(dir, document(1).Machine.CPU)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, 3, got[0].Date.Day(), "the oldest first")
}

func TestAForeignFileAmongTheResultsIsNamed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json"), []byte("no"), 0o644))
	_, _, err := Save(dir, document(1))
	require.ErrorContains(t, err, "x.json")
}

func TestAQuickRunIsNotJudged(t *testing.T) {
	d := document(1)
	require.True(t, bench.AnyShort(d.Figures))
	d.Unjudged()
	require.False(t, bench.AnyShort(d.Figures))
	require.True(t, strings.Contains(render(t, d), "its figures mean nothing"))
	var b strings.Builder
	d.WriteTable(&b)
	require.Contains(t, b.String(), "its figures mean nothing")
}

func TestTheJSONOfADocumentKeepsItsNames(t *testing.T) {
	text, err := json.Marshal(Document{Quick: true, Error: "x"})
	require.NoError(t, err)
	for _, name := range []string{"version", "date", "seconds", "quick", "error", "machine", "results", "figures"} {
		require.Contains(t, string(text), `"`+name+`":`)
	}
	text, err = json.Marshal(Machine{})
	require.NoError(t, err)
	require.JSONEq(t, `{"cpu":"","cores":0,"memory_bytes":0,"kernel":"","go":""}`, string(text))
}

func TestTheCPUModelIsFound(t *testing.T) {
	require.Equal(t, "AMD EPYC 7B13", cpuModel("processor\t: 0\nmodel name\t: AMD  EPYC 7B13\nflags\t: x\n"))
	require.Equal(t, "Some Board", cpuModel("processor : 0\nModel : Some Board\n"))
	require.Contains(t, cpuModel(""), "unknown")
	require.NotEmpty(t, ThisMachine().CPU)
	require.Equal(t, "amd-epyc-7b13-64-core", slug(" AMD EPYC/7B13 64-Core® "))
}

// Whatever was measured, a drawing stays within its frame and well-formed.
func TestDrawingsStayInTheirFrame(t *testing.T) {
	number := rapid.OneOf(rapid.Float64Range(-1e9, 1e9), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)), rapid.Just(0.0))
	coordinate := regexp.MustCompile(`points="([^"]*)"`)
	rapid.Check(t, func(rt *rapid.T) {
		c := chart{title: rapid.String().Draw(rt, "title"), x: "x", y: "y", logY: rapid.Bool().Draw(rt, "log")}
		for range rapid.IntRange(0, 4).Draw(rt, "lines") {
			l := line{name: "a<b&c"}
			for i := range rapid.IntRange(0, 5).Draw(rt, "points") {
				l.points = append(l.points, point{float64(i), number.Draw(rt, "y")})
			}
			c.lines = append(c.lines, l)
		}
		c.title = strings.Map(func(r rune) rune { // what XML cannot hold at all
			if r < ' ' || r == '\uFFFE' || r == '\uFFFF' {
				return -1
			}
			return r
		}, c.title)
		svg := c.svg()
		if svg == "" {
			return
		}
		require.NoError(rt, xml.Unmarshal([]byte(svg), new(struct{})))
		for _, m := range coordinate.FindAllStringSubmatch(svg, -1) {
			for _, pair := range strings.Fields(m[1]) {
				var x, y float64
				sx, sy, _ := strings.Cut(pair, ",")
				require.NoError(rt, json.Unmarshal([]byte(sx), &x))
				require.NoError(rt, json.Unmarshal([]byte(sy), &y))
				require.True(rt, x >= left-1 && x <= chartWidth && y >= top-1 && y <= chartHeight-below+1, "%s", pair)
			}
		}
	})
}

func TestTicksAreFewAndRound(t *testing.T) {
	for _, c := range [][2]float64{{0, 1}, {0, 1.05}, {0, 123456}, {1, 5}, {-3, 7}, {0, 0.0004}} {
		ticks := niceTicks(c[0], c[1])
		require.True(t, len(ticks) >= 2 && len(ticks) <= 8, "%v: %v", c, ticks)
	}
	require.Equal(t, []tick{{10, "10"}, {100, "100"}, {1000, "1000"}}, decades(1, 3))
}

func TestTheReportTellsInWhichStateMemoryWas(t *testing.T) {
	d := document(1)
	write := func() (text, page string) {
		var a, b strings.Builder
		d.WriteTable(&a)
		require.NoError(t, WriteHTML(&b, d, nil))
		return a.String(), b.String()
	}
	text, page := write()
	require.NotContains(t, text+page, "memory: ", "nobody tells")
	for state, want := range map[trial.MemoryReport]string{
		{}:                      "memory: left as it was found",
		{Filled: true, Runs: 7}: "memory: page cache filled before each of 7 runs",
	} {
		d.FreeMemory = &state
		text, page = write()
		require.Contains(t, text, want)
		require.Contains(t, page, want)
		var m map[string]map[string]any
		b, err := json.Marshal(map[string]any{"d": d})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &m))
		require.Equal(t, state.Filled, m["d"]["free_memory"].(map[string]any)["filled"])
	}
}
