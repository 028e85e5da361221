package transfer

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// The explorer runs the ring's own code as coroutines that stop after each atomic operation, and tries every order in
// which they can go on. It repeats a run from its start for each order (there is no way to copy a coroutine), and gives
// an order up when it reaches a state already seen: the ring's memory, and for each thread the row of points it passed
// with the values it saw there, which is all its local state can depend on.

type thread struct {
	name  string
	ready func() bool // may begin; nil is always
	body  func()

	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	begun  bool
	ended  bool
	passed digest
}

// digest stands for a row of numbers: two hashes, so that two rows are taken for one with a chance of one in 2^128 only.
type digest [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (d digest) with(point string, numbers ...int64) digest {
	b := make([]byte, 0, 512)
	b = binary.LittleEndian.AppendUint64(b, d[0])
	b = binary.LittleEndian.AppendUint64(b, d[1])
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = append(b, point...)
	return digest{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}

type abandoned struct{}

// world is one run: fresh memory, fresh threads.
type world struct {
	t       *testing.T
	ring    *Ring
	threads []*thread
	current *thread

	written    int64 // the log's end, moved after the tickets were put
	flushed    int64
	replicated int64
	now        int64
	tickets    []*modelTicket
	verdict    func()
}

type modelTicket struct {
	w          *world
	start, end int64
	needs      uint8
	code       codec.ResponseCode
	done       int
}

// Done checks each promise at the moment of the answer.
func (k *modelTicket) Done(code codec.ResponseCode) {
	k.done++
	k.code = code
	k.w.must(k.done == 1, "answered twice")
	for _, other := range k.w.tickets {
		k.w.must(other.start >= k.start || other.done == 1, "answered before an older one")
	}
	if code == codec.Success {
		k.w.must(k.needs&needsFlush == 0 || k.w.flushed >= k.end, "answered before the flush")
		k.w.must(k.needs&needsReplica == 0 || k.w.replicated >= k.end, "answered before the replica")
	}
}

func newWorld(t *testing.T, size int) *world {
	w := &world{t: t, ring: NewRing(size)}
	w.ring.Configure(RingConfig{
		Flushed:          func() int64 { return w.flushed },
		Replicated:       func() int64 { return w.replicated },
		SlaveTimeout:     10,
		SyncFlushTimeout: 10,
		Now:              func() int64 { return w.now },
	})
	w.ring.probe = w.step
	return w
}

// step is where a thread stops.
func (w *world) step(point string, seen int64) {
	if w.current == nil {
		return // outside a run: set-up and verdict
	}
	me := w.current
	me.passed = me.passed.with(point, seen)
	if !me.yield(struct{}{}) {
		panic(abandoned{})
	}
}

func (w *world) thread(name string, ready func() bool, body func()) {
	th := &thread{name: name, ready: ready, body: body}
	th.next, th.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(abandoned); !ok {
					panic(r)
				}
			}
		}()
		th.yield = yield
		th.body()
	})
	w.threads = append(w.threads, th)
}

func (w *world) enabled() []*thread {
	var all []*thread
	for _, th := range w.threads {
		if !th.ended && (th.begun || th.ready == nil || th.ready()) {
			all = append(all, th)
		}
	}
	return all
}

func (w *world) run(th *thread) {
	w.current, th.begun = th, true
	if _, more := th.next(); !more {
		th.ended = true
	}
	w.current = nil
}

func (w *world) key() digest {
	r := w.ring
	numbers := append(make([]int64, 0, 64), int64(r.head.Load()), int64(r.tail.Load()), int64(r.state.Load()), r.expire.Load(),
		r.held.Load(), r.clock.Load(), w.written, w.flushed, w.replicated)
	for i := range r.slots {
		s := &r.slots[i]
		numbers = append(numbers, s.start.Load(), s.end, flag01(s.waiter != nil))
	}
	for _, k := range w.tickets {
		numbers = append(numbers, int64(k.done))
	}
	for _, th := range w.threads {
		numbers = append(numbers, flag01(th.begun), flag01(th.ended), int64(th.passed[0]), int64(th.passed[1]))
	}
	return digest{}.with("", numbers...)
}

