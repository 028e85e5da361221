package broker

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// rates keeps samples of the counters, so that rates over the last 10, 60 and 600 seconds can be told.
type rates struct {
	mu      sync.Mutex
	samples []sample // oldest first, one each rateStep, as far back as the longest span
}

type sample struct {
	at    time.Time
	put   int64
	pulls int64
}

const rateStep = 10 * time.Second

var rateSpans = [...]time.Duration{10 * time.Second, 60 * time.Second, 600 * time.Second}

// take adds a sample if it is time for one.
func (r *rates) take(now time.Time, c *counters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.samples); n > 0 && now.Sub(r.samples[n-1].at) < rateStep {
		return
	}
	r.samples = append(r.samples, sample{now, c.put.Load(), c.pulls.Load()})
	if longest := int(rateSpans[len(rateSpans)-1]/rateStep) + 1; len(r.samples) > longest {
		r.samples = append(r.samples[:0], r.samples[len(r.samples)-longest:]...)
	}
}

// text is the rate of one counter per second over each span, as RocketMQ's tools read it.
func (r *rates) text(of func(sample) int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]string, len(rateSpans))
	for i, span := range rateSpans {
		out[i] = strconv.FormatFloat(r.over(span, of), 'f', 2, 64)
	}
	return strings.Join(out, " ")
}

func (r *rates) over(span time.Duration, of func(sample) int64) float64 {
	if len(r.samples) < 2 {
		return 0
	}
	last := r.samples[len(r.samples)-1]
	first := last
	for i := len(r.samples) - 2; i >= 0 && last.at.Sub(r.samples[i].at) <= span+rateStep/2; i-- {
		first = r.samples[i]
	}
	if first.at.Equal(last.at) {
		first = r.samples[len(r.samples)-2]
	}
	return float64(of(last)-of(first)) / last.at.Sub(first.at).Seconds()
}
