package commitlog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
)

const (
	roundRecords    = 4096    // records placed before their units are written
	stretchRecords  = 32      // records read before a look at the clock
	stretchNotes    = 256     // records placed by their notes, likewise
	roundBytes      = 8 << 20 // log bytes, likewise
	roundUnits      = 8 << 20 // bytes of units, likewise; a single record's may be more
	keepPending     = 64 << 10
	stretchTime     = 50 * time.Microsecond // after which others get the processor
	dispatchRetry   = 100 * time.Millisecond
	scheduleTopic   = "SCHEDULE_TOPIC_XXXX"
	unknownLevelLag = time.Second
)

// lastRecord is the last record known to be whole, with its place and time.
type lastRecord struct {
	start, end int64
	storeTime  int64
}

// dispatcher follows the log and writes the consume queues. Its lock is held for each round of work, and by whoever must
// be sure that no round runs (cutting, deleting, taking a consistent picture).
type dispatcher struct {
	s *Store

	mu      sync.Mutex
	pos     int64                // next position to look at; equals s.dispatched between rounds
	last    lastRecord           // last record placed
	touched []*Queue             // with pending units
	recent  [recentQueues]*Queue // by queue id: those found last
	changes int64                // of the queue table, as of recent
	pending int                  // bytes of units made in this round
	e       entry
	recover bool // recovery: units already there are compared, not written again
	late    bool // recovery did not begin at the oldest record
	holes   bool // a queue lacks numbers: the next start must build it anew

	stuckAt int64 // limit at which the last round could not go on
	wake    chan struct{}
	idle    atomic.Bool // waits for a wake-up
	resting atomic.Bool // waits for the end of its rest, or a wake-up while a consumer waits
	stop    chan struct{}
	done    chan struct{}
	fault   atomic.Pointer[error] // the bad record at which dispatch stands still
	unsaved atomic.Pointer[error] // why units could not be written at the last try
}

