package broker

import (
	"maps"
	"slices"

	"go.uber.org/zap"

	"tandem/broker/tables"
	"tandem/codec"
	"tandem/engine"
)

// A topic that a send makes is on disk before any send to it is answered: a master that dies the moment after must know it when it
// comes back, or its acknowledged messages could be read nowhere. Until then the topic is in b.unsaved and the loops do not know it.

// topicWish is a topic to be made for a send.
type topicWish struct {
	name   string
	model  string // the default topic the client named
	queues int32
	own    bool // the broker's own idea: queues as asked, at least one, whatever the model
}

// makingTopic is a topic being made for one loop, with the sends that wait for it in their order.
type makingTopic struct {
	st      *loopState
	wish    topicWish
	waiting []*sendAgain
	code    codec.ResponseCode
	remark  string
}

// createTopic keeps the send until its topic was made on the pool, which may wait for the disk.
func (st *loopState) createTopic(c engine.Conn, v *codec.View, w topicWish) {
	again := &sendAgain{conn: c, wish: w, frame: codec.AppendFrame(nil, &codec.Command{
		Code: v.Code, Language: v.Language, Version: v.Version, Opaque: v.Opaque, Flag: v.Flag, Serialize: v.Serialize, Ext: v.Ext(), Body: v.Body})}
	c.Begin()
	if m := st.making[w.name]; m != nil {
		m.waiting = append(m.waiting, again)
		return
	}
	m := &makingTopic{st: st, wish: w, waiting: []*sendAgain{again}}
	st.making[w.name] = m
	if st.b.pool.Try(func() {
		m.code, m.remark = st.b.makeTopic(w, c)
		st.loop.Post(m)
	}) {
		return
	}
	m.code, m.remark = codec.SystemBusy, "[OVERLOAD]too many slow requests wait, the message was not stored"
	m.RunOnLoop(st.loop)
}

// RunOnLoop takes the sends that waited, or says why there is no topic for them; one that wished for it differently tries for itself.
func (m *makingTopic) RunOnLoop(*engine.Loop) {
	delete(m.st.making, m.wish.name)
	for _, a := range m.waiting {
		a.conn.End()
		var v codec.View
		if err := v.Parse(a.frame); err != nil { // it was read once already
			m.st.b.log.Error("a send that waited for its topic cannot be read again", zap.Error(err))
			continue
		}
		if m.code == codec.Success || a.wish != m.wish {
			m.st.onSend(a.conn, &v)
		} else if !a.conn.Closed() {
			m.st.refuse(a.conn, &v, m.code, m.remark)
		}
	}
}

// sendAgain is a send that waits for its topic.
type sendAgain struct {
	conn  engine.Conn
	wish  topicWish
	frame []byte
}

// makeTopic makes a topic and saves it. Pool only.
func (b *Broker) makeTopic(w topicWish, c engine.Conn) (codec.ResponseCode, string) {
	b.unsaved.Store(w.name, true)
	cfg, created, ok := b.ensureTopic(w)
	if !ok {
		b.unsaved.Delete(w.name)
		return codec.TopicNotExist, "topic " + w.name + " does not exist on broker " + b.set.BrokerName +
			" and may not be created by a send (autoCreateTopicEnable, or the default topic " + w.model + ")"
	}
	if created {
		b.log.Info("topic created for a client", zap.String("topic", w.name), zap.Int32("queues", cfg.WriteQueueNums), zap.Stringer("client", c.RemoteAddr()))
	}
	if err := b.topics.Persist(); err != nil {
		b.log.Error("a new topic could not be saved", zap.String("topic", w.name), zap.Error(err))
		return codec.SystemError, "the new topic could not be saved, the message was not stored: " + err.Error()
	}
	b.unsaved.Delete(w.name)
	b.topicsChanged()
	return codec.Success, ""
}

func (b *Broker) ensureTopic(w topicWish) (cfg codec.TopicConfig, created, ok bool) {
	if w.own {
		cfg, created = b.topics.Ensure(ownTopic(w.name, max(w.queues, 1)))
		return cfg, created, true
	}
	return b.topics.EnsureDefault(w.name, w.model, w.queues, tables.CreateRules{AutoCreate: b.set.AutoCreateTopicEnable})
}

// ownTopic is a topic the broker itself wants: for retries, dead letters, or found in the store.
func ownTopic(name string, queues int32) codec.TopicConfig {
	cfg := codec.NewTopicConfig(name)
	cfg.ReadQueueNums, cfg.WriteQueueNums = queues, queues
	return cfg
}

// restoreTopics brings back topics whose queues the store has and the table has not: a lost table must not make messages unreachable,
// nor tell the slaves to drop them.
func (b *Broker) restoreTopics() error {
	found := map[string]int32{}
	for _, q := range b.store.Queues() {
		if q.MaxOffset() > q.MinOffset() {
			found[q.Topic()] = max(found[q.Topic()], q.ID()+1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, known := b.topics.Get(name); known || tables.IsSystemTopic(name) || tables.ValidateTopic(name) != nil {
			continue
		}
		b.topics.Put(ownTopic(name, min(found[name], maxQueues)))
		b.log.Warn("topic restored: the store has its messages, topics.json did not know it", zap.String("topic", name), zap.Int32("queues", found[name]))
	}
	return b.topics.Persist()
}