func flag01(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// explore tries every order. It returns how many runs and how many different states that were.
func explore(t *testing.T, build func() *world) (runs, states int) {
	seen := make(map[digest]bool)
	var path []int   // the choices of this run
	var widths []int // how many there were at each
	for {
		runs++
		w := build()
		for depth := 0; ; depth++ {
			enabled := w.enabled()
			if len(enabled) == 0 {
				w.verdict()
				break
			}
			if depth == len(path) {
				if key := w.key(); seen[key] {
					break
				} else {
					seen[key] = true
				}
				path, widths = append(path, 0), append(widths, len(enabled))
			}
			w.run(enabled[path[depth]])
			if depth == 2000 {
				require.Fail(t, "a thread does not come to an end")
			}
		}
		for _, th := range w.threads {
			th.stop()
		}
		for len(path) > 0 && path[len(path)-1]+1 == widths[len(path)-1] {
			path, widths = path[:len(path)-1], widths[:len(widths)-1]
		}
		if len(path) == 0 {
			return runs, len(seen)
		}
		path[len(path)-1]++
	}
}

// produce puts n tickets of 10 bytes each, one append after the other, as a loop does.
func (w *world) produce(n int, needs uint8) func() {
	return func() {
		for range n {
			if !w.ring.Reserve(1) {
				continue
			}
			start := w.written
			k := &modelTicket{w: w, start: start, end: start + 10, needs: needs}
			w.tickets = append(w.tickets, k)
			w.ring.Put(k.start, k.end, needs&needsFlush != 0, needs&needsReplica != 0, k)
			w.written = k.end
			w.step("written", 0)
		}
	}
}

// reach moves a watermark once the log is that long, and tells the ring.
func (w *world) reach(watermark *int64, to int64) (ready func() bool, body func()) {
	return func() bool { return w.written >= to }, func() {
		*watermark = max(*watermark, to)
		w.step("moved", 0)
		w.ring.Advance()
	}
}

// look reads the visible end and checks that all below it were answered.
func (w *world) look() {
	end := w.written
	w.step("end", end)
	visible := w.ring.Visible(end)
	w.must(visible <= end, "visible beyond the end that was asked for")
	for _, k := range w.tickets {
		w.must(k.start >= visible || k.done == 1, "visible and not answered")
	}
}

// settled is the verdict of most runs: whatever the watermarks passed was answered, and no place was lost.
func (w *world) settled() {
	left := 0
	for _, k := range w.tickets {
		passed := (k.needs&needsFlush == 0 || w.flushed >= k.end) && (k.needs&needsReplica == 0 || w.replicated >= k.end)
		w.must(!passed || k.done == 1, "passed and never answered")
		if k.done == 0 {
			left++
		}
	}
	w.must(w.ring.state.Load() == drainIdle, "the drain is not given back")
	w.must(w.ring.held.Load() == int64(left) && w.ring.Waiting() == left, "a place is lost")
}

// must is require without its cost.
func (w *world) must(ok bool, promise string) {
	if !ok {
		require.Fail(w.t, promise)
	}
}

func TestEveryOrderOfTheRingsSteps(t *testing.T) {
	cases := []struct {
		name  string
		build func(w *world)
		size  int
	}{
		{"one producer, two acknowledgements of the same slave count", func(w *world) {
			w.thread("producer", nil, w.produce(2, needsReplica))
			for _, to := range []int64{10, 20} {
				ready, body := w.reach(&w.replicated, to)
				w.thread("ack", ready, body)
			}
		}, 2},
		{"flush and replica at once", func(w *world) {
			w.thread("producer", nil, w.produce(1, needsFlush|needsReplica))
			ready, body := w.reach(&w.replicated, 10)
			w.thread("ack", ready, body)
			ready, body = w.reach(&w.flushed, 10)
			w.thread("flush", ready, body)
		}, 1},
		{"three that move the watermark of one ticket to the same place", func(w *world) {
			w.thread("producer", nil, w.produce(1, needsReplica))
			for range 3 {
				ready, body := w.reach(&w.replicated, 10)
				w.thread("ack", ready, body)
			}
		}, 1},
		{"a reader between an append and its answer, places used again", func(w *world) {
			w.thread("producer", nil, w.produce(3, needsReplica))
			ready, body := w.reach(&w.replicated, 10)
			w.thread("ack", ready, body)
			w.thread("reader", nil, w.look)
		}, 2},
		{"a reader of a ring with one place", func(w *world) {
			w.thread("producer", nil, w.produce(2, needsReplica))
			for _, to := range []int64{10, 20} {
				ready, body := w.reach(&w.replicated, to)
				w.thread("ack", ready, body)
			}
			w.thread("reader", nil, w.look)
		}, 1},
		{"a clock that runs out beside an acknowledgement", func(w *world) {
			w.thread("producer", nil, w.produce(2, needsReplica))
			ready, body := w.reach(&w.replicated, 10)
			w.thread("ack", ready, body)
			w.thread("clock", func() bool { return w.written >= 10 }, func() { w.ring.expireAt(10) })
		}, 2},
	}
	if raceDetector {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			runs, states := explore(t, func() *world {
				w := newWorld(t, c.size)
				w.verdict = w.settled
				c.build(w)
				return w
			})
			t.Logf("%d runs, %d states", runs, states)
			require.Greater(t, runs, 1)
		})
	}
}
