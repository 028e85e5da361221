package commitlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// UnitSize is the length of a consume queue unit in its file.
const UnitSize = 20

// fillerSize is the record size in the units that pad a queue which begins above 0 (Apache class ConsumeQueue).
const fillerSize = math.MaxInt32

// Unit is one entry of a consume queue.
type Unit struct {
	Offset   int64 // of the record in the log
	Size     int32 // of the record
	TagsCode int64 // hash of the tag; delivery time in ms for delayed messages
}

// Filler tells units that stand for a number without a message.
func (u Unit) Filler() bool { return u.Size == fillerSize && u.Offset == 0 }

func (u Unit) valid() bool { return u.Offset >= 0 && u.Size > 0 }

func (u *Unit) decode(b []byte) {
	u.Offset = int64(binary.BigEndian.Uint64(b))
	u.Size = int32(binary.BigEndian.Uint32(b[8:]))
	u.TagsCode = int64(binary.BigEndian.Uint64(b[12:]))
}

func (u Unit) append(b []byte) []byte {
	at := len(b)
	b = slices.Grow(b, UnitSize)[:at+UnitSize]
	unit := (*[UnitSize]byte)(b[at:])
	binary.BigEndian.PutUint64(unit[:], uint64(u.Offset))
	binary.BigEndian.PutUint32(unit[8:], uint32(u.Size))
	binary.BigEndian.PutUint64(unit[12:], uint64(u.TagsCode))
	return b
}

// Queue is a handle of one topic's queue. It stays usable until the topic is deleted; after that it reads as empty.
// Methods are safe from any goroutine.
type Queue struct {
	s     *Store
	topic string
	id    int32

	next int64 // number of the next append; under the append lock
	dead atomic.Bool

	floor int64 // records below this log position are those of a deleted namesake

	min, max atomic.Int64 // first and end number held

	// The rest belongs to whoever holds the dispatch lock.
	first   int64  // number of the first file's first unit
	virgin  bool   // no file yet: the next unit decides where the queue begins
	from    int64  // number of the first pending unit
	pending []byte // units to be written
	tag     int64  // of the last pending unit
	reached int64  // during recovery: end of what the files held before
	damaged bool   // during recovery: files contradict themselves, the manifest or the log

	// During recovery, what is needed to tell a wrong number by those behind it.
	leapt       bool  // the last unit does not follow the one before it
	leapFrom    int64 // number after that one, -1 if the queue begins with the last unit
	stray       Unit  // of the last record without a place since the queue began, if any
	strayNumber int64
	stale       []int64 // first numbers of files that may hold what was taken back
}

// Topic is the queue's topic.
func (q *Queue) Topic() string { return q.topic }

// ID is the queue's number within its topic.
func (q *Queue) ID() int32 { return q.id }

// MinOffset is the first number whose message the log still holds; equal to MaxOffset if there is none.
func (q *Queue) MinOffset() int64 { return min(q.min.Load(), q.max.Load()) }

// MaxOffset is the number after the last dispatched (visible) message.
func (q *Queue) MaxOffset() int64 { return q.max.Load() }

// NextOffset is the number the next appended message will get.
func (q *Queue) NextOffset() int64 {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return q.next
}

// Deleted tells that the topic was deleted since the handle was made.
func (q *Queue) Deleted() bool { return q.dead.Load() }

func (q *Queue) units() int64    { return int64(q.s.opt.ConsumeQueueUnits) }
func (q *Queue) fileSize() int64 { return q.units() * UnitSize }

func (q *Queue) dir() string {
	return filepath.Join(q.s.queueDir, q.topic, strconv.FormatInt(int64(q.id), 10))
}

func (q *Queue) path(base int64) string {
	return filepath.Join(q.dir(), segmentName(base*UnitSize))
}

// end is the number after the last unit, pending ones included.
func (q *Queue) end() int64 {
	if len(q.pending) == 0 {
		return q.max.Load()
	}
	return q.from + int64(len(q.pending)/UnitSize)
}

// begins tells that the next unit decides where the queue begins.
func (q *Queue) begins() bool { return q.virgin && len(q.pending) == 0 }

// holds tells whether number n, below the queue's end, is that of the record at pos.
func (q *Queue) holds(n, pos int64) bool {
	var u Unit
	if len(q.pending) > 0 && n >= q.from {
		u.decode(q.pending[(n-q.from)*UnitSize:])
	} else if n >= q.first {
		u, _ = q.unitAt(n)
	}
	return u.Size > 0 && u.Offset == pos && !u.Filler()
}

// Read copies units from number from on into dst, as many as there are below MaxOffset, and returns how many. Below
// MinOffset, or at or above MaxOffset, it returns 0. It reads the file without mapping it and does not allocate. Units for
// which [Unit.Filler] holds have no message.
func (q *Queue) Read(from int64, dst []Unit) (int, error) {
	end := q.max.Load()
	if q.dead.Load() || from < q.MinOffset() || from >= end {
		return 0, nil
	}
	total := min(int64(len(dst)), end-from)
	buf := unitBuffers.Get().(*unitBuffer)
	defer unitBuffers.Put(buf)
	done := int64(0)
	for done < total {
		n := from + done
		base := n - n%q.units()
		count := min(total-done, base+q.units()-n, int64(len(buf)/UnitSize))
		b := buf[:count*UnitSize]
		if err := q.s.files.readUnits(fileKey{q, base}, b, (n-base)*UnitSize); err != nil {
			return int(done), fmt.Errorf("consume queue %s/%d: %w", q.topic, q.id, err)
		}
		for i := range count {
			u := &dst[done+i]
			u.decode(b[i*UnitSize:])
			if !u.valid() { // cut meanwhile
				return int(done + i), nil
			}
		}
		done += count
	}
	return int(done), nil
}

