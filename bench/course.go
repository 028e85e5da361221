package bench

import (
	"maps"
	"slices"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Stretch is one piece of a run: what was acknowledged in it.
type Stretch struct {
	Second     float64 `json:"second"` // its begin, from that of the measured part
	Acked      int64   `json:"acked"`
	Throughput float64 `json:"throughput"`
	P50        float64 `json:"p50"` // µs
	P99        float64 `json:"p99"`
	P999       float64 `json:"p99_9"`
	Max        float64 `json:"max"`
}

// course cuts a run into stretches of equal length. Recorders add their parts of a stretch when they are past it.
type course struct {
	every int64 // ns

	mu    sync.Mutex
	parts map[int64]*hdr.Histogram
}

// stretch is a recorder's part of one stretch.
type stretch struct {
	n     int64
	trips *hdr.Histogram
}

// newCourseHistogram has two digits, a tenth of what three take: there are many.
func newCourseHistogram() *hdr.Histogram { return hdr.New(histLow, histHigh, 2) }

// add takes over what r has noted since the last time.
func (c *course) add(r *recorder) {
	s := r.stretch
	r.stretch = stretch{}
	if s.trips == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts == nil {
		c.parts = map[int64]*hdr.Histogram{}
	}
	if all, ok := c.parts[s.n]; ok {
		all.Merge(s.trips)
		return
	}
	c.parts[s.n] = s.trips
}

// report lists the stretches in order, those without any answer included.
func (c *course) report() []Stretch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parts) == 0 {
		return nil
	}
	length := time.Duration(c.every).Seconds()
	out := make([]Stretch, 1+slices.Max(slices.Collect(maps.Keys(c.parts))))
	for n := range out {
		out[n].Second = float64(n) * length
		if h, ok := c.parts[int64(n)]; ok {
			l := latencyOf(h)
			out[n].Acked = h.TotalCount()
			out[n].Throughput = float64(h.TotalCount()) / length
			out[n].P50, out[n].P99, out[n].P999, out[n].Max = l.P50, l.P99, l.P999, l.Max
		}
	}
	return out
}
