package bench

import (
	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"tandem/codec"
)

// window is the measured part of a run, in nanoseconds since its start.
type window struct{ from, to int64 }

func (w window) has(t int64) bool { return t >= w.from && t < w.to }

// recorder collects one connection's answers. It belongs to the goroutine that reads them.
type recorder struct {
	window
	sent, acked, inTime int64 // inTime: SUCCESS answers that came within the window
	errors              map[string]int64
	firstError          string
	trips               *hdr.Histogram
	course              *course // of the run; nil unless asked for
	stretch             stretch // not yet added to it
}

func newRecorder(w window, c *course) *recorder {
	return &recorder{window: w, errors: map[string]int64{}, trips: newHistogram(), course: c}
}

// batch is a number of messages that were sent (or due) at the same time and answered by one read.
type batch struct{ sent, n int64 }

// refused takes a reply that does not say SUCCESS, to a message sent (or due) at sent.
func (r *recorder) refused(v *codec.View, sent int64) {
	r.fail(sent, codec.CodeName(v.Code), v.Remark())
}

// success takes a SUCCESS reply that came at now.
func (r *recorder) success(sent, now int64) { r.successes(batch{sent, 1}, now) }

// successes takes the SUCCESS replies that came at now; there may be none.
func (r *recorder) successes(b batch, now int64) {
	if b.n == 0 {
		return
	}
	if r.has(now) {
		r.inTime += b.n
	}
	if !r.has(b.sent) {
		return
	}
	r.sent += b.n
	r.acked += b.n
	recordMany(r.trips, now-b.sent, b.n)
	if r.course != nil {
		r.inCourse(now-r.from, now-b.sent, b.n)
	}
}

// inCourse notes n round trips that ended so long after the window's begin.
func (r *recorder) inCourse(at, trip, n int64) {
	if at /= r.course.every; at != r.stretch.n || r.stretch.trips == nil {
		r.course.add(r)
		r.stretch = stretch{n: at, trips: newCourseHistogram()}
	}
	recordMany(r.stretch.trips, trip, n)
}

// fail counts a message that was sent (or due) at sent and will get no answer.
func (r *recorder) fail(sent int64, name, why string) {
	if r.firstError == "" {
		r.firstError = name + ": " + why
	}
	if r.has(sent) {
		r.sent++
		r.errors[name]++
	}
}

// failMany counts n messages that were due within the window and were never sent.
func (r *recorder) failMany(n int64, name, why string) {
	if n == 0 {
		return
	}
	if r.firstError == "" {
		r.firstError = name + ": " + why
	}
	r.sent += n
	r.errors[name] += n
}

// merge adds o's counts to r's.
func (r *recorder) merge(o *recorder) {
	r.sent += o.sent
	r.acked += o.acked
	r.inTime += o.inTime
	for name, n := range o.errors {
		r.errors[name] += n
	}
	if r.firstError == "" {
		r.firstError = o.firstError
	}
	r.trips.Merge(o.trips)
}
