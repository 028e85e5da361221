package bench

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// SendReport is what Send measured. The JSON names are stable. Sent = Acked + all Errors; they count messages that were sent
// (or, with a rate, due) within the measured part.
type SendReport struct {
	Label  string   `json:"label,omitempty"`
	Addrs  []string `json:"addrs"`
	Topic  string   `json:"topic"`
	Size   int      `json:"size"`
	Conns  int      `json:"conns"`
	Depth  int      `json:"depth"`
	Rate   float64  `json:"rate"` // as asked for; 0: as fast as it goes
	NoWait bool     `json:"no_wait"`

	Seconds    float64          `json:"seconds"` // of the measured part
	Sent       int64            `json:"sent"`
	Acked      int64            `json:"acked"`                 // answered SUCCESS
	Errors     map[string]int64 `json:"errors"`                // by response code name, or one of ConnectionLost, NoAnswer, NotSent
	FirstError string           `json:"first_error,omitempty"` // remark or network error of the first one
	Throughput float64          `json:"throughput"`            // SUCCESS answers per second
	MBps       float64          `json:"mb_per_s"`              // their bodies, in 10^6 bytes
	RoundTrip  Latency          `json:"round_trip_us"`         // of acknowledged messages, from when they were sent (or due)
	Late       *Latency         `json:"late_us,omitempty"`     // with a rate: how much after its time a message was written
	Curve      []CurvePoint     `json:"curve,omitempty"`       // the same round trips, for drawing
	Course     []Stretch        `json:"course,omitempty"`      // if asked for: the same by the time at which they ended

	GeneratorNs float64         `json:"generator_ns_per_message"` // processor time of this process per answered message
	Processes   []ProcessReport `json:"processes,omitempty"`
}

// Names in SendReport.Errors that no broker gives.
const (
	ConnectionLost = "CONNECTION_LOST" // the connection broke before the answer came
	NoAnswer       = "NO_ANSWER"       // not answered when the run ended
	NotSent        = "NOT_SENT"        // due, but Depth messages were in flight until the end of the drain
)

// Latency is a distribution in microseconds.
type Latency struct {
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	P9999 float64 `json:"p99_99"`
	Max   float64 `json:"max"`
}

// Histograms hold nanoseconds, from 1 µs up to a minute, with three digits.
const (
	histLow    = 1000
	histHigh   = int64(time.Minute)
	histDigits = 3
)

func newHistogram() *hdr.Histogram { return hdr.New(histLow, histHigh, histDigits) }

// record takes any duration: what the histogram cannot hold counts as its end.
func record(h *hdr.Histogram, ns int64) { recordMany(h, ns, 1) }

func recordMany(h *hdr.Histogram, ns, n int64) {
	_ = h.RecordValues(min(max(ns, histLow), histHigh), n) // in range, so that it cannot fail
}

func latencyOf(h *hdr.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	us := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	return Latency{
		Mean: h.Mean() / 1e3, P50: us(50), P90: us(90), P99: us(99), P999: us(99.9), P9999: us(99.99), Max: float64(h.Max()) / 1e3,
	}
}

// CurvePoint is a point of a percentile curve.
type CurvePoint struct {
	Percentile float64 `json:"percentile"` // below 100
	Micros     float64 `json:"us"`
}

// curvePercentiles are what a curve is drawn through.
var curvePercentiles = [...]float64{0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99, 99.999}

// curveOf leaves out what the values are too few to tell.
func curveOf(h *hdr.Histogram) []CurvePoint {
	var out []CurvePoint
	for _, p := range curvePercentiles {
		if float64(h.TotalCount())*(100-p) < 99.99 { // 100, but for rounding
			break
		}
		out = append(out, CurvePoint{p, float64(h.ValueAtQuantile(p)) / 1e3})
	}
	return out
}
