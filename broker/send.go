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
	wait, code, remark := st.encode(s, h, entry.cfg.TopicName, v.Body)
	if code == codec.Success && wait && st.b.waits && !st.b.master.Load().Ring().Reserve(1) {
		code, remark = codec.SystemBusy, "[OVERLOAD]too many sends wait for a slave or the disk, the message was not stored"
	}
	if code != codec.Success {
		st.refuse(c, v, code, remark)
		st.give(s)
		return
	}
	s.ticket = wait && st.b.waits
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

// Limits of a message (Apache class MessageStoreConfig and DefaultMessageStore).
const (
	maxProperties = 32767 // bytes of a record's properties
	clusterKey    = "CLUSTER"
)

// marks is what a message's properties ask of the broker.
type marks struct {
	noWait      bool
	delayed     bool
	transaction bool
	uniqueKey   []byte
}

func readMarks(props []byte) (m marks) {
	codec.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case "WAIT":
			m.noWait = string(value) == "false"
		case "DELAY":
			m.delayed = string(value) != "0"
		case "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC":
			m.delayed = true
		case "TRAN_MSG":
			m.transaction = string(value) == "true"
		case "UNIQ_KEY":
			m.uniqueKey = value
		}
		return true
	})
	return m
}

// illegal says why a message, alone or in a batch, cannot be stored; "" if it can. What it asks for and this broker has not, it is
// refused for: it is never stored as something else.
func illegal(m *marks, sysFlag int32, props, body []byte) string {
	switch {
	case len(body) == 0:
		return "the message has no body"
	case len(props) > maxProperties:
		return fmt.Sprintf("the properties have %d bytes, %d are possible", len(props), maxProperties)
	case m.delayed:
		return "this broker does not deliver delayed or timed messages"
	case m.transaction || sysFlag&codec.SysTransactionMask != 0:
		return "this broker does not take transactional messages"
	default:
		return ""
	}
}

// encode checks the message and puts its record, or its batch's records, into the loop's arena, where they stay until the
// end of the turn. wait: the answer is to wait for disk and slaves.
func (st *loopState) encode(s *send, h *codec.SendHeader, topic string, body []byte) (wait bool, code codec.ResponseCode, remark string) {
	m := readMarks(h.Properties)
	if len(body) > st.b.set.MaxMessageSize {
		return false, codec.MessageIllegal, fmt.Sprintf("the body has %d bytes, maxMessageSize is %d", len(body), st.b.set.MaxMessageSize)
	}
	if remark := illegal(&m, h.SysFlag, h.Properties, body); remark != "" {
		return false, codec.MessageIllegal, remark
	}
	s.uniqueKey = append(s.uniqueKey[:0], m.uniqueKey...)
	rec := codec.Record{
		QueueID:        s.queueID,
		Flag:           h.Flag,
		SysFlag:        h.SysFlag,
		BornTimestamp:  h.BornTimestamp,
		BornHost:       s.conn.RemoteAddr(),
		StoreHost:      st.b.host,
		ReconsumeTimes: h.ReconsumeTimes,
		Body:           body,
		Topic:          st.topicBytes(topic),
		Properties:     st.withCluster(h.Properties),
	}
	if h.Batch {
		return !m.noWait, st.encodeBatch(s, &rec, body, &remark), remark
	}
	if len(rec.Properties) > maxProperties {
		rec.Properties = h.Properties
	}
	start := len(st.arena)
	st.arena = rec.Append(st.arena)
	s.append.Bytes, s.append.Count = st.arena[start:], 1
	return !m.noWait, codec.Success, ""
}

// encodeBatch makes one full record of each row. All of the batch shares queue, times and hosts.
func (st *loopState) encodeBatch(s *send, rec *codec.Record, rows []byte, remark *string) codec.ResponseCode {
	if strings.HasPrefix(string(rec.Topic), tables.RetryPrefix) {
		*remark = "a batch may not be sent to a retry topic"
		return codec.MessageIllegal
	}
	start := len(st.arena)
	for len(rows) > 0 {
		row, rest, err := codec.NextBatchRow(rows)
		if err != nil {
			*remark = "the batch cannot be read: " + err.Error()
			return codec.MessageIllegal
		}
		m := readMarks(row.Properties)
		if why := illegal(&m, 0, row.Properties, row.Body); why != "" {
			*remark = fmt.Sprintf("message %d of the batch: %s", len(s.rows)+1, why)
			return codec.MessageIllegal
		}
		s.rows = append(s.rows, int64(len(st.arena)-start))
		rec.Flag, rec.Body, rec.Properties = row.Flag, row.Body, row.Properties
		st.arena = rec.Append(st.arena)
		rows = rest
	}
	s.append.Bytes, s.append.Count = st.arena[start:], len(s.rows)
	return codec.Success
}

