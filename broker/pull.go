package broker

import (
	"strconv"
	"strings"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
)

// pull is one pull request from its frame to its answer. It belongs to its loop; while it is held, holds keeps its place.
type pull struct {
	st        *loopState
	conn      engine.Conn
	opaque    int32
	serialize codec.Serialize
	queue     *commitlog.Queue
	asked     int64 // the offset of the request
	from      int64 // what lies before it was looked at and does not match
	maxCount  int
	maxBytes  int
	filter    tagFilter
	suggest   suggestion

	mayHold  bool  // the client lets the broker wait
	deadline int64 // ms since 1970, end of the hold
	owed     bool  // Conn.Begin was called: the answer comes in a later turn
	warm     bool  // the data was just brought into memory

	index   int  // place in the deadline heap of holds; guarded by its lock
	expired bool // the hold is over: answer in any case
}

// suggestion is which broker id a client is sent to: near for a consumer that keeps up, far for one that is far behind.
type suggestion struct{ near, far int64 }

// logRange is a run of neighbouring records in the log.
type logRange struct {
	offset int64
	size   int
}

// Limits of one answer (Apache class MessageStoreConfig).
const (
	pullMaxCount  = 32
	pullMaxBytes  = 256 << 10
	pullMaxScan   = 800 // units looked at
	ramShareInUse = 0.4 // of the machine's memory: a consumer further behind than this reads from disk
)

// onPull answers a pull, or holds it until there is something to answer. Codes 11 and 361.
func (st *loopState) onPull(c engine.Conn, v *codec.View) {
	h := &st.pull
	if err := h.Decode(v); err != nil {
		st.refuse(c, v, codec.InvalidParameter, err.Error())
		return
	}
	p, code, remark := st.newPull(c, v, h)
	if code != codec.Success {
		st.refuse(c, v, code, remark)
		return
	}
	if h.SysFlag&codec.PullCommitOffset != 0 && h.CommitOffset >= 0 {
		st.b.offsets.CommitBytes(h.ConsumerGroup, h.Topic, h.QueueID, h.CommitOffset)
	}
	p.serve()
}

// newPull checks the request in RocketMQ's order: group, topic, permission, queue, subscription.
func (st *loopState) newPull(c engine.Conn, v *codec.View, h *codec.PullHeader) (*pull, codec.ResponseCode, string) {
	b := st.b
	if b.isSlave() && !b.set.SlaveReadEnable {
		return nil, codec.SystemBusy, "this slave serves no pulls: slaveReadEnable is false"
	}
	group, ok := b.group(h.ConsumerGroup)
	if !ok {
		return nil, codec.SubscriptionGroupNotExist, "group " + string(h.ConsumerGroup) + " does not exist on broker " + b.set.BrokerName
	}
	if !group.ConsumeEnable {
		return nil, codec.NoPermission, "group " + group.GroupName + " may not consume (consumeEnable is false)"
	}
	entry := st.topic(h.Topic)
	if entry == nil {
		return nil, codec.TopicNotExist, "topic " + string(h.Topic) + " does not exist on broker " + b.set.BrokerName
	}
	if entry.cfg.Perm&codec.PermRead == 0 {
		return nil, codec.NoPermission, "topic " + entry.cfg.TopicName + " may not be read"
	}
	queue := st.queue(entry, h.QueueID)
	if queue == nil || h.QueueID >= entry.cfg.ReadQueueNums {
		return nil, codec.InvalidParameter, "queueId " + strconv.Itoa(int(h.QueueID)) + ": topic " + entry.cfg.TopicName + " has " +
			strconv.Itoa(int(entry.cfg.ReadQueueNums)) + " queues to read on broker " + b.set.BrokerName
	}
	filter, code, remark := b.pullFilter(h)
	if code != codec.Success {
		return nil, code, remark
	}
	p := &pull{st: st, conn: c, opaque: v.Opaque, serialize: v.Serialize, queue: queue, asked: h.QueueOffset, from: h.QueueOffset,
		filter: filter, maxCount: min(max(int(h.MaxMsgNums), 1), pullMaxCount), maxBytes: pullMaxBytes,
		suggest: suggestion{near: group.BrokerID, far: group.WhichBrokerWhenConsumeSlowly}}
	if h.MaxMsgBytes > 0 {
		p.maxBytes = min(int(h.MaxMsgBytes), pullMaxBytes)
	}
	if h.SysFlag&codec.PullSuspend != 0 {
		p.mayHold, p.deadline = true, b.nowMs()+b.holdFor(h.SuspendTimeoutMillis)
	}
	return p, codec.Success, ""
}

// Bounds of a hold, in ms.
const (
	longestHold = 120_000
	shortHold   = 1_000
)

// holdFor is how long a pull is held, in ms.
func (b *Broker) holdFor(asked int64) int64 {
	if !b.set.LongPollingEnable {
		return shortHold
	}
	return min(max(asked, 0), longestHold)
}

