package bench

import (
	"fmt"
	"math"
	"slices"
)

// Series is a row of values that were measured under the same conditions, with its median and spread.
type Series struct {
	Values []float64 `json:"values"` // in the order in which they were measured
	Median float64   `json:"median"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`

	Missing []int `json:"missing,omitempty"` // places of the values that are no finite numbers; they are 0 in Values
}

// NewSeries sums up values. Of an even number of them the median is the mean of the middle two; of none it is 0. Values that are
// no finite numbers are kept in the row, as 0, and count for nothing.
func NewSeries(values []float64) Series {
	s := Series{Values: slices.Clone(values)}
	var good []float64
	for i, v := range s.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			s.Values[i] = 0
			s.Missing = append(s.Missing, i)
			continue
		}
		good = append(good, v)
	}
	if len(good) == 0 {
		return s
	}
	slices.Sort(good)
	n := len(good)
	s.Low, s.High = good[0], good[n-1]
	s.Median = (good[(n-1)/2] + good[n/2]) / 2
	return s
}

// Raw are the values with NaN in the places that are missing, to calculate with.
func (s Series) Raw() []float64 {
	raw := slices.Clone(s.Values)
	for _, i := range s.Missing {
		raw[i] = math.NaN()
	}
	return raw
}

// Ratios divides pair by pair: the k-th value of what by the k-th of base. Slow changes of the machine's mood hit both
// of a pair and so leave the ratio alone.
func Ratios(what, base []float64) Series {
	out := make([]float64, min(len(what), len(base)))
	for i := range out {
		out[i] = what[i] / base[i]
	}
	return NewSeries(out)
}

// Noise is how far the median usually lies from that of very many values: its standard error. It comes of the values' distances from it,
// of which the median counts, so that no single value matters: scaled to the standard deviation of values that are spread normally, and
// from there to the error of the median of so many of them. Of one value it is 0, of two half their distance.
func (s Series) Noise() float64 {
	const (
		deviation = 1.4826 // a normal spread's standard deviation ÷ the median distance
		ofMedian  = 1.2533 // the standard error of a normal spread's median ÷ that of its mean: √(π÷2)
	)
	var off []float64
	for i, v := range s.Values {
		if slices.Contains(s.Missing, i) {
			continue
		}
		off = append(off, math.Abs(v-s.Median))
	}
	if len(off) < 3 {
		return (s.High - s.Low) / 2
	}
	return ofMedian * deviation * NewSeries(off).Median / math.Sqrt(float64(len(off)))
}

// Spread is the row's lowest and highest value as text.
func (s Series) Spread() string { return fmt.Sprintf("%.3f … %.3f", s.Low, s.High) }