type unitBuffer [256 * UnitSize]byte

var unitBuffers = sync.Pool{New: func() any { return new(unitBuffer) }}

// unitAt reads one unit wherever it lies, without regard to bounds; a missing one is all zeros.
func (q *Queue) unitAt(n int64) (u Unit, err error) {
	var b [UnitSize]byte
	base := n - n%q.units()
	err = q.s.files.readUnits(fileKey{q, base}, b[:], (n-base)*UnitSize)
	u.decode(b[:])
	return u, err
}

// search is the first number in [lo, hi) for whose unit ok holds, hi if there is none; ok must not go back to false.
func (q *Queue) search(lo, hi int64, ok func(Unit) bool) (int64, error) {
	var failed error
	n := sort.Search(int(hi-lo), func(i int) bool {
		u, err := q.unitAt(lo + int64(i))
		if err != nil {
			failed = err
		}
		return err != nil || ok(u)
	})
	return lo + int64(n), failed
}

// firstAt is the first number below hi whose record lies at or after a log position. Filler lies before everything.
func (q *Queue) firstAt(hi, pos int64) (int64, error) {
	return q.search(q.first, hi, func(u Unit) bool { return !u.Filler() && u.Offset >= pos })
}

// OffsetByTime finds a number by store time. Lower: the first message stored at ms or later, MaxOffset if there is none.
// Upper: the last one stored at ms or before, MinOffset if there is none. It reads the log and may wait for the disk.
func (q *Queue) OffsetByTime(ms int64, upper bool) int64 {
	lo, hi := q.MinOffset(), q.MaxOffset()
	later := func(n int64) bool {
		t, ok := q.storeTime(n)
		return ok && (t > ms || !upper && t == ms)
	}
	n := lo + int64(sort.Search(int(hi-lo), func(i int) bool { return later(lo + int64(i)) }))
	if upper {
		return max(lo, n-1)
	}
	return n
}

// EarliestTime is the store time in ms of the first message held, -1 if there is none.
func (q *Queue) EarliestTime() int64 {
	n := q.MinOffset()
	if n >= q.MaxOffset() {
		return -1
	}
	if t, ok := q.storeTime(n); ok {
		return t
	}
	return -1
}

// StoreTime is the store time in ms of message n.
func (q *Queue) storeTime(n int64) (int64, bool) {
	u, err := q.unitAt(n)
	if err != nil || !u.valid() || u.Filler() {
		return 0, false
	}
	sl, err := q.s.Read(u.Offset, int(u.Size))
	if err != nil {
		return 0, false
	}
	defer sl.Release()
	var e entry
	if _, err := e.rec.DecodePlace(sl.Bytes, false); err != nil {
		return 0, false
	}
	return e.rec.StoreTimestamp, true
}

// queueTable finds queues by topic and number.
type queueTable struct {
	changes atomic.Int64 // how often queues were taken out

	mu     sync.RWMutex
	topics map[string]map[int32]*Queue
	floors map[string]int64 // deleted topics: records below this log position count for nothing
}

func newQueueTable() *queueTable {
	return &queueTable{topics: make(map[string]map[int32]*Queue), floors: make(map[string]int64)}
}

func (t *queueTable) get(topic string, id int32) *Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.topics[topic][id]
}

// getBytes is get without making a string.
func (t *queueTable) getBytes(topic []byte, id int32) *Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.topics[string(topic)][id]
}

func (t *queueTable) floor(topic []byte) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.floors[string(topic)]
}

// getOrAdd returns the queue, making an empty one if needed.
func (t *queueTable) getOrAdd(s *Store, topic string, id int32) *Queue {
	if q := t.get(topic, id); q != nil {
		return q
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	byID := t.topics[topic]
	if byID == nil {
		byID = make(map[int32]*Queue)
		t.topics[topic] = byID
	}
	q := byID[id]
	if q == nil {
		q = &Queue{s: s, topic: topic, id: id, virgin: true, floor: t.floors[topic]}
		byID[id] = q
	}
	return q
}

func (t *queueTable) all() []*Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var l []*Queue
	for _, byID := range t.topics {
		for _, q := range byID {
			l = append(l, q)
		}
	}
	return l
}

func (t *queueTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes.Add(1)
	t.topics = make(map[string]map[int32]*Queue)
	t.floors = make(map[string]int64)
}

// removeTopic takes the topic out of the table and remembers up to where its records count for nothing.
func (t *queueTable) removeTopic(topic string, floor int64) []*Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes.Add(1)
	var l []*Queue
	for _, q := range t.topics[topic] {
		l = append(l, q)
	}
	delete(t.topics, topic)
	t.floors[topic] = floor
	return l
}

// Queue is the handle of a queue, made on first use. It panics for a topic that cannot be a directory name; see
// [ValidTopic].
func (s *Store) Queue(topic string, id int32) *Queue {
	if !ValidTopic(topic) || id < 0 {
		panic(fmt.Sprintf("commitlog: topic %q, queue %d cannot be stored", topic, id))
	}
	return s.queues.getOrAdd(s, topic, id)
}

// LookupQueue is the handle of a queue that exists, else nil.
func (s *Store) LookupQueue(topic string, id int32) *Queue { return s.queues.get(topic, id) }

// Queues lists all queues, in no order.
func (s *Store) Queues() []*Queue { return s.queues.all() }

// ValidTopic tells whether a topic can have queue files: not empty, no path separator, no NUL, not a dot name, and no
// longer than a file name may be.
func ValidTopic(topic string) bool {
	return topic != "" && topic != "." && topic != ".." && len(topic) <= 255 && !strings.ContainsAny(topic, "/\x00")
}
