package broker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tandem/broker/tables"
	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer"
)

// send is one message, or one batch of messages, on its way from its frame to its answer. It is pooled by its loop. Between the
// append and Done it belongs to the waiter ring, at all other times to the loop.
type send struct {
	st     *loopState
	append commitlog.Append
	rows   []int64 // of a batch: where each record begins, first within the batch, in the answer within the log

	conn      engine.Conn
	opaque    int32
	serialize codec.Serialize
	oneway    bool
	queueID   int32
	uniqueKey []byte // what the answer calls the transaction id

	ticket      bool // has a slot in the ring: the answer comes with Done
	needReplica bool
	code        codec.ResponseCode
}

// onSend checks a send and encodes its record; the end of the turn appends it. Codes 10, 310, 320.
func (st *loopState) onSend(c engine.Conn, v *codec.View) {
	h := &st.send
	if err := h.Decode(v); err != nil {
		st.refuse(c, v, codec.InvalidParameter, err.Error())
		return
	}
	entry, code, remark := st.sendTarget(c, v, h)
	if code == deferred {
		return
	}
	if code != codec.Success {
		st.refuse(c, v, code, remark)
		return
	}
	queueID := st.pickQueue(entry, h.QueueID)
	queue := st.queue(entry, queueID)
	if queue == nil {
		st.refuse(c, v, codec.InvalidParameter, fmt.Sprintf("queueId %d: topic %s has %d queues on broker %s",
			h.QueueID, entry.cfg.TopicName, len(entry.queues), st.b.set.BrokerName))
		return
	}
	s := st.take()
	s.conn, s.opaque, s.serialize, s.oneway, s.queueID = c, v.Opaque, v.Serialize, v.IsOneway(), queueID
	s.append.Queue = queue
	if code, remark = st.encode(s, h, entry.name, v.Body); code != codec.Success {
		st.refuse(c, v, code, remark)
		st.give(s)
		return
	}
	if s.ticket {
		st.tickets++
	}
	s.append.Tag = uint64(len(st.turn))
	st.turn = append(st.turn, s)
	st.appends = append(st.appends, &s.append)
}

// deferred is no answer: the request comes again when its topic is on disk.
const deferred codec.ResponseCode = -1

// sendTarget finds the topic, creating it where that is allowed.
func (st *loopState) sendTarget(c engine.Conn, v *codec.View, h *codec.SendHeader) (*topicEntry, codec.ResponseCode, string) {
	b := st.b
	if b.isSlave() {
		return nil, codec.ServiceNotAvailable, "broker " + b.set.BrokerName + " id " + strconv.FormatInt(b.set.BrokerID, 10) +
			" is a slave and takes no writes: send to the master"
	}
	entry := st.topic(h.Topic)
	if entry == nil || len(st.making) > 0 && st.making[string(h.Topic)] != nil { // those that wait already come first
		name := string(h.Topic)
		if err := tables.ValidateTopic(name); err != nil {
			return nil, codec.InvalidParameter, err.Error()
		}
		st.createTopic(c, v, topicWish{name: name, model: string(h.DefaultTopic), queues: h.DefaultTopicQueueNums})
		return nil, deferred, ""
	}
	if entry.forbidden {
		return nil, codec.NoPermission, "topic " + entry.cfg.TopicName + " is the broker's own: clients may not send to it"
	}
	if entry.retry && h.ReconsumeTimes > 0 {
		return st.retryTarget(c, v, entry, h)
	}
	return entry, codec.Success, ""
}

// retryTarget sends a message that was tried too often to the group's dead letters.
func (st *loopState) retryTarget(c engine.Conn, v *codec.View, entry *topicEntry, h *codec.SendHeader) (*topicEntry, codec.ResponseCode, string) {
	b := st.b
	group := entry.cfg.TopicName[len(tables.RetryPrefix):]
	cfg, ok := b.groups.Get(group)
	if !ok {
		return nil, codec.SubscriptionGroupNotExist, "group " + group + " does not exist"
	}
	limit := cfg.RetryMaxTimes
	if h.MaxReconsumeTimes >= 0 {
		limit = h.MaxReconsumeTimes
	}
	if h.ReconsumeTimes <= limit {
		return entry, codec.Success, ""
	}
	dlq := tables.DLQPrefix + group
	h.QueueID = 0
	if e := st.topic([]byte(dlq)); e != nil {
		return e, codec.Success, ""
	}
	st.createTopic(c, v, topicWish{name: dlq, own: true})
	return nil, deferred, ""
}

