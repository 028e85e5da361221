package broker

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"tandem/broker/tables"
	"tandem/codec"
	"tandem/engine"
)

// clients knows who is connected, in which groups, and subscribed to what. A client is known by its heartbeats and forgotten at its
// connection's close, when it unregisters, or after clientExpiry of silence. Any goroutine may call it; no lock is held over I/O.
type clients struct {
	b         *Broker
	mu        sync.RWMutex
	consumers map[string]*consumerGroup
	producers map[string]map[uint64]*client // by group and connection
	conns     map[uint64]bool               // those that ever sent a heartbeat: only their end concerns a group
}

const clientExpiry = 120 * time.Second

// client is one connection in one group.
type client struct {
	id       string
	conn     engine.Conn
	language byte
	version  int32
	seen     time.Time
}

// consumerGroup is what the members of a group said.
type consumerGroup struct {
	members       map[uint64]*client // by connection
	consumeType   string
	messageModel  string
	fromWhere     string
	subscriptions map[string]subscription // by topic
}

type subscription struct {
	data   codec.SubscriptionData
	filter tagFilter
}

func newClients(b *Broker) *clients {
	return &clients{b: b, consumers: map[string]*consumerGroup{}, producers: map[string]map[uint64]*client{}, conns: map[uint64]bool{}}
}