// withCluster adds the cluster's name, as RocketMQ's brokers do; the client's bytes stay as they came.
func (st *loopState) withCluster(props []byte) []byte {
	st.props = append(st.props[:0], props...)
	st.props = codec.AppendProperty(st.props, clusterKey, st.b.set.BrokerClusterName)
	return st.props
}

// topicBytes is the topic's name as bytes, in the header's scratch or in the frame.
func (st *loopState) topicBytes(topic string) []byte {
	if string(st.send.Topic) == topic {
		return st.send.Topic
	}
	return []byte(topic)
}

// appendTurn is the end of a turn: one append section for all its sends, one look at the slaves, one wake-up of the replication.
func (st *loopState) appendTurn() {
	if len(st.turn) == 0 {
		return
	}
	defer st.clearTurn() // also if a fault of ours ends it early: nothing may be appended twice
	b, m := st.b, st.b.master.Load()
	slaves := codec.Success
	if b.waitsForSlaves() {
		slaves = m.Admit()
	}
	for _, s := range st.turn {
		s.admit(slaves)
	}
	b.store.Append(st.appends, st)
	st.appended = !b.waits // else nothing is visible yet
	m.NotifyAppended()
	for _, s := range st.turn {
		st.stored(s)
	}
	if b.syncFlush() {
		b.store.FlushTo(b.store.End())
	}
}

func (st *loopState) clearTurn() {
	st.turn, st.appends = st.turn[:0], st.appends[:0]
	if st.arena = st.arena[:0]; cap(st.arena) > keptArena {
		st.arena = nil
	}
}

// admit settles what the send waits for. With too few slaves it waits for none and hears so at once; the message is stored all the same.
func (s *send) admit(slaves codec.ResponseCode) {
	s.code = codec.Success
	if !s.ticket {
		return
	}
	if slaves == codec.Success {
		s.needReplica = s.st.b.waitsForSlaves()
		return
	}
	s.ticket, s.code = false, slaves
	s.st.b.master.Load().Ring().Cancel(1)
}

// Appended is the store's hook: in the append's critical section it gives the send its place in the ring, so that tickets are in
// the order of the log.
func (st *loopState) Appended(a *commitlog.Append) {
	s := st.turn[a.Tag]
	switch {
	case s.ticket:
		st.b.master.Load().Ring().Put(a.Offset, a.End, st.b.syncFlush(), s.needReplica, s)
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
// is noted as being answered before the ring lets go of it, so the ring is asked first.
func (b *Broker) visible() int64 {
	limit := b.master.Load().Ring().Visible(b.store.End())
	if all := b.states.Load(); all != nil {
		for _, st := range *all {
			limit = min(limit, st.unwritten.Load())
		}
	}
	return limit
}

// stored answers a send that waits for nothing and counts one that does as owed.
func (st *loopState) stored(s *send) {
	b := st.b
	if err := s.append.Err; err != nil {
		if s.ticket {
			b.master.Load().Ring().Cancel(1)
		}
		code, remark := b.appendFailure(err)
		if !s.oneway {
			out := s.conn.Out()
			*out = codec.AppendResponse(*out, s.serialize, s.opaque, code, remark)
		}
		b.counters.putFailed.Add(1)
		st.give(s)
		return
	}
	b.counters.put.Add(int64(s.append.Count))
	b.counters.putBytes.Add(s.append.End - s.append.Offset)
	if s.ticket {
		s.conn.Begin()
		return
	}
	st.reply(s)
}

// Done takes the ring's verdict, from whichever goroutine has it.
func (s *send) Done(code codec.ResponseCode) {
	s.code = code
	st := s.st
	st.doneMu.Lock()
	st.answering(s.append.Offset)
	st.done = append(st.done, s)
	st.doneMu.Unlock()
}

// answerDrained brings what a drain of the ring completed to the loops: one wake-up for each.
func (b *Broker) answerDrained() {
	if all := b.states.Load(); all != nil {
		for _, st := range *all {
			st.postAnswers()
		}
	}
}

func (st *loopState) postAnswers() {
	st.doneMu.Lock()
	post := len(st.done) > 0 && !st.posted
	st.posted = st.posted || post
	st.doneMu.Unlock()
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
			StoreHost:      st.b.host,
			PhysicalOffset: s.append.Offset,
			BatchOffsets:   s.rows,
			TransactionID:  s.uniqueKey,
			QueueID:        s.queueID,
			QueueOffset:    s.append.QueueOffset,
			Remark:         storedRemark(s.code),
		}
		out := s.conn.Out()
		*out = codec.AppendSendResponse(*out, s.serialize, s.opaque, s.code, &r)
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
	*s = send{st: st, rows: s.rows[:0], uniqueKey: s.uniqueKey}
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
