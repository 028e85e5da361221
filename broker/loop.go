package broker

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"tandem/broker/tables"
	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer"
)

// loopState is what one event loop needs to serve requests without allocating. It belongs to its loop; what stands
// from unwritten on is shared.
type loopState struct {
	b    *Broker
	loop *engine.Loop

	topics     map[string]*topicEntry // valid for topicEpoch
	lastTopic  *topicEntry            // one of them, or nil
	topicEpoch uint64
	making     map[string]*makingTopic // by name
	nextQueue  uint32                  // spreads sends that leave the queue to the broker

	send    codec.SendHeader
	pull    codec.PullHeader
	answers *codec.StoredAnswers
	record  codec.Record // the one being encoded
	cluster []byte       // the property that names the cluster, with the end of the one before it

	turn     []*send             // sends of this turn, in order of arrival
	appends  []*commitlog.Append // theirs, for the store
	arena    []byte              // theirs: the encoded records
	tickets  int                 // how many of them ask to wait for disk or slaves
	ring     *transfer.Ring      // where, for the end of the turn
	flush    bool                // they wait for the disk
	appended bool                // this turn's sends are to be seen by the dispatcher
	idle     []*send             // free list

	units  []commitlog.Unit
	ranges []logRange
	slices []commitlog.Slice
	bodies [][]byte
	head   []byte

	// unwritten is where the first message lies that was answered but whose answer the sockets do not have yet; noneUnwritten if
	// there is none. Consumers must not see it sooner. Written with doneMu held, read by the dispatcher. ending is the same for the
	// messages in ended, and written by the drain.
	unwritten, ending atomic.Int64

	ended []*send // what the ring's running drain completed; that drain's alone

	doneMu sync.Mutex
	done   []*send // completed by the ring, to be answered on the loop, in the order of the log
	posted bool    // answer is on its way to the loop
	spare  []*send // the other half of done's double buffer
	answer answerTask
}

const noneUnwritten = math.MaxInt64

// topicEntry is a topic as a loop remembers it.
type topicEntry struct {
	cfg       codec.TopicConfig
	name      []byte             // the topic's; read only
	queues    []*commitlog.Queue // by queue id, filled as used
	forbidden bool               // clients may not send here
	retry     bool               // a %RETRY% topic
}

// state is the loop's state, made at its first connection. Loop only.
func (b *Broker) state(l *engine.Loop) *loopState {
	if st, ok := l.Local().(*loopState); ok {
		return st
	}
	st := newLoopState(b, l)
	l.SetLocal(st)
	b.statesMu.Lock()
	defer b.statesMu.Unlock()
	var all []*loopState
	if p := b.states.Load(); p != nil {
		all = append(all, *p...)
	}
	all = append(all, st)
	b.states.Store(&all)
	return st
}

func newLoopState(b *Broker, l *engine.Loop) *loopState {
	st := &loopState{b: b, loop: l, topics: map[string]*topicEntry{}, making: map[string]*makingTopic{}, units: make([]commitlog.Unit, 256)}
	st.answers = codec.NewStoredAnswers(b.host)
	st.cluster = codec.AppendProperty([]byte(codec.PropCluster), codec.PropCluster, b.set.BrokerClusterName)[len(codec.PropCluster):]
	st.answer.st = st
	st.unwritten.Store(noneUnwritten)
	st.ending.Store(noneUnwritten)
	return st
}

// topic looks a topic up; nil if there is none. The result is good until the end of the turn.
func (st *loopState) topic(name []byte) *topicEntry {
	if epoch := st.b.topicEpoch.Load(); epoch != st.topicEpoch {
		clear(st.topics)
		st.lastTopic, st.topicEpoch = nil, epoch
	}
	if e := st.lastTopic; e != nil && e.cfg.TopicName == string(name) {
		return e
	}
	if e := st.topics[string(name)]; e != nil {
		st.lastTopic = e
		return e
	}
	cfg, ok := st.b.topics.Find(name)
	if !ok {
		return nil
	}
	if _, unsaved := st.b.unsaved.Load(cfg.TopicName); unsaved {
		return nil
	}
	return st.remember(cfg)
}

func (st *loopState) remember(cfg codec.TopicConfig) *topicEntry {
	e := &topicEntry{
		cfg:       cfg,
		name:      []byte(cfg.TopicName),
		queues:    make([]*commitlog.Queue, queueCount(cfg)),
		forbidden: tables.ForbiddenToSend(cfg.TopicName),
		retry:     strings.HasPrefix(cfg.TopicName, tables.RetryPrefix),
	}
	st.topics[cfg.TopicName] = e
	return e
}

// queue is the store's handle of a queue the topic has; nil if it has none of this id.
func (st *loopState) queue(e *topicEntry, id int32) *commitlog.Queue {
	if id < 0 || int(id) >= len(e.queues) {
		return nil
	}
	if q := e.queues[id]; q == nil || q.Deleted() {
		e.queues[id] = st.b.store.Queue(e.cfg.TopicName, id)
	}
	return e.queues[id]
}

// queueCount is how many queues of a topic there can be here. A topic from another broker's table whose name cannot be a folder's
// has none.
func queueCount(cfg codec.TopicConfig) int32 {
	if !commitlog.ValidTopic(cfg.TopicName) {
		return 0
	}
	return min(max(cfg.ReadQueueNums, cfg.WriteQueueNums, 0), maxQueues)
}

// topicsChanged makes every loop look topics up again, and tells the name servers.
func (b *Broker) topicsChanged() {
	b.topicEpoch.Add(1)
	if b.registrar != nil {
		b.registrar.changed()
	}
}
