package transfer

import (
	"math/bits"
	"sync/atomic"
	"time"

	"tandem/codec"
)

// A wait's bucket is its microseconds' power of two, cut into subBuckets equal parts: within 1/16 of the value. The last
// bucket takes all above about a minute.
const (
	subBits    = 4
	subBuckets = 1 << subBits
	buckets    = 24 * subBuckets
	generation = int64(time.Minute)
)

// waitHistogram counts waits in two generations of a minute, so that what it tells is of the last one to two minutes.
// The ring's drain is its only writer; anybody may read, and may miss what is being written.
type waitHistogram struct {
	current atomic.Uint32
	parts   [2]waitPart
}

type waitPart struct {
	since  atomic.Int64
	failed atomic.Int64
	max    atomic.Int64
	counts [buckets]atomic.Int64
}

func (p *waitPart) reset(now int64) {
	for i := range p.counts {
		p.counts[i].Store(0)
	}
	p.failed.Store(0)
	p.max.Store(0)
	p.since.Store(now)
}

func (h *waitHistogram) reset(now int64) {
	h.parts[0].reset(now)
	h.parts[1].reset(now)
}

// add counts n waits of the same length that ended at now.
func (h *waitHistogram) add(wait, n, failed, now int64) {
	part := &h.parts[h.current.Load()]
	if now-part.since.Load() >= generation {
		next := 1 - h.current.Load()
		part = &h.parts[next]
		part.reset(now)
		h.current.Store(next)
	}
	us := max(wait/int64(time.Microsecond), 0)
	part.counts[bucketOf(us)].Add(n)
	part.failed.Add(failed)
	if us > part.max.Load() {
		part.max.Store(us)
	}
}

func bucketOf(us int64) int {
	if us < subBuckets {
		return int(us)
	}
	shift := bits.Len64(uint64(us)) - subBits - 1
	return min((shift+1)*subBuckets+int(us>>shift)-subBuckets, buckets-1)
}

// valueOf is the highest value of a bucket.
func valueOf(bucket int) int64 {
	if bucket < subBuckets {
		return int64(bucket)
	}
	shift := bucket/subBuckets - 1
	return (int64(bucket%subBuckets+subBuckets)+1)<<shift - 1
}

// stats sums both generations up.
func (h *waitHistogram) stats() WaitStats {
	var sum [buckets]int64
	var s WaitStats
	for i := range h.parts {
		part := &h.parts[i]
		for b := range sum {
			n := part.counts[b].Load()
			sum[b] += n
			s.Count += n
		}
		s.Failed += part.failed.Load()
		s.MaxUs = max(s.MaxUs, part.max.Load())
	}
	s.SinceMs = min(h.parts[0].since.Load(), h.parts[1].since.Load()) / int64(time.Millisecond)
	s.P50Us = percentile(&sum, s.Count, 50, 100, s.MaxUs)
	s.P90Us = percentile(&sum, s.Count, 90, 100, s.MaxUs)
	s.P99Us = percentile(&sum, s.Count, 99, 100, s.MaxUs)
	s.P999Us = percentile(&sum, s.Count, 999, 1000, s.MaxUs)
	return s
}

// percentile is the value that num of den waits do not exceed.
func percentile(sum *[buckets]int64, count, num, den, highest int64) int64 {
	if count == 0 {
		return 0
	}
	left := (count*num + den - 1) / den
	for b, n := range sum {
		if left -= n; left <= 0 {
			return min(valueOf(b), highest)
		}
	}
	return highest
}

// waitRun joins tickets that were reserved together into one entry, and looks at the clock once per drain.
type waitRun struct {
	ring      *Ring
	any       bool
	now       int64
	put       int64
	n, failed int64
}

func (w *waitRun) add(put int64, code codec.ResponseCode) {
	if !w.any {
		w.any, w.now, w.put = true, w.ring.now(), put
	} else if put != w.put {
		w.flush()
		w.put = put
	}
	w.n++
	if code != codec.Success {
		w.failed++
	}
}

func (w *waitRun) flush() {
	if w.n > 0 {
		w.ring.waits.add(w.now-w.put, w.n, w.failed, w.now)
		w.n, w.failed = 0, 0
	}
}
