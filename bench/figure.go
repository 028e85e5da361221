package bench

import (
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Sense says on which side of its bound a figure should be.
type Sense string

// The senses.
const (
	AtLeast Sense = "at_least"
	AtMost  Sense = "at_most"
	NoBound Sense = "" // only reported
)

// Verdict is how a figure stands to its bound.
type Verdict string

// The verdicts.
const (
	Holds    Verdict = "holds"
	InNoise  Verdict = "within the noise" // the median misses the bound by no more than its own noise
	Short    Verdict = "FALLS SHORT"
	Unknown  Verdict = "not measured"
	Reported Verdict = "" // there is no bound
)

// Figure is one result with the bound that it is held to. The median of its values counts, and its noise is that of the median
// ([Series.Noise]), not of single values: the more of them, the smaller. A figure falls short if its median is on the wrong side of the
// bound by more than that. The JSON names are stable.
type Figure struct {
	Name string `json:"name"` // stable, for machines: "sync_async_throughput_128"
	Text string `json:"text"`
	Unit string `json:"unit,omitempty"` // "" for a ratio
	Series
	Noise   float64 `json:"noise"` // of the median of this run's values, in Unit
	Sense   Sense   `json:"sense,omitempty"`
	Bound   float64 `json:"bound,omitempty"`
	Verdict Verdict `json:"verdict,omitempty"`
	Why     string  `json:"why,omitempty"` // if it was not measured, and the reason is known
}

// NewFigure judges values, which were taken under the same conditions.
func NewFigure(name, text, unit string, values Series, sense Sense, bound float64) Figure {
	f := Figure{Name: name, Text: text, Unit: unit, Series: values, Noise: values.Noise(), Sense: sense, Bound: bound}
	f.Verdict = f.judge()
	return f
}

// Unmeasured is the figure without its values, which mean nothing for the reason given; the figure itself if there is none.
func (f Figure) Unmeasured(why string) Figure {
	if why == "" {
		return f
	}
	f.Series, f.Noise, f.Verdict, f.Why = NewSeries(nil), 0, Unknown, why
	return f
}

// VerdictText is the verdict with its reason.
func (f Figure) VerdictText() string {
	if f.Why == "" {
		return string(f.Verdict)
	}
	return string(f.Verdict) + ": " + f.Why
}

func (f Figure) judge() Verdict {
	short := f.Bound - f.Median
	switch {
	case len(f.Missing) > 0:
		return Unknown
	case f.Sense == NoBound:
		return Reported
	case len(f.Values) == 0 || f.Low == 0 && f.High == 0: // a measurement that could not be made
		return Unknown
	case f.Sense == AtMost:
		short = -short
	}
	switch {
	case short <= 0:
		return Holds
	case short <= f.Noise:
		return InNoise
	default:
		return Short
	}
}

// BoundText is the bound with its sense.
func (f Figure) BoundText() string {
	switch f.Sense {
	case AtLeast:
		return "≥ " + f.number(f.Bound)
	case AtMost:
		return "≤ " + f.number(f.Bound)
	}
	return ""
}

// ValueText is the median with its unit.
func (f Figure) ValueText() string {
	if f.Verdict == Unknown {
		return "–"
	}
	return f.number(f.Median)
}

// SpreadText is the lowest and the highest value.
func (f Figure) SpreadText() string {
	if len(f.Values) < 2 {
		return ""
	}
	return f.number(f.Low) + " … " + f.number(f.High)
}

func (f Figure) number(v float64) string {
	if f.Unit == "" {
		return fmt.Sprintf("%.3f", v)
	}
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f %s", v, f.Unit)
	}
	return fmt.Sprintf("%.3g %s", v, f.Unit)
}

// AnyShort tells whether a figure falls short of its bound by more than the noise.
func AnyShort(figures []Figure) bool {
	for _, f := range figures {
		if f.Verdict == Short {
			return true
		}
	}
	return false
}

// WriteFigures prints figures with their bounds.
func WriteFigures(w io.Writer, figures []Figure) {
	t := NewTable("figure", "median", "from … to", "noise", "bound", "")
	for _, f := range figures {
		t.AppendRow(table.Row{f.Text, f.ValueText(), f.SpreadText(), f.number(f.Noise), f.BoundText(), f.VerdictText()})
	}
	fmt.Fprintln(w, t.Render())
}
