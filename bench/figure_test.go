package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

func TestAFigureFallsShortOnlyByMoreThanItsOwnNoise(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		sense  Sense
		bound  float64
		want   Verdict
	}{
		{"above its least", []float64{0.96, 0.97, 0.98}, AtLeast, 0.95, Holds},
		{"just its least", []float64{0.95, 0.95, 0.95}, AtLeast, 0.95, Holds},
		{"below, and quiet", []float64{0.90, 0.901, 0.899}, AtLeast, 0.95, Short},
		{"below, by less than the noise", []float64{0.94, 0.99, 0.90, 0.93, 0.98}, AtLeast, 0.95, InNoise},
		{"below its most", []float64{1.1, 1.2, 1.3}, AtMost, 1.25, Holds},
		{"above, and quiet", []float64{1.4, 1.41, 1.39}, AtMost, 1.25, Short},
		{"above, by less than the noise", []float64{1.30, 1.0, 1.5, 1.28, 1.1}, AtMost, 1.25, InNoise},
		{"below, by less than single values lie off", []float64{0.93, 0.99, 0.89, 0.91, 0.96}, AtLeast, 0.96, Short},
		{"one value has no noise", []float64{0.94}, AtLeast, 0.95, Short},
		{"below nothing is below any most", []float64{-0.2, -0.1, -0.3}, AtMost, 1.25, Holds},
		{"nothing measured", nil, AtLeast, 0.95, Unknown},
		{"nothing but failures", []float64{0, 0}, AtMost, 5, Unknown},
		{"no bound", []float64{7}, NoBound, 0, Reported},
	} {
		f := NewFigure("x", c.name, "", NewSeries(c.values), c.sense, c.bound)
		require.Equal(t, c.want, f.Verdict, c.name)
		require.Equal(t, c.want == Short, AnyShort([]Figure{{Verdict: Holds}, f}), c.name)
	}
}

func TestNoiseIgnoresAnOutlierAndScalesWithTheValues(t *testing.T) {
	require.Zero(t, NewSeries(nil).Noise())
	require.Zero(t, NewSeries([]float64{5}).Noise())
	require.InDelta(t, 1, NewSeries([]float64{4, 6}).Noise(), 1e-9)
	median := 1.4826 * 1.2533 / math.Sqrt(5)
	require.InDelta(t, median, NewSeries([]float64{1, 2, 3, 4, 5}).Noise(), 1e-9)
	require.InDelta(t, median, NewSeries([]float64{1, 2, 3, 4, 500}).Noise(), 1e-9)
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 20).Draw(t, "values")
		doubled := make([]float64, len(values))
		for i, v := range values {
			doubled[i] = 2 * v
		}
		s := NewSeries(values)
		require.GreaterOrEqual(t, s.Noise(), 0.0)
		require.LessOrEqual(t, s.Noise(), 1.4827*(s.High-s.Low)+1e-9)
		require.InDelta(t, 2*s.Noise(), NewSeries(doubled).Noise(), 1e-6)
	})
}

func TestTheNoiseOfAMedianShrinksWithTheRootOfTheNumberOfValues(t *testing.T) {
	few := []float64{1, 2, 3, 4, 5}
	many := slices.Repeat(few, 4)
	require.InDelta(t, NewSeries(few).Noise()/2, NewSeries(many).Noise(), 1e-9)
}

// The medians of many rows of one kind lie about as far off as the noise of a row says.
func TestTheNoiseIsTheStandardErrorOfTheMedian(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, values = 2000, 25
	var squares, noise float64
	for range rows {
		row := make([]float64, values)
		for i := range row {
			row[i] = r.NormFloat64()
		}
		s := NewSeries(row)
		squares += s.Median * s.Median
		noise += s.Noise()
	}
	require.InEpsilon(t, math.Sqrt(squares/rows), noise/rows, 0.1)
}

func TestTheJSONOfAFigureKeepsItsNames(t *testing.T) {
	f := NewFigure("a", "b", "ms", NewSeries([]float64{1}), AtMost, 5)
	require.Equal(t, []string{"bound", "high", "low", "median", "name", "noise", "sense", "text", "unit", "values", "verdict"}, keys(t, f))
}

func TestTheTableOfFiguresNamesValueBoundAndVerdict(t *testing.T) {
	var b strings.Builder
	WriteFigures(&b, []Figure{
		NewFigure("a", "sync ÷ async", "", NewSeries([]float64{0.5, 0.51}), AtLeast, 0.95),
		NewFigure("b", "start", "s", NewSeries([]float64{1234}), AtMost, 2000),
		NewFigure("c", "lag", "ms", NewSeries(nil), AtMost, 5),
	})
	for _, want := range []string{"sync ÷ async", "0.505", "0.500 … 0.510", "≥ 0.950", "FALLS SHORT", "1234 s", "≤ 2000 s", "holds", "not measured", "–"} {
		require.Contains(t, b.String(), want)
	}
}

func TestACurveEndsWhereTheValuesAreTooFew(t *testing.T) {
	h := newHistogram()
	for i := int64(1); i <= 1000; i++ {
		record(h, i*1000)
	}
	c := curveOf(h)
	require.Equal(t, 99.9, c[len(c)-1].Percentile, "a thousand values can tell one in a thousand")
	for i := range c[1:] {
		require.LessOrEqual(t, c[i].Micros, c[i+1].Micros)
	}
	require.Empty(t, curveOf(newHistogram()))
}

func TestACourseCountsEachAcknowledgedMessageOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &course{every: 100_000}
		recorders := []*recorder{newRecorder(window{1000, 1_000_000}, c), newRecorder(window{1000, 1_000_000}, c)}
		var acked int64
		now := int64(1000)
		for range rapid.IntRange(0, 100).Draw(t, "messages") {
			now += rapid.Int64Range(0, 50_000).Draw(t, "step")
			sent := now - rapid.Int64Range(0, 50_000).Draw(t, "trip")
			recorders[rapid.IntRange(0, 1).Draw(t, "connection")].success(sent, now)
			if sent >= 1000 && sent < 1_000_000 {
				acked++
			}
		}
		for _, r := range recorders {
			c.add(r)
		}
		var sum int64
		for i, s := range c.report() {
			require.InDelta(t, float64(i)*0.0001, s.Second, 1e-12)
			sum += s.Acked
		}
		require.Equal(t, acked, sum)
	})
}

func TestTheCourseOfARunShowsItsStall(t *testing.T) {
	const stall = 150 * time.Millisecond
	s := startScript(t, &script{answer: func(n int, _ *codec.SendHeader) (codec.ResponseCode, bool) {
		if n == 300 {
			<-time.After(stall)
		}
		return codec.Success, false
	}})
	r, err := Send(t.Context(), SendOptions{
		Addr: s.addr, Conns: 1, Depth: 1024, Rate: 1000, Duration: 600 * time.Millisecond, Every: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(r.Course), 6)
	var acked int64
	var worst float64
	for _, x := range r.Course {
		acked += x.Acked
		worst = max(worst, x.Max)
	}
	require.Equal(t, r.Acked, acked)
	require.Greater(t, worst, 0.8*float64(stall.Microseconds()))
}