// pickQueue is the queue asked for, or the next one where the client leaves it to the broker.
func (st *loopState) pickQueue(e *topicEntry, asked int32) int32 {
	if asked >= 0 || e.cfg.WriteQueueNums <= 0 {
		return asked
	}
	st.nextQueue++
	return int32(st.nextQueue % uint32(e.cfg.WriteQueueNums))
}

// maxProperties is how many bytes a record's properties may have (Apache class DefaultMessageStore).
const maxProperties = 32767

// illegal says why a message, alone or in a batch, cannot be stored; "" if it can. What it asks for and this broker has not, it is
// refused for: it is never stored as something else.
func illegal(m *codec.Marks, sysFlag int32, props, body []byte) string {
	switch {
	case len(body) == 0:
		return "the message has no body"
	case len(props) > maxProperties:
		return fmt.Sprintf("the properties have %d bytes, %d are possible", len(props), maxProperties)
	case m.Delayed:
		return "this broker does not deliver delayed or timed messages"
	case m.Transaction || sysFlag&codec.SysTransactionMask != 0:
		return "this broker does not take transactional messages"
	default:
		return ""
	}
}

// encode checks the message and puts its record, or its batch's records, into the loop's arena, where they stay until the
// end of the turn. It settles whether the answer is to wait for disk and slaves.
func (st *loopState) encode(s *send, h *codec.SendHeader, topic, body []byte) (code codec.ResponseCode, remark string) {
	if len(body) > st.b.set.MaxMessageSize {
		return codec.MessageIllegal, fmt.Sprintf("the body has %d bytes, maxMessageSize is %d", len(body), st.b.set.MaxMessageSize)
	}
	if remark := illegal(&h.Marks, h.SysFlag, h.Properties, body); remark != "" {
		return codec.MessageIllegal, remark
	}
	s.ticket = !h.Marks.NoWait && st.b.waits
	s.uniqueKey = append(s.uniqueKey[:0], h.Marks.UniqueKey...)
	rec := &st.record
	rec.QueueID, rec.Flag, rec.SysFlag, rec.ReconsumeTimes = s.queueID, h.Flag, h.SysFlag, h.ReconsumeTimes
	rec.BornTimestamp, rec.BornHost, rec.StoreHost = h.BornTimestamp, s.conn.RemoteAddr(), st.b.host
	rec.Body, rec.Topic, rec.Properties, rec.MoreProperties = body, topic, h.Properties, nil
	if h.Batch {
		return st.encodeBatch(s, rec, body)
	}
	rec.MoreProperties = st.withCluster(h.Properties)
	start := len(st.arena)
	st.arena = rec.Append(st.arena)
	s.append.Bytes, s.append.Count = st.arena[start:], 1
	tag, _ := codec.Tag(h.Properties)
	s.append.TagsKnown, s.append.TagsCode = true, codec.TagsCode(tag)
	return codec.Success, ""
}

// encodeBatch makes one full record of each row. All of the batch shares queue, times and hosts.
func (st *loopState) encodeBatch(s *send, rec *codec.Record, rows []byte) (code codec.ResponseCode, remark string) {
	if strings.HasPrefix(string(rec.Topic), tables.RetryPrefix) {
		return codec.MessageIllegal, "a batch may not be sent to a retry topic"
	}
	start := len(st.arena)
	for len(rows) > 0 {
		row, rest, err := codec.NextBatchRow(rows)
		if err != nil {
			return codec.MessageIllegal, "the batch cannot be read: " + err.Error()
		}
		m := codec.ReadMarks(row.Properties)
		if why := illegal(&m, 0, row.Properties, row.Body); why != "" {
			return codec.MessageIllegal, fmt.Sprintf("message %d of the batch: %s", len(s.rows)+1, why)
		}
		s.rows = append(s.rows, int64(len(st.arena)-start))
		rec.Flag, rec.Body, rec.Properties = row.Flag, row.Body, row.Properties
		st.arena = rec.Append(st.arena)
		rows = rest
	}
	s.append.Bytes, s.append.Count = st.arena[start:], len(s.rows)
	return codec.Success, ""
}

// withCluster is what stands behind a message's properties in the log: the cluster's name, as RocketMQ's brokers add it, if there is
// room. The client's bytes stay as they came.
func (st *loopState) withCluster(props []byte) []byte {
	more := st.cluster
	if len(more) > 0 && !codec.OpenProperties(props) {
		more = more[1:]
	}
	if len(props)+len(more) > maxProperties {
		return nil
	}
	return more
}