// heartbeat takes a client's own account of its groups and subscriptions.
func (b *Broker) heartbeat(r *request) answer {
	var hb codec.Heartbeat
	if err := codec.Unmarshal(r.cmd.Body, &hb); err != nil {
		return failed(codec.SystemError, "the heartbeat cannot be read: "+err.Error())
	}
	if hb.ClientID == "" {
		return failed(codec.InvalidParameter, "the heartbeat names no clientID")
	}
	c := client{id: hb.ClientID, conn: r.conn, language: r.cmd.Language, version: r.cmd.Version, seen: time.Now()}
	for _, p := range hb.ProducerDataSet {
		b.clients.addProducer(p.GroupName, c)
	}
	for i := range hb.ConsumerDataSet {
		if a := b.consumerHeartbeat(&hb.ConsumerDataSet[i], c); a.code != codec.Success {
			return a
		}
	}
	return answer{ext: map[string]string{"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "true"}}
}

func (b *Broker) consumerHeartbeat(d *codec.ConsumerData, c client) answer {
	cfg, known := b.group([]byte(d.GroupName))
	if !known {
		return failed(codec.SubscriptionGroupNotExist, "group "+d.GroupName+" does not exist on broker "+b.set.BrokerName)
	}
	b.ensureRetryTopic(cfg, c)
	if b.clients.addConsumer(d, c) && cfg.NotifyConsumerIDsChangedEnable {
		b.clients.notify(d.GroupName)
	}
	return ok()
}

// group is a group's configuration, created where that is allowed. A slave creates none: its table is the master's.
func (b *Broker) group(name []byte) (codec.SubscriptionGroup, bool) {
	if cfg, ok := b.groups.Find(name); ok {
		return cfg, true
	}
	if b.isSlave() {
		// The master's table arrives within seconds; until then the group is served as a new one would be.
		return codec.NewSubscriptionGroup(string(name)), true
	}
	cfg, created, ok := b.groups.EnsureDefault(string(name), b.set.AutoCreateSubscriptionGroup)
	if created {
		b.log.Info("group created by a client", zap.String("group", cfg.GroupName))
	}
	return cfg, ok
}

// ensureRetryTopic creates the topic that a consumer group's retries go to, as RocketMQ does with the first heartbeat.
func (b *Broker) ensureRetryTopic(cfg codec.SubscriptionGroup, c client) {
	if b.isSlave() || tables.ValidateTopic(tables.RetryPrefix+cfg.GroupName) != nil {
		return
	}
	name := tables.RetryPrefix + cfg.GroupName
	if _, known := b.topics.Get(name); known {
		return
	}
	// A pool that is full makes nothing: the next heartbeat tries again.
	b.pool.Try(func() { b.makeTopic(topicWish{name: name, queues: cfg.RetryQueueNums, own: true}, c.conn) })
}

func (cs *clients) addProducer(group string, c client) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.producers[group] == nil {
		cs.producers[group] = map[uint64]*client{}
	}
	cs.producers[group][c.conn.ID()] = &c
	cs.conns[c.conn.ID()] = true
}

// addConsumer takes a member's word; changed says that the group's members or its subscriptions are others now.
func (cs *clients) addConsumer(d *codec.ConsumerData, c client) (changed bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	g := cs.consumers[d.GroupName]
	if g == nil {
		g = &consumerGroup{members: map[uint64]*client{}, subscriptions: map[string]subscription{}}
		cs.consumers[d.GroupName] = g
	}
	cs.conns[c.conn.ID()] = true
	old := g.members[c.conn.ID()]
	changed = old == nil || old.id != c.id
	g.members[c.conn.ID()] = &c
	g.consumeType, g.messageModel, g.fromWhere = d.ConsumeType, d.MessageModel, d.ConsumeFromWhere
	return g.subscribe(d.SubscriptionDataSet) || changed
}

// subscribe takes what a member subscribes to, where it is newer than what is known, and drops what no member names any more.
func (g *consumerGroup) subscribe(set []codec.SubscriptionData) (changed bool) {
	named := map[string]bool{}
	for _, s := range set {
		named[s.Topic] = true
		old, known := g.subscriptions[s.Topic]
		if known && old.data.SubVersion >= s.SubVersion {
			continue
		}
		changed = changed || !known || old.data.SubString != s.SubString
		g.subscriptions[s.Topic] = subscription{data: s, filter: filterOf(&s)}
	}
	for topic := range g.subscriptions {
		if !named[topic] {
			delete(g.subscriptions, topic)
			changed = true
		}
	}
	return changed
}

func filterOf(s *codec.SubscriptionData) tagFilter {
	if s.SubString == "*" || s.SubString == "" {
		return tagFilter{}
	}
	if len(s.CodeSet) > 0 {
		return tagFilter{some: true, codes: s.CodeSet}
	}
	return parseTagFilter(s.SubString)
}

// filter is what a group's members subscribed to, for a pull that names no subscription itself.
func (cs *clients) filter(group, topic []byte, version int64) (tagFilter, codec.ResponseCode, string) {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	g := cs.consumers[string(group)]
	if g == nil {
		return tagFilter{}, codec.SubscriptionNotExist, "group " + string(group) + " is not connected, so its subscription is not known"
	}
	s, known := g.subscriptions[string(topic)]
	switch {
	case !known:
		return tagFilter{}, codec.SubscriptionNotExist, "group " + string(group) + " does not subscribe to " + string(topic)
	case s.data.SubVersion < version:
		return tagFilter{}, codec.SubscriptionNotLatest, "the broker has an older subscription of group " + string(group) + " to " + string(topic)
	case !isTagExpression(s.data.ExpressionType):
		return tagFilter{}, codec.SystemError, "the broker does not filter by " + s.data.ExpressionType + ", only by TAG"
	}
	return s.filter, codec.Success, ""
}

func (b *Broker) unregisterClient(r *request) answer {
	id := r.conn.ID()
	if group := r.text("producerGroup"); group != "" {
		b.clients.mu.Lock()
		b.clients.removeProducer(group, id)
		b.clients.mu.Unlock()
	}
	if group := r.text("consumerGroup"); group != "" {
		b.clients.mu.Lock()
		removed := b.clients.removeConsumer(group, id)
		b.clients.mu.Unlock()
		if removed {
			b.clients.notify(group)
		}
	}
	return ok()
}

func (cs *clients) removeProducer(group string, conn uint64) {
	delete(cs.producers[group], conn)
	if len(cs.producers[group]) == 0 {
		delete(cs.producers, group)
	}
}

func (cs *clients) removeConsumer(group string, conn uint64) (removed bool) {
	g := cs.consumers[group]
	if g == nil || g.members[conn] == nil {
		return false
	}
	delete(g.members, conn)
	if len(g.members) == 0 {
		delete(cs.consumers, group)
	}
	return true
}

// disconnected forgets a connection and tells those who share a group with it.
func (cs *clients) disconnected(c engine.Conn) {
	id := c.ID()
	cs.mu.Lock()
	if !cs.conns[id] {
		cs.mu.Unlock()
		return
	}
	delete(cs.conns, id)
	for group := range cs.producers {
		cs.removeProducer(group, id)
	}
	var left []string
	for group := range cs.consumers {
		if cs.removeConsumer(group, id) {
			left = append(left, group)
		}
	}
	cs.mu.Unlock()
	for _, group := range left {
		cs.notify(group)
	}
}

// expire closes the connections of clients that sent no heartbeat for clientExpiry.
func (cs *clients) expire(now time.Time) {
	var silent []engine.Conn
	cs.mu.RLock()
	for _, group := range cs.producers {
		silent = appendSilent(silent, group, now)
	}
	for _, g := range cs.consumers {
		silent = appendSilent(silent, g.members, now)
	}
	cs.mu.RUnlock()
	for _, c := range silent {
		c.Close()
	}
}

func appendSilent(silent []engine.Conn, members map[uint64]*client, now time.Time) []engine.Conn {
	for _, m := range members {
		if now.Sub(m.seen) > clientExpiry {
			silent = append(silent, m.conn)
		}
	}
	return silent
}

// notify tells a group's members that they are others now, so that they share the queues out anew.
func (cs *clients) notify(group string) {
	if cfg, ok := cs.b.groups.Get(group); ok && !cfg.NotifyConsumerIDsChangedEnable {
		return
	}
	cs.mu.RLock()
	var conns []engine.Conn
	if g := cs.consumers[group]; g != nil {
		for _, m := range g.members {
			conns = append(conns, m.conn)
		}
	}
	cs.mu.RUnlock()
	for _, c := range conns {
		req := codec.NewRequest(codec.ReqNotifyConsumerIDsChanged, map[string]string{"consumerGroup": group}, nil)
		req.MarkOneway()
		c.Post(codec.AppendFrame(nil, req))
	}
}

// consumerList names a group's members; rebalancing depends on it.
func (b *Broker) consumerList(r *request) answer {
	group := r.text("consumerGroup")
	ids := b.clients.ids(group)
	if len(ids) == 0 {
		return failed(codec.SystemError, "group "+group+" has no consumer connected to broker "+b.set.BrokerName)
	}
	return okJSON(codec.ConsumerList{ConsumerIDList: ids})
}

func (cs *clients) ids(group string) []string {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	g := cs.consumers[group]
	if g == nil {
		return nil
	}
	ids := map[string]bool{}
	for _, m := range g.members {
		ids[m.id] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

// checkClientConfig tells a client whether its subscription can be served.
func (b *Broker) checkClientConfig(r *request) answer {
	var body codec.CheckClientRequest
	if len(r.cmd.Body) > 0 {
		if err := codec.Unmarshal(r.cmd.Body, &body); err != nil {
			return failed(codec.SystemError, "the request cannot be read: "+err.Error())
		}
	}
	if kind := body.SubscriptionData.ExpressionType; !isTagExpression(kind) {
		return failed(codec.SystemError, "the broker does not filter by "+kind+", only by TAG")
	}
	return ok()
}

func (b *Broker) consumerConnections(r *request) answer {
	group := r.text("consumerGroup")
	b.clients.mu.RLock()
	defer b.clients.mu.RUnlock()
	g := b.clients.consumers[group]
	if g == nil {
		return failed(codec.ConsumerNotOnline, "group "+group+" has no consumer connected to broker "+b.set.BrokerName)
	}
	subs := map[string]codec.SubscriptionData{}
	for topic, s := range g.subscriptions {
		subs[topic] = s.data
	}
	return okJSON(codec.ConsumerConnection{ConnectionSet: connections(g.members), SubscriptionTable: subs,
		ConsumeType: g.consumeType, MessageModel: g.messageModel, ConsumeFromWhere: g.fromWhere})
}

func (b *Broker) producerConnections(r *request) answer {
	group := r.text("producerGroup")
	b.clients.mu.RLock()
	defer b.clients.mu.RUnlock()
	members := b.clients.producers[group]
	if len(members) == 0 {
		return failed(codec.SystemError, "group "+group+" has no producer connected to broker "+b.set.BrokerName)
	}
	return okJSON(codec.ProducerConnection{ConnectionSet: connections(members)})
}

func connections(members map[uint64]*client) []codec.Connection {
	var all []codec.Connection
	for _, m := range members {
		all = append(all, codec.Connection{ClientID: m.id, ClientAddr: m.conn.RemoteAddr().String(),
			Language: codec.LanguageName(m.language), Version: m.version})
	}
	slices.SortFunc(all, func(x, y codec.Connection) int { return cmp.Compare(x.ClientID+x.ClientAddr, y.ClientID+y.ClientAddr) })
	return all
}

func (b *Broker) topicGroups(r *request) answer {
	topic := r.text("topic")
	groups := map[string]bool{}
	for _, g := range b.offsets.ByTopic(topic) {
		groups[g] = true
	}
	b.clients.mu.RLock()
	for name, g := range b.clients.consumers {
		if _, subscribed := g.subscriptions[topic]; subscribed {
			groups[name] = true
		}
	}
	b.clients.mu.RUnlock()
	return okJSON(map[string]any{"groupList": slices.Sorted(maps.Keys(groups))})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
