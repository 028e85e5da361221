package transfer

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

func TestRingRefusesWhatHasNoRoomAndTakesItAgainLater(t *testing.T) {
	var replicated atomic.Int64
	r := NewRing(3) // four places
	r.Configure(RingConfig{Replicated: replicated.Load})
	require.Equal(t, 4, r.Size())
	require.False(t, r.Reserve(5))
	require.True(t, r.Reserve(4))
	require.False(t, r.Reserve(1))
	r.Cancel(2)
	require.True(t, r.Reserve(1))

	waiters := make([]*answer, 3)
	for i := range waiters {
		waiters[i] = newAnswer()
		r.Put(int64(i*10), int64(i*10+10), false, true, waiters[i])
	}
	require.Equal(t, 3, r.Waiting())
	replicated.Store(25)
	r.Advance()
	require.Equal(t, []bool{true, true, false}, []bool{waiters[0].done(), waiters[1].done(), waiters[2].done()})
	require.True(t, r.Reserve(3))
	require.False(t, r.Reserve(1))
}

func TestRingPanicsOnATicketWithoutAPlace(t *testing.T) {
	r := NewRing(1)
	require.True(t, r.Reserve(1))
	r.Put(0, 1, false, true, newAnswer())
	require.Panics(t, func() { r.Put(1, 2, false, true, newAnswer()) })
}

func TestRingTellsOnceAfterEachDrain(t *testing.T) {
	r := NewRing(8)
	var replicated atomic.Int64
	r.Configure(RingConfig{Replicated: replicated.Load})
	drains := 0
	visible := int64(-1)
	r.OnDrained(func() {
		drains++
		visible = r.Visible(30)
	})
	require.True(t, r.Reserve(3))
	for i := range int64(3) {
		r.Put(i*10, i*10+10, false, true, newAnswer())
	}
	r.Advance()
	require.Zero(t, drains)
	replicated.Store(20)
	r.Advance()
	require.Equal(t, 1, drains)
	require.EqualValues(t, 20, visible, "what was answered is visible when the drain is told")
}

func TestRingAllocatesNothing(t *testing.T) {
	r := NewRing(64)
	var replicated atomic.Int64
	r.Configure(RingConfig{Replicated: replicated.Load})
	w := newAnswer()
	end := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Reserve(2)
		r.Put(end, end+10, false, true, w)
		r.Put(end+10, end+20, true, true, w)
		end += 20
		r.Visible(end)
		r.Expire(0)
		replicated.Store(end)
		r.Advance()
	}))
	require.Zero(t, r.Waiting())
}

// TestRingAgainstItsPlainTwin compares with a list that is searched from the front.
func TestRingAgainstItsPlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now, looked, flushed, replicated, end int64 // looked: when the clocks were last looked at
		r := NewRing(4)
		r.Configure(RingConfig{
			Flushed: func() int64 { return flushed }, Replicated: func() int64 { return replicated },
			SlaveTimeout: 20, SyncFlushTimeout: time.Duration(rapid.Int64Range(5, 40).Draw(t, "flush timeout")),
			Now: func() int64 { return now },
		})
		type twin struct {
			start, end, put int64
			flush, replica  bool
			w               *answer
		}
		var list []twin
		drain := func() {
			for len(list) > 0 {
				k := list[0]
				noFlush, noReplica := k.flush && flushed < k.end, k.replica && replicated < k.end
				want := codec.Success
				flushLate := noFlush && looked-k.put >= r.flushNs
				slaveLate := noReplica && looked-k.put >= 20
				switch {
				case !noFlush && !noReplica:
				case slaveLate && (!flushLate || r.flushNs >= 20):
					want = codec.FlushSlaveTimeout
				case flushLate:
					want = codec.FlushDiskTimeout
				default:
					require.False(t, k.w.done())
					return
				}
				require.EqualValues(t, 1, k.w.count.Load())
				require.EqualValues(t, want, k.w.code.Load())
				list = list[1:]
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				if ok := r.Reserve(1); !ok {
					require.Len(t, list, 4)
					return
				}
				size := rapid.Int64Range(1, 9).Draw(t, "size")
				k := twin{end, end + size, now, rapid.Bool().Draw(t, "flush"), rapid.Bool().Draw(t, "replica"), newAnswer()}
				r.Put(k.start, k.end, k.flush, k.replica, k.w)
				end = k.end
				list = append(list, k)
			},
			"replicated": func(t *rapid.T) {
				replicated = rapid.Int64Range(replicated, end).Draw(t, "to")
				r.Advance()
				drain()
			},
			"flushed": func(t *rapid.T) {
				flushed = rapid.Int64Range(flushed, end).Draw(t, "to")
				r.Advance()
				drain()
			},
			"clock": func(t *rapid.T) {
				now += rapid.Int64Range(0, 15).Draw(t, "by")
				looked = now
				r.expireAt(now)
				drain()
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(list), r.Waiting())
				want := end
				if len(list) > 0 {
					want = list[0].start
				}
				require.Equal(t, want, r.Visible(end))
			},
		})
	})
}