// appendTurn is the end of a turn: one append section for all its sends, one look at the slaves, one wake-up of the replication.
func (st *loopState) appendTurn() {
	if len(st.turn) == 0 {
		return
	}
	defer st.clearTurn() // also if a fault of ours ends it early: nothing may be appended twice
	b, m := st.b, st.b.master.Load()
	st.ring, st.flush = m.Ring(), b.syncFlush()
	if st.tickets > 0 && !st.ring.Reserve(st.tickets) {
		st.reserveSingly()
	}
	st.admit(m)
	b.store.Append(st.appends, st)
	st.appended = !b.waits // else nothing is visible yet
	m.NotifyAppended()
	st.count()
	for _, s := range st.turn {
		st.stored(s)
	}
	if st.flush {
		b.store.FlushTo(b.store.End())
	}
}

// reserveSingly gives out the ring's last places one by one. Sends that find none are refused.
func (st *loopState) reserveSingly() {
	all := st.turn
	st.turn, st.appends = st.turn[:0], st.appends[:0]
	for _, s := range all {
		if s.ticket && !st.ring.Reserve(1) {
			st.failed(s, codec.SystemBusy, "[OVERLOAD]too many sends wait for a slave or the disk, the message was not stored")
			continue
		}
		s.append.Tag = uint64(len(st.turn))
		st.turn, st.appends = append(st.turn, s), append(st.appends, &s.append)
	}
}

func (st *loopState) clearTurn() {
	st.turn, st.appends, st.tickets = st.turn[:0], st.appends[:0], 0
	if st.arena = st.arena[:0]; cap(st.arena) > keptArena {
		st.arena = nil
	}
}

// admit settles what the sends wait for. With too few slaves they wait for none and hear so at once; the messages are stored all the
// same.
func (st *loopState) admit(m *transfer.Master) {
	slaves, needReplica := codec.Success, st.b.waitsForSlaves()
	if needReplica {
		slaves = m.Admit()
	}
	reserved := 0
	for _, s := range st.turn {
		s.code, s.needReplica = codec.Success, needReplica
		if s.ticket && slaves != codec.Success {
			s.ticket, s.code = false, slaves
			reserved++
		}
	}
	if reserved > 0 {
		st.ring.Cancel(reserved)
	}
}

// Appended is the store's hook: in the append's critical section it gives the send its place in the ring, so that tickets are in
// the order of the log.
func (st *loopState) Appended(a *commitlog.Append) {
	s := st.turn[a.Tag]
	switch {
	case s.ticket:
		st.ring.Put(a.Offset, a.End, st.flush, s.needReplica, s)
	case st.b.waits:
		st.doneMu.Lock()
		st.answering(a.Offset)
		st.doneMu.Unlock()
	}
}

// answering notes that a message's answer is on its way. Needs doneMu. An older one may come after a younger one, which did not wait.
func (st *loopState) answering(offset int64) {
	st.unwritten.Store(min(st.unwritten.Load(), offset))
}

// OnWritten has the consume queues built, which is less urgent than the answers that have just gone out, and lets consumers see
// their messages.
func (b *Broker) OnWritten(l *engine.Loop) {
	st, ok := l.Local().(*loopState)
	if !ok || !st.appended && st.unwritten.Load() == noneUnwritten {
		return
	}
	st.appended = false
	st.doneMu.Lock()
	next := int64(noneUnwritten)
	if len(st.done) > 0 {
		next = st.done[0].append.Offset
	}
	st.unwritten.Store(next)
	st.doneMu.Unlock()
	b.store.WakeDispatch()
}

// dispatchPace is how long consume queues may be behind the log while nobody waits for them: a wake-up of the dispatcher for each
// turn of a loop costs more than the turn.
const dispatchPace = 5 * time.Millisecond

// visible is where the part of the log ends that consumers may see: at the first message whose send is not answered. A message
// is noted in ending before the ring lets go of it, and in unwritten before ending is: so they are asked in this order.
func (b *Broker) visible() int64 {
	limit := b.master.Load().Ring().Visible(b.store.End())
	if all := b.states.Load(); all != nil {
		for _, st := range *all {
			limit = min(limit, st.ending.Load())
			limit = min(limit, st.unwritten.Load())
		}
	}
	return limit
}

// count counts what the turn stored.
func (st *loopState) count() {
	var messages, bytes, failed int64
	for _, s := range st.turn {
		if s.append.Err != nil {
			failed++
			continue
		}
		messages += int64(s.append.Count)
		bytes += s.append.End - s.append.Offset
	}
	c := &st.b.counters
	c.put.Add(messages)
	c.putBytes.Add(bytes)
	if failed > 0 {
		c.putFailed.Add(failed)
	}
}

