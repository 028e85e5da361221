package interop

import (
	"fmt"
	"hash/crc32"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// ledger knows the checksum of every message that was tried and which of them were acknowledged with Success.
type ledger struct {
	mu    sync.Mutex
	tried map[string]uint32
	acked map[string]bool
	codes map[codec.ResponseCode]int // answers by code; -1: none
}

func newLedger() *ledger {
	return &ledger{tried: map[string]uint32{}, acked: map[string]bool{}, codes: map[codec.ResponseCode]int{}}
}

func (l *ledger) trying(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried[m.ID] = crc32.ChecksumIEEE(m.Body)
}

func (l *ledger) answered(m message, s sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	code := s.Code
	if s.Err != nil {
		code = -1
	}
	l.codes[code]++
	if code == codec.Success {
		l.acked[m.ID] = true
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// send sends one message and books it.
func (l *ledger) send(w *wire, addr string, m message) sent {
	l.trying(m)
	s := w.send(addr, m)
	l.answered(m, s)
	return s
}

// check holds what was read against the ledger: every acknowledged message is there exactly as sent, none twice in the log, and
// nothing that was never sent. It returns the first few violations.
func (l *ledger) check(read []got) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := map[string]int{}
	for _, m := range read {
		sum, known := l.tried[m.ID]
		if !known {
			return fmt.Errorf("message %q at %d was never sent", m.ID, m.LogOffset)
		}
		if sum != m.Sum {
			return fmt.Errorf("message %q at %d has another body than was sent", m.ID, m.LogOffset)
		}
		times[m.ID]++
		if times[m.ID] > 1 {
			return fmt.Errorf("message %q is there %d times", m.ID, times[m.ID])
		}
	}
	var missing []string
	for id := range l.acked {
		if times[id] == 0 {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d acknowledged messages are gone: %.200q", len(missing), len(l.acked), missing)
	}
	return nil
}

// drain reads every message of a topic's queues from one broker, checking that queue offsets have no hole.
func drain(w *wire, addr, topic string, queues int) ([]got, error) {
	var all []got
	for q := range queues {
		part, err := drainQueue(w, addr, topic, q)
		if err != nil {
			return nil, fmt.Errorf("%s queue %d at %s: %w", topic, q, addr, err)
		}
		all = append(all, part...)
	}
	return all, nil
}

func drainQueue(w *wire, addr, topic string, queue int) ([]got, error) {
	next, err := w.offset(addr, codec.ReqGetMinOffset, topic, queue)
	if err != nil {
		return nil, err
	}
	end, err := w.offset(addr, codec.ReqGetMaxOffset, topic, queue)
	if err != nil {
		return nil, err
	}
	var all []got
	for idle := 0; next < end; {
		p, err := w.pull(addr, "interop-drain", topic, queue, next, 0)
		if err != nil {
			return nil, err
		}
		for i, m := range p.Messages {
			if m.QueueOffset != next+int64(i) {
				return nil, fmt.Errorf("offset %d delivered where %d was due", m.QueueOffset, next+int64(i))
			}
		}
		all, next = append(all, p.Messages...), next+int64(len(p.Messages))
		if len(p.Messages) == 0 {
			if idle++; idle > 100 {
				return nil, fmt.Errorf("stuck at %d of %d: %s %s", next, end, codec.CodeName(p.Code), p.Remark)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return all, nil
}

// requireDrained waits until the broker delivers all that the ledger holds.
func requireDrained(t testing.TB, w *wire, l *ledger, addr, topic string, queues int) {
	t.Helper()
	var last error
	defer func() {
		if last != nil {
			t.Logf("last look at %s: %v", addr, last)
		}
	}()
	eventually(t, patience, func() bool {
		read, err := drain(w, addr, topic, queues)
		if err == nil {
			err = l.check(read)
		}
		last = err
		return err == nil
	}, "all acknowledged messages of %s delivered by %s", topic, addr)
}

func newRand(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }

// body is n reproducible bytes that no compression could shorten.
func body(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// fill sends count messages of up to maxSize bytes over the topic's queues, all of which must be acknowledged.
func fill(t testing.TB, w *wire, l *ledger, addr, topic string, queues, count, maxSize int) {
	t.Helper()
	load := startLoad(w, l, addr, topic, loadOptions{queues: queues, senders: 8, count: count, sizes: func(r *rand.Rand) int { return 1 + r.Intn(maxSize) }})
	load.wait()
	require.Empty(t, load.refused(), "sends that were not acknowledged")
}

// loadOptions describe a load: senders that each send one message after the other.
type loadOptions struct {
	queues  int
	senders int
	count   int // messages in all; 0: until stop
	sizes   func(*rand.Rand) int
}

// load is a running load. Senders go on after errors, with a short pause after one without an answer.
type load struct {
	quit    chan struct{}
	senders sync.WaitGroup
	mu      sync.Mutex
	bad     []string
}

var loadNumber atomic.Int64

func startLoad(w *wire, l *ledger, addr, topic string, o loadOptions) *load {
	run := &load{quit: make(chan struct{})}
	number := loadNumber.Add(1)
	var next atomic.Int64
	for s := range o.senders {
		r := newRand(number<<20 + int64(s))
		run.senders.Go(func() {
			for !run.stopped() {
				n := next.Add(1)
				if o.count > 0 && n > int64(o.count) {
					return
				}
				m := message{Topic: topic, Queue: int(n) % o.queues, ID: fmt.Sprintf("L%d-%d", number, n), Body: body(r, o.sizes(r))}
				run.book(m, l.send(w, addr, m))
			}
		})
	}
	return run
}

func (run *load) stopped() bool {
	select {
	case <-run.quit:
		return true
	default:
		return false
	}
}

func (run *load) book(m message, s sent) {
	if s.Err == nil && s.Code == codec.Success {
		return
	}
	run.mu.Lock()
	if len(run.bad) < 10 {
		run.bad = append(run.bad, m.ID+": "+s.String())
	}
	run.mu.Unlock()
	if s.Err != nil {
		select { // the broker is down: no need to knock a thousand times a second
		case <-run.quit:
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (run *load) wait() { run.senders.Wait() }

func (run *load) stop() {
	close(run.quit)
	run.senders.Wait()
}

// refused is the first few sends that were answered otherwise than Success, or not at all.
func (run *load) refused() []string {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.bad
}
