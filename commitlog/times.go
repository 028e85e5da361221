package commitlog

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	timeSubBits = 5  // 32 steps to each doubling: a value is known to 3 %
	timeMaxBits = 40 // above 18 minutes all is one
	timeSlots   = (timeMaxBits - timeSubBits + 1) << timeSubBits
)

// timeSlot is where a time in ns is counted.
func timeSlot(ns int64) int {
	v := uint64(min(max(ns, 0), 1<<timeMaxBits-1))
	shift := max(bits.Len64(v)-timeSubBits-1, 0)
	return shift<<timeSubBits + int(v>>shift)
}

// slotTime is the largest time in ns that is counted in a slot.
func slotTime(slot int) int64 {
	shift := max(slot>>timeSubBits-1, 0)
	return int64(slot-shift<<timeSubBits+1)<<shift - 1
}

// timeCounts counts times. One goroutine at a time adds (the append lock), any may read.
type timeCounts [timeSlots]atomic.Int64

func (c *timeCounts) add(d time.Duration) { c[timeSlot(int64(d))].Add(1) }

// AppendTimes says how long append sections took: a snapshot of counts since the store was opened, or, after Sub, between two of them.
// The zero value has counted nothing. Times are rounded up, by 3 % at most.
type AppendTimes struct{ counts []int64 }

// AppendTimes tells how long the sections of [Store.Append] took so far, each from when it began to wait for the append lock until it let
// go of it. Safe from any goroutine; it allocates some 10 KiB.
func (s *Store) AppendTimes() AppendTimes {
	t := AppendTimes{make([]int64, timeSlots)}
	for i := range s.times {
		t.counts[i] = s.times[i].Load()
	}
	return t
}

// Sub is what was counted since an earlier snapshot of the same store.
func (t AppendTimes) Sub(earlier AppendTimes) AppendTimes {
	d := AppendTimes{make([]int64, len(t.counts))}
	copy(d.counts, t.counts)
	for i, n := range earlier.counts {
		d.counts[i] -= n
	}
	return d
}

// Count is the number of sections.
func (t AppendTimes) Count() (n int64) {
	for _, c := range t.counts {
		n += c
	}
	return n
}

// Quantile is the time, in ns, that a share q (0 to 1) of the sections did not exceed: 0.5 for the median, 0.9999 for p99.99, 1 for the
// longest. 0 if there were none.
func (t AppendTimes) Quantile(q float64) int64 {
	rank := max(int64(math.Ceil(q*float64(t.Count()))), 1)
	for i, c := range t.counts {
		if rank -= c; rank <= 0 {
			return slotTime(i)
		}
	}
	return 0
}

// Max is the longest time in ns.
func (t AppendTimes) Max() int64 { return t.Quantile(1) }
