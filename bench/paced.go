package bench

import (
	"context"
	"sort"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// DefaultTick is the grid of a schedule's times. Messages of the same tick are due at the same time and leave in one write, as they do
// from an application that sends in small bursts. A generator that woke for each alone would take a good part of the machine that it
// measures: in a virtual machine, to sleep and be woken costs 20 to 40 µs of processor time.
const DefaultTick = 500 * time.Microsecond

// pace is the schedule of a run at a fixed rate, made before anything is sent: message n is due at the begin of the tick in which its
// place at an even rate lies, and at that place itself if the rate is slower than the ticks. However late it is written, and whatever
// happened before, its round trip counts from then.
type pace struct {
	interval float64 // ns
	tick     int64   // ns
	next     int64   // number of the next message
	burst    int64   // number of different times so far
	late     *hdr.Histogram
}

// never is later than any run ends, in ns since its start.
const never = 1 << 62

func newPace(rate float64, tick time.Duration) *pace {
	return &pace{interval: min(1e9/rate, never), tick: int64(tick), late: newHistogram()}
}

// due is when the next message is to be written, in ns since the start; at least 1.
func (p *pace) due() int64 { return p.dueOf(p.next) }

func (p *pace) dueOf(n int64) int64 {
	at := int64(min(float64(n)*p.interval, never))
	if p.interval < float64(p.tick) {
		at -= at % p.tick
	}
	return 1 + at
}

// written goes on to the next message; this one was written at now.
func (p *pace) written(w window, now int64) {
	due := p.due()
	if w.has(due) {
		record(p.late, now-due)
	}
	p.next++
	if p.due() != due {
		p.burst++
	}
}

// unsent counts the messages that were due but could not be written before the run's end.
func (p *pace) unsent(ctx context.Context, r *run, rec *recorder) {
	if ctx.Err() != nil || r.Messages > 0 || r.stopped() {
		return
	}
	if end := p.first(r.to); end > p.next {
		begin := min(end, max(p.next, p.first(r.from)))
		rec.failMany(end-begin, NotSent, "the broker was too slow for the rate and the depth")
		p.next = end
	}
}

// first is the number of the first message that is due at t, in ns since the start, or later.
func (p *pace) first(t int64) int64 {
	most := int((float64(t)+float64(p.tick))/p.interval) + 2
	return int64(sort.Search(most, func(n int) bool { return p.dueOf(int64(n)) >= t }))
}