// raceWaiter knows its place in the row, and that it comes once.
type raceWaiter struct {
	next *atomic.Int64
	n    int64
	bad  *atomic.Int64
}

func (w *raceWaiter) Done(codec.ResponseCode) {
	if !w.next.CompareAndSwap(w.n, w.n+1) {
		w.bad.Add(1)
	}
}

func TestRingUnderManyGoroutines(t *testing.T) {
	const tickets = 20000
	var written, flushed, replicated, next, bad atomic.Int64
	r := NewRing(256)
	r.Configure(RingConfig{Flushed: flushed.Load, Replicated: replicated.Load})
	var section sync.Mutex // the append's
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(tickets)
	put := int64(0)

	for range 3 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				for !r.Reserve(1) {
					time.Sleep(10 * time.Microsecond)
				}
				section.Lock()
				r.Put(put, put+1, put%3 != 0, put%5 != 0, &raceWaiter{&next, put, &bad})
				put++
				written.Store(put)
				section.Unlock()
				r.Advance() // a ticket that waits for nothing
			}
		})
	}
	for _, watermark := range []*atomic.Int64{&flushed, &replicated, &replicated} {
		wg.Go(func() {
			for watermark.Load() < tickets {
				to := written.Load()
				if old := watermark.Load(); to > old {
					watermark.CompareAndSwap(old, old+1+rand.Int64N(to-old))
				}
				r.Advance()
			}
			r.Advance()
		})
	}
	wg.Go(func() {
		for next.Load() < tickets {
			end := written.Load()
			visible := r.Visible(end)
			if done := next.Load(); visible > done {
				bad.Add(1)
			}
			r.oldest()
			time.Sleep(time.Microsecond)
		}
	})
	wg.Wait()
	require.Zero(t, bad.Load())
	require.EqualValues(t, tickets, next.Load())
	require.Zero(t, r.Waiting())
	require.Zero(t, r.held.Load())
	require.EqualValues(t, tickets, r.waits.stats().Count)
}

func TestWaitPercentilesAreCloseToTheWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(0, 60_000_000).Draw(t, "us")
		value := valueOf(bucketOf(us))
		require.GreaterOrEqual(t, value, us)
		require.LessOrEqual(t, value, us+us/subBuckets+1)
	})
	var h waitHistogram
	h.reset(0)
	for us := range int64(1000) {
		h.add(us*1000, 1, us%2, 5)
	}
	s := h.stats()
	require.EqualValues(t, 1000, s.Count)
	require.EqualValues(t, 500, s.Failed)
	require.InDelta(t, 500, s.P50Us, 40)
	require.InDelta(t, 990, s.P99Us, 70)
	require.EqualValues(t, 999, s.MaxUs)
	h.add(1000, 1, 0, generation+6)
	require.EqualValues(t, 1001, h.stats().Count)
	h.add(1000, 1, 0, 2*generation+7)
	require.EqualValues(t, 2, h.stats().Count, "what is older than two minutes is forgotten")
}

// BenchmarkRing puts tickets and acknowledges them in steps.
func BenchmarkRing(b *testing.B) {
	for _, step := range []int64{1, 10, 100, 1000, 10000} {
		b.Run("step="+time.Duration(step).String(), func(b *testing.B) {
			var replicated atomic.Int64
			r := NewRing(16384)
			r.Configure(RingConfig{Replicated: replicated.Load})
			w := newAnswer()
			b.ReportAllocs()
			for n := int64(0); n < int64(b.N); n += step {
				if !r.Reserve(int(step)) {
					b.Fatal("full")
				}
				for i := range step {
					r.Put(n+i, n+i+1, false, true, w)
				}
				replicated.Store(n + step)
				r.Advance()
			}
		})
	}
}

// BenchmarkRingProducers has several goroutines put tickets in turns and another one acknowledge.
func BenchmarkRingProducers(b *testing.B) {
	for _, producers := range []int{1, 2, 4} {
		b.Run(string(rune('0'+producers)), func(b *testing.B) {
			var replicated, written, left atomic.Int64
			r := NewRing(65536)
			r.Configure(RingConfig{Replicated: replicated.Load})
			w := newAnswer()
			left.Store(int64(b.N))
			var section sync.Mutex
			var wg sync.WaitGroup
			put := int64(0)
			for range producers {
				wg.Go(func() {
					for left.Add(-32) > -32 {
						for !r.Reserve(32) {
							time.Sleep(time.Microsecond)
						}
						section.Lock()
						for range 32 {
							r.Put(put, put+1, false, true, w)
							put++
						}
						written.Store(put)
						section.Unlock()
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for {
				replicated.Store(written.Load())
				r.Advance()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
}