func newDispatcher(s *Store) *dispatcher {
	return &dispatcher{s: s, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// poke wakes the dispatcher if it sleeps, and from a rest too if a consumer waits. Cheap enough for every append section.
func (d *dispatcher) poke() {
	if !d.idle.Load() && !(d.resting.Load() && d.s.Awaited()) {
		return
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *dispatcher) run() {
	defer close(d.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		more, err := d.round(d.s.visible())
		if more && err == nil {
			if d.stopped() {
				return
			}
			continue
		}
		if err != nil {
			timer.Reset(dispatchRetry)
		}
		if !d.sleep(timer, err == nil) {
			return
		}
	}
}

func (d *dispatcher) stopped() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// sleep rests, and then waits until there is work; unsound: until it is time to try again. false: the store is being closed.
func (d *dispatcher) sleep(timer *time.Timer, sound bool) bool {
	if sound && !d.rest(timer) {
		return false
	}
	d.idle.Store(true)
	defer d.idle.Store(false)
	if sound && d.s.visible() > d.limitSeen() {
		return true
	}
	select {
	case <-d.wake:
	case <-timer.C:
	case <-d.stop:
		return false
	}
	return true
}

// rest lets work gather for DispatchPace. false: the store is being closed.
func (d *dispatcher) rest(timer *time.Timer) bool {
	pace := d.s.opt.DispatchPace
	if pace <= 0 {
		return true
	}
	d.resting.Store(true)
	defer d.resting.Store(false)
	timer.Reset(pace)
	select {
	case <-d.wake:
	case <-timer.C:
	case <-d.stop:
		return false
	}
	return true
}

func (d *dispatcher) limitSeen() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stuckAt
}

// round places what lies below limit, up to a bound, and writes the units. more means that another round may find work.
// An error is one of writing units: nothing is lost, the round is finished by the next call.
func (d *dispatcher) round(limit int64) (more bool, err error) {
	d.mu.Lock()
	more, moved, err := d.roundLocked(limit)
	d.mu.Unlock()
	if f := d.s.onRound.Load(); f != nil && moved && !d.recover {
		(*f)()
	}
	return more, err
}

// roundLocked is round for holders of d.mu; moved means that the dispatched position did.
func (d *dispatcher) roundLocked(limit int64) (more, moved bool, err error) {
	if !d.recover {
		limit = min(limit, d.s.written.Load()) // the log may have been cut since the limit was read
	}
	stop, err := d.collect(limit)
	d.stuckAt = limit
	if err != nil {
		return false, false, err
	}
	if err = d.flushUnits(); err != nil {
		return false, false, err
	}
	if moved = d.pos > d.s.dispatched.Load(); moved {
		d.s.dispatched.Store(d.pos)
	}
	return moved && !stop, moved, nil
}

// collect walks records and gathers their units. stop means that nothing more can be done below this limit.
func (d *dispatcher) collect(limit int64) (stop bool, err error) {
	if len(d.touched) > 0 { // an earlier write failed: finish that first
		return false, nil
	}
	d.pending = 0
	from, began := d.pos, time.Now()
	for n := 0; n < roundRecords && d.hasRoom(from); {
		k, stopped, err := d.stretch(limit, from, roundRecords-n)
		if stopped || err != nil {
			return true, err
		}
		n += k
		if !d.recover && time.Since(began) >= stretchTime {
			giveWay()
			began = time.Now()
		}
	}
	return false, nil
}

// stretch places some records, most of them at most: by what was noted of them, or else by reading them.
func (d *dispatcher) stretch(limit, from int64, most int) (n int, stop bool, err error) {
	if n = d.takeNotes(limit, from, min(stretchNotes, most)); n > 0 {
		return n, false, nil
	}
	g := d.s.segs.pin(d.pos)
	if g == nil {
		return 0, true, nil
	}
	defer g.unpin()
	mem, err := g.bytes()
	if err != nil {
		return 0, true, err
	}
	n, stop = d.collectSegment(g, mem, min(limit, g.end()), from, min(stretchRecords, most))
	return n, stop, nil
}

// takeNotes places the records from the dispatcher's position on that have notes.
func (d *dispatcher) takeNotes(limit, from int64, most int) (n int) {
	notes := &d.s.notes
	for n < most && d.hasRoom(from) {
		t := notes.at(d.pos)
		if t == nil || t.end() > limit {
			break
		}
		notes.next++ // it is used, or of no use
		if !d.placeNoted(t) {
			break
		}
		d.last = lastRecord{start: t.pos, end: t.end(), storeTime: t.storeTime}
		d.pos = t.end()
		n++
	}
	notes.release()
	return n
}

// placeNoted puts a unit among the pending ones of its queue, if that is all that there is to do.
func (d *dispatcher) placeNoted(t *note) bool {
	q := t.queue
	if t.number != q.end() || t.pos < q.floor || q.dead.Load() {
		return false
	}
	d.touch(q)
	d.push(q, Unit{Offset: t.pos, Size: t.size, TagsCode: int64(t.tag)})
	return true
}

// hasRoom tells whether a round that began at from may go on.
func (d *dispatcher) hasRoom(from int64) bool {
	return d.pos-from < roundBytes && d.pending < roundUnits
}

func (d *dispatcher) collectSegment(g *segment, mem []byte, limit, from int64, most int) (n int, stop bool) {
	full := d.recover || d.s.slave.Load()
	for n < most && d.hasRoom(from) && d.pos < g.end() {
		if d.pos >= limit {
			return n, true
		}
		if n > 0 && d.s.notes.at(d.pos) != nil {
			return n, false
		}
		switch d.e.inspect(mem[d.pos-g.base:limit-g.base], d.pos, g.end()-d.pos, full) {
		case findRecord:
			if d.recover && d.e.torn(mem[d.e.end()-g.base:]) {
				return n, true
			}
			d.place(&d.e)
			if d.recover {
				d.s.report.Records++
			}
			d.last = lastRecord{start: d.pos, end: d.e.end(), storeTime: d.e.rec.StoreTimestamp}
			d.pos = d.e.end()
			n++
		case findBlank:
			if d.e.end() > limit {
				return n, true
			}
			d.pos = d.e.end()
		case findShort:
			return n, true
		case findEmpty:
			d.fail(fmt.Errorf("%w: nothing at %d, but the log ends at %d", ErrCorrupt, d.pos, limit))
			return n, true
		case findBad:
			d.fail(d.e.why)
			return n, true
		}
	}
	return n, false
}

// fail records, once, why dispatch stands still.
func (d *dispatcher) fail(err error) {
	if d.recover {
		return
	}
	if old := d.fault.Load(); old != nil && (*old).Error() == err.Error() {
		return
	}
	d.fault.Store(&err)
	d.s.log.Error("consume queues stand still at a bad record", zap.Int64("offset", d.pos), zap.Error(err))
}

// place puts one record's unit among the pending ones of its queue.
func (d *dispatcher) place(e *entry) {
	r := &e.rec
	if !takesQueueEntry(r.SysFlag) {
		return
	}
	q := d.queue(r)
	if q == nil {
		if q = d.newQueue(e); q == nil {
			return
		}
	}
	if e.pos < q.floor {
		return
	}
	if d.recover {
		d.reconsider(q, e)
	}
	n, next := r.QueueOffset, q.end()
	if n < 0 {
		d.misplaced(e)
		return
	}
	if n < next {
		if d.recover && !q.holds(n, e.pos) { // the queue's first files are gone, or a number is wrong
			d.holes, q.damaged = true, true
			if n >= q.first {
				d.misplaced(e)
			}
		}
		return // known already
	}
	if !canFollow(n, next, q.begins()) {
		d.misplaced(e)
		return
	}
	d.put(q, n, d.unit(e))
}

// recentQueues is how many queues are remembered; a power of two.
const recentQueues = 16

// queue is the record's queue, nil if there is none yet.
func (d *dispatcher) queue(r *codec.Record) *Queue {
	if n := d.s.queues.changes.Load(); n != d.changes {
		d.recent, d.changes = [recentQueues]*Queue{}, n
	}
	at := &d.recent[r.QueueID&(recentQueues-1)]
	if q := *at; q != nil && q.id == r.QueueID && q.topic == string(r.Topic) {
		return q
	}
	q := d.s.queues.getBytes(r.Topic, r.QueueID)
	if q != nil {
		*at = q
	}
	return q
}

func (d *dispatcher) unit(e *entry) Unit {
	return Unit{Offset: e.pos, Size: int32(e.size), TagsCode: d.tagsCode(&e.rec)}
}

// put adds a unit to a queue's pending ones, with filler before it if it does not follow the last one.
func (d *dispatcher) put(q *Queue, n int64, u Unit) {
	begins, next := q.begins(), q.end()
	q.leapt = begins || n > next
	if q.leapFrom = next; begins {
		q.leapFrom = -1
	}
	q.stray = Unit{}
	d.touch(q)
	if n > next {
		d.fill(q, next, n)
	}
	d.push(q, u)
}

// touch notes that a queue is about to get units.
func (d *dispatcher) touch(q *Queue) {
	if len(q.pending) == 0 {
		q.from = q.max.Load()
		d.touched = append(d.touched, q)
	}
}

// push puts a unit behind the last one of a touched queue.
func (d *dispatcher) push(q *Queue, u Unit) {
	q.tag = u.TagsCode
	q.pending = u.append(q.pending)
	d.pending += UnitSize
}

// reconsider, during recovery, takes back the last unit of a queue if its number is wrong, going by the records behind it: a
// leap forward is, if the next record goes on from before it; a queue's beginning is, if two records agree on another one.
func (d *dispatcher) reconsider(q *Queue, e *entry) {
	n, next := e.rec.QueueOffset, q.end()
	if !q.leapt || n < 0 || n >= maxNumber || n >= next && canFollow(n, next, false) {
		return
	}
	switch {
	case q.leapFrom >= 0:
		if n >= q.leapFrom && n < next {
			d.takeBack(q)
		}
	case q.stray.Size > 0 && n == q.strayNumber+1:
		u := q.stray
		d.takeBack(q)
		d.put(q, n-1, u)
	default:
		q.stray, q.strayNumber = d.unit(e), n
	}
}

// takeBack undoes the last leap of a queue, which nothing followed yet.
func (d *dispatcher) takeBack(q *Queue) {
	d.s.log.Error("record has no place in its consume queue, those behind it contradict its number",
		zap.String("topic", q.topic), zap.Int32("queue", q.id), zap.Int64("number", q.end()-1))
	d.holes, q.damaged, q.leapt = true, true, false
	from := q.leapFrom
	if len(q.pending) == 0 { // written already
		if from < 0 {
			from, q.virgin = 0, true
		}
		for base := max(q.first, from-from%q.units()); base < q.max.Load(); base += q.units() {
			q.stale = append(q.stale, base)
		}
		q.max.Store(from)
	} else if q.pending = q.pending[:max(0, from-q.from)*UnitSize]; len(q.pending) == 0 {
		d.touched = slices.DeleteFunc(d.touched, func(t *Queue) bool { return t == q })
	}
	if q.begins() {
		q.first = 0
	}
}

func (d *dispatcher) newQueue(e *entry) *Queue {
	r := &e.rec
	if e.pos < d.s.queues.floor(r.Topic) {
		return nil // of a topic that was deleted later on
	}
	if hasPlace(r) {
		return d.s.queues.getOrAdd(d.s, string(r.Topic), r.QueueID)
	}
	d.misplaced(e)
	return nil
}

// maxNumber bounds a queue's numbers, and maxGap how many may be missing at a place: more is not a gap, but a bad number, which no
// checksum covers.
const (
	maxNumber = 1 << 56
	maxGap    = 1 << 20
)

// canFollow tells whether number n, not below next, can be the one behind the numbers a queue has up to next, or that with which
// it begins.
func canFollow(n, next int64, begins bool) bool {
	return n < maxNumber && (begins || n-next <= maxGap)
}

// hasPlace tells whether a record's topic, queue and number can be those of a unit.
func hasPlace(r *codec.Record) bool {
	return ValidTopic(string(r.Topic)) && r.QueueID >= 0 && r.QueueOffset >= 0 && r.QueueOffset < maxNumber
}

func (d *dispatcher) misplaced(e *entry) {
	r := &e.rec
	d.s.log.Error("record has no place in any consume queue", zap.Int64("offset", e.pos),
		zap.ByteString("topic", r.Topic), zap.Int32("queue", r.QueueID), zap.Int64("number", r.QueueOffset))
}

// fill pads the numbers [next, n) of a queue: the rest of the first file's front if the queue begins here, else numbers
// whose records are missing.
func (d *dispatcher) fill(q *Queue, next, n int64) {
	if q.begins() {
		q.first = n - n%q.units()
		q.from, next = q.first, q.first
		q.min.Store(n)
		if d.late { // its first records may lie before
			d.holes, q.damaged = true, true
		}
	} else {
		d.holes, q.damaged = true, true
		if !d.recover {
			d.s.log.Error("consume queue lacks numbers; it is built anew at the next start", zap.String("topic", q.topic),
				zap.Int32("queue", q.id), zap.Int64("from", next), zap.Int64("to", n), zap.Int64("offset", d.pos))
		}
	}
	for ; next < n; next++ {
		d.push(q, Unit{Size: fillerSize})
	}
}

func (d *dispatcher) tagsCode(r *codec.Record) int64 {
	if string(r.Topic) == scheduleTopic {
		if v, ok := codec.Property(r.Properties, codec.PropDelay); ok {
			if level, ok := parseLevel(v); ok && level > 0 {
				return r.StoreTimestamp + d.s.opt.delay(level).Milliseconds()
			}
		}
	}
	tag, ok := codec.Tag(r.Properties)
	if !ok {
		return 0
	}
	return codec.TagsCode(tag)
}

// parseLevel reads a small decimal number without making a string.
func parseLevel(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// flushUnits writes all pending units and publishes them.
func (d *dispatcher) flushUnits() error {
	for len(d.touched) > 0 {
		q := d.touched[len(d.touched)-1]
		if err := d.flushQueue(q); err != nil {
			return d.keepUnsaved(q, err)
		}
		d.touched = d.touched[:len(d.touched)-1]
		if d.unsaved.Load() != nil {
			d.unsaved.Store(nil)
			d.s.log.Info("consume queues are written again")
		}
	}
	return nil
}

// keepUnsaved records why units could not be written.
func (d *dispatcher) keepUnsaved(q *Queue, err error) error {
	err = fmt.Errorf("consume queue %s/%d: %w", q.topic, q.id, err)
	if old := d.unsaved.Load(); old == nil || (*old).Error() != err.Error() {
		d.s.log.Error("consume queue not written, trying again", zap.Error(err))
	}
	d.unsaved.Store(&err)
	return err
}

func (d *dispatcher) flushQueue(q *Queue) error {
	if q.dead.Load() {
		q.pending = q.pending[:0]
		return nil
	}
	for b, n := q.pending, q.from; len(b) > 0; {
		base := n - n%q.units()
		part := b[:min(int64(len(b)), (base+q.units()-n)*UnitSize)]
		if err := d.writeUnits(fileKey{q, base}, part, (n-base)*UnitSize); err != nil {
			return err
		}
		b = b[len(part):]
		n += int64(len(part) / UnitSize)
	}
	q.virgin = false
	end := q.from + int64(len(q.pending)/UnitSize)
	q.max.Store(end)
	if q.pending = q.pending[:0]; cap(q.pending) > keepPending {
		q.pending = nil
	}
	if f := d.s.onDispatched.Load(); f != nil && !d.recover {
		(*f)(q, end, q.tag)
	}
	return nil
}

func (d *dispatcher) writeUnits(key fileKey, b []byte, off int64) error {
	o, err := d.s.files.get(key, true)
	if err != nil {
		return err
	}
	defer d.s.files.put(o)
	if d.recover && sameBytes(o.f, b, off) {
		return nil
	}
	d.s.dirty.wrote(key, len(b))
	_, err = o.f.WriteAt(b, off)
	return err
}

// Err tells why the store is not working as it should: a corrupt record that stops dispatch, consume queues that cannot be
// written, or a failing flush. nil when all is well. It heals by itself where the cause can go away.
func (s *Store) Err() error {
	for _, p := range []*error{s.broken.Load(), s.dispatch.fault.Load(), s.dispatch.unsaved.Load(), s.flush.fault.Load()} {
		if p != nil {
			return *p
		}
	}
	return nil
}

// visible is how far dispatch may go now.
func (s *Store) visible() int64 {
	end := s.written.Load()
	if f := s.visibleTo.Load(); f != nil {
		return min(end, (*f)())
	}
	return end
}

// WakeDispatch tells the dispatcher that the visible end may have moved.
func (s *Store) WakeDispatch() { s.dispatch.poke() }

// SetAwaited sets what tells whether a consumer waits for a message: the dispatcher then rests no longer than until it is woken. f is
// called by whoever wakes it, for every burst, and must be quick and safe from any goroutine; nil means that none ever does.
func (s *Store) SetAwaited(f func() bool) {
	if f == nil {
		s.awaited.Store(nil)
	} else {
		s.awaited.Store(&f)
	}
}

// Awaited tells whether a consumer waits for a message.
func (s *Store) Awaited() bool {
	f := s.awaited.Load()
	return f != nil && (*f)()
}

// SetVisible sets the limit of dispatch: a master in a sync mode shows nothing whose send is unanswered. f is called by the
// dispatcher and must be cheap and safe from any goroutine; nil means [Store.End]. At Close everything is dispatched.
func (s *Store) SetVisible(f func() int64) {
	if f == nil {
		s.visibleTo.Store(nil)
	} else {
		s.visibleTo.Store(&f)
	}
	s.WakeDispatch()
}

// OnDispatched is called by the dispatcher once for each queue that got new entries, with the queue's new end and the
// tagsCode of the last of them (there may be several with other tags). f may read positions and queues, but must not call
// what takes the append lock: Append, RawBuffer, NextOffset, SetSlave, TruncateTo, Reset, DeleteTopic.
func (s *Store) OnDispatched(f func(q *Queue, maxOffset int64, tagsCode int64)) {
	s.onDispatched.Store(&f)
}

// OnDispatchRound is called by the dispatcher after each burst of OnDispatched.
func (s *Store) OnDispatchRound(f func()) { s.onRound.Store(&f) }