// pullFilter is the request's own subscription, or what the group's heartbeats said.
func (b *Broker) pullFilter(h *codec.PullHeader) (tagFilter, codec.ResponseCode, string) {
	if h.SysFlag&codec.PullSubscription != 0 {
		if !isTagExpression(string(h.ExpressionType)) {
			return tagFilter{}, codec.SystemError, "the broker does not filter by " + string(h.ExpressionType) + ", only by TAG"
		}
		return parseTagFilter(string(h.Subscription)), codec.Success, ""
	}
	return b.clients.filter(h.ConsumerGroup, h.Topic, h.SubVersion)
}

// serve answers the pull if there is anything to say, and holds it otherwise.
func (p *pull) serve() {
	b := p.st.b
	lowest, highest := p.queue.MinOffset(), p.queue.MaxOffset()
	code, next, remark := p.place(lowest, highest)
	if code == codec.Success {
		code, next, remark = p.collect(highest)
		if code == codec.Success && p.needsDisk() {
			return
		}
	}
	if code == codec.PullNotFound && p.mayHold && !p.expired {
		p.hold()
		return
	}
	p.answer(code, remark, next, lowest, highest)
	b.counters.pulls.Add(1)
}

// place compares the asked offset with the queue's bounds. Success: there is something to look at.
// A slave corrects nobody: what it does not hold (yet) the master may, so it answers "not yet" and keeps the offset.
func (p *pull) place(lowest, highest int64) (code codec.ResponseCode, next int64, remark string) {
	at := p.asked
	switch {
	case p.from > p.asked && p.from <= highest:
		// A woken hold goes on where it stopped looking.
		if p.from == highest {
			return codec.PullNotFound, at, "OFFSET_OVERFLOW_ONE"
		}
		return codec.Success, 0, ""
	case at >= lowest && at < highest:
		return codec.Success, 0, ""
	case highest > 0 && at == highest:
		return codec.PullNotFound, at, "OFFSET_OVERFLOW_ONE"
	case p.st.b.isSlave():
		return codec.PullNotFound, at, "NOT_ON_THIS_SLAVE"
	case highest == 0 && at == 0:
		return codec.PullNotFound, 0, "NO_MESSAGE_IN_QUEUE"
	case highest == 0:
		return codec.PullOffsetMoved, 0, "NO_MESSAGE_IN_QUEUE"
	case at < lowest:
		return codec.PullOffsetMoved, lowest, "OFFSET_TOO_SMALL"
	default:
		return codec.PullOffsetMoved, highest, "OFFSET_OVERFLOW_BADLY"
	}
}

// collect finds the records to send and leaves their runs in st.ranges.
func (p *pull) collect(highest int64) (code codec.ResponseCode, next int64, remark string) {
	st := p.st
	st.ranges = st.ranges[:0]
	count, size, scanned := 0, 0, 0
	at := p.from
	for at < highest && scanned < max(pullMaxScan, p.maxCount) {
		n, err := p.queue.Read(at, st.units[:min(int64(len(st.units)), highest-at)])
		if err != nil {
			return codec.SystemError, p.asked, err.Error()
		}
		if n == 0 {
			break
		}
		for _, u := range st.units[:n] {
			if p.filter.match(u.TagsCode) {
				if count > 0 && (count >= p.maxCount || size+int(u.Size) > p.maxBytes) {
					return codec.Success, at, "FOUND"
				}
				st.addRange(u.Offset, int(u.Size))
				count++
				size += int(u.Size)
			}
			at++
			scanned++
		}
	}
	switch {
	case count > 0:
		return codec.Success, at, "FOUND"
	case at >= highest && p.mayHold && !p.expired:
		p.from = at // nothing so far matches: the hold goes on from here
		return codec.PullNotFound, p.asked, "NO_MATCHED_MESSAGE"
	case at == p.asked:
		return codec.PullNotFound, at, "OFFSET_FOUND_NULL"
	default:
		return codec.PullRetryImmediately, at, "NO_MATCHED_MESSAGE"
	}
}

// addRange adds a record, joined to the run before it where they are neighbours in one segment.
func (st *loopState) addRange(offset int64, size int) {
	if n := len(st.ranges); n > 0 {
		last := &st.ranges[n-1]
		if last.offset+int64(last.size) == offset && offset%st.b.store.SegmentSize() != 0 {
			last.size += size
			return
		}
	}
	st.ranges = append(st.ranges, logRange{offset, size})
}

// needsDisk sends the pull to the pool if its data is probably not in memory: a loop must not wait for a disk. The data is read
// there and the pull served anew.
func (p *pull) needsDisk() bool {
	st, b := p.st, p.st.b
	if p.warm {
		return false
	}
	cold := false
	for _, r := range st.ranges {
		cold = cold || b.store.Cold(r.offset, r.size)
	}
	if !cold {
		return false
	}
	ranges := append([]logRange(nil), st.ranges...)
	p.owe()
	if b.pool.Try(func() {
		for _, r := range ranges {
			// A range that cannot be read shows when the pull is served.
			if b.store.Populate(r.offset, r.size) != nil {
				break
			}
		}
		p.warm = true
		st.loop.Post(p)
	}) {
		return true
	}
	p.answer(codec.SystemBusy, "[OVERLOAD]too many reads wait for the disk", p.asked, p.queue.MinOffset(), p.queue.MaxOffset())
	return true
}