// stored answers a send that waits for nothing and counts one that does as owed.
func (st *loopState) stored(s *send) {
	if err := s.append.Err; err != nil {
		if s.ticket {
			st.ring.Cancel(1)
		}
		code, remark := st.b.appendFailure(err)
		st.failed(s, code, remark)
		return
	}
	if s.ticket {
		s.conn.Begin()
		return
	}
	st.reply(s)
}

// failed answers a send that was not stored.
func (st *loopState) failed(s *send, code codec.ResponseCode, remark string) {
	if !s.oneway {
		out := s.conn.Out()
		*out = codec.AppendResponse(*out, s.serialize, s.opaque, code, remark)
	}
	st.give(s)
}

// Done takes the ring's verdict, on whichever goroutine drains it.
func (s *send) Done(code codec.ResponseCode) {
	s.code = code
	st := s.st
	if len(st.ended) == 0 {
		st.ending.Store(s.append.Offset) // the ones to come lie behind it
	}
	st.ended = append(st.ended, s)
}

// answerDrained brings what a drain of the ring completed to the loops, one wake-up for each. The drain calls it before another one
// can begin.
func (b *Broker) answerDrained() {
	if all := b.states.Load(); all != nil {
		for _, st := range *all {
			if len(st.ended) > 0 {
				st.postAnswers()
			}
		}
	}
}

func (st *loopState) postAnswers() {
	st.doneMu.Lock()
	st.answering(st.ended[0].append.Offset)
	st.done = append(st.done, st.ended...)
	post := !st.posted
	st.posted = true
	st.doneMu.Unlock()
	st.ending.Store(noneUnwritten)
	clear(st.ended)
	st.ended = st.ended[:0]
	if post {
		st.loop.Post(&st.answer)
	}
}

// answerTask answers, on the loop, all sends that are done.
type answerTask struct{ st *loopState }

func (t *answerTask) RunOnLoop(*engine.Loop) {
	st := t.st
	st.doneMu.Lock()
	done := st.done
	st.done, st.spare = st.spare[:0], done
	st.posted = false
	st.doneMu.Unlock()
	for i, s := range done {
		s.conn.End()
		st.reply(s)
		done[i] = nil
	}
}

// reply gives the answer to a stored send into its connection's output and the send back to the pool.
func (st *loopState) reply(s *send) {
	if !s.oneway && !s.conn.Closed() {
		for i := range s.rows {
			s.rows[i] += s.append.Offset
		}
		r := codec.SendResponse{
			PhysicalOffset: s.append.Offset,
			BatchOffsets:   s.rows,
			TransactionID:  s.uniqueKey,
			QueueID:        s.queueID,
			QueueOffset:    s.append.QueueOffset,
			Remark:         storedRemark(s.code),
		}
		out := s.conn.Out()
		*out = st.answers.Append(*out, s.serialize, s.opaque, s.code, &r)
	}
	st.give(s)
}

// storedRemark says what an answer other than OK means for a message that is stored.
func storedRemark(code codec.ResponseCode) string {
	switch code {
	case codec.FlushSlaveTimeout:
		return "stored on the master, but not acknowledged by enough slaves in time (slaveTimeout)"
	case codec.FlushDiskTimeout:
		return "stored, but not flushed to disk in time (syncFlushTimeout)"
	case codec.SlaveNotAvailable:
		return "stored on the master, but fewer slaves are usable than inSyncReplicas needs"
	default:
		return ""
	}
}

func (st *loopState) take() *send {
	if n := len(st.idle); n > 0 {
		s := st.idle[n-1]
		st.idle = st.idle[:n-1]
		return s
	}
	return &send{st: st}
}

// Bounds of what the pool keeps: an idle broker holds on to little.
const (
	keptSends = 4096
	keptArena = 1 << 20 // bytes
)

func (st *loopState) give(s *send) {
	s.append = commitlog.Append{} // field by field: a whole value would be made elsewhere and copied
	s.rows, s.uniqueKey = s.rows[:0], s.uniqueKey[:0]
	s.conn, s.opaque, s.serialize, s.oneway, s.queueID = nil, 0, 0, false, 0
	s.ticket, s.needReplica, s.code = false, false, 0
	if len(st.idle) < keptSends {
		st.idle = append(st.idle, s)
	}
}

// refuse answers a request that was not carried out. Cold.
func (st *loopState) refuse(c engine.Conn, v *codec.View, code codec.ResponseCode, remark string) {
	if v.IsOneway() {
		return
	}
	out := c.Out()
	*out = codec.AppendResponse(*out, v.Serialize, v.Opaque, code, remark)
}