// answer writes the answer; with Success the records that collect found go out from where they lie in the log.
func (p *pull) answer(code codec.ResponseCode, remark string, next, lowest, highest int64) {
	st, b := p.st, p.st.b
	p.settle()
	if p.conn.Closed() {
		return
	}
	total, lastEnd := 0, int64(0)
	if code == codec.Success {
		var ok bool
		if total, lastEnd, ok = st.pin(); !ok {
			// The log no longer has what the queue points to: it was cleaned up meanwhile.
			code, remark, next = codec.PullRetryImmediately, "MESSAGE_WAS_REMOVING", max(p.queue.MinOffset(), p.asked)
			total = 0
		}
	}
	r := codec.PullResponse{SuggestWhichBrokerID: b.suggest(p, lastEnd), NextBeginOffset: next, MinOffset: lowest, MaxOffset: highest, Remark: remark}
	st.head = codec.AppendPullResponse(st.head[:0], p.serialize, p.opaque, code, &r, total)
	if total == 0 {
		out := p.conn.Out()
		*out = append(*out, st.head...)
	} else {
		p.conn.WriteVec(st.head, st.bodies)
		b.counters.gotBytes.Add(int64(total))
	}
	st.release()
}

// pin takes hold of the mapped records of st.ranges.
func (st *loopState) pin() (total int, lastEnd int64, ok bool) {
	for _, r := range st.ranges {
		sl, err := st.b.store.Read(r.offset, r.size)
		if err != nil {
			st.release()
			return 0, 0, false
		}
		if len(sl.Bytes) < r.size {
			sl.Release()
			st.release()
			return 0, 0, false
		}
		st.slices = append(st.slices, sl)
		st.bodies = append(st.bodies, sl.Bytes)
		total += len(sl.Bytes)
		lastEnd = r.offset + int64(r.size)
	}
	return total, lastEnd, true
}

// release lets go of the records; they were written or copied.
func (st *loopState) release() {
	for i := range st.slices {
		st.slices[i].Release()
		st.slices[i] = commitlog.Slice{}
		st.bodies[i] = nil
	}
	st.slices, st.bodies, st.ranges = st.slices[:0], st.bodies[:0], st.ranges[:0]
}

// suggest is the broker id the client should ask next time.
func (b *Broker) suggest(p *pull, lastEnd int64) int64 {
	if !b.set.SlaveReadEnable || lastEnd == 0 {
		return p.suggest.near
	}
	if b.store.End()-lastEnd > b.ramInUse {
		return p.suggest.far
	}
	return p.suggest.near
}

func (p *pull) owe() {
	if !p.owed {
		p.owed = true
		p.conn.Begin()
	}
}

func (p *pull) settle() {
	if p.owed {
		p.owed = false
		p.conn.End()
	}
}

// hold waits for the queue to grow. The queue may have grown since it was looked at, so it is looked at again.
func (p *pull) hold() {
	p.owe()
	p.warm = false
	p.st.b.holds.add(p)
	if p.queue.MaxOffset() > max(p.from, p.asked) {
		p.st.b.holds.wake(p.queue)
	}
}

// RunOnLoop serves the pull again: its queue has grown, its time is over, or its data is in memory now.
func (p *pull) RunOnLoop(*engine.Loop) {
	if p.conn.Closed() {
		p.settle()
		return
	}
	if p.expired {
		p.from = p.asked
	}
	if p.queue.Deleted() { // with its topic; the topic may be there anew
		p.queue, p.from = p.st.b.store.Queue(p.queue.Topic(), p.queue.ID()), p.asked
	}
	p.serve()
}

// tagFilter is a subscription by tags. The client compares the tags' text again, so an equal hash of another tag does no harm.
type tagFilter struct {
	some  bool    // false: every message matches
	codes []int32 // hashes of the tags
}

func (f *tagFilter) match(tagsCode int64) bool {
	if !f.some {
		return true
	}
	for _, c := range f.codes {
		if int32(tagsCode) == c {
			return true
		}
	}
	return false
}

// parseTagFilter reads "TagA || TagB"; an empty text and "*" mean all.
func parseTagFilter(expression string) tagFilter {
	if expression = strings.TrimSpace(expression); expression == "" || expression == "*" {
		return tagFilter{}
	}
	f := tagFilter{some: true}
	for tag := range strings.SplitSeq(expression, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			f.codes = append(f.codes, int32(codec.TagsCode([]byte(tag))))
		}
	}
	return f
}

func isTagExpression(kind string) bool { return kind == "" || strings.EqualFold(kind, "TAG") }
