package tables

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tandem/codec"
)

const (
	offsetsFile = "consumerOffset.json"

	// commitsPerVersion is how many commits make a new data version, as in
	// ConsumerOffsetManager of Apache RocketMQ 5.
	commitsPerVersion = 500
)

// MergePolicy says what a table does with the progress another broker sends.
type MergePolicy int

const (
	// Follow takes what the other has, downwards too, as an Apache slave
	// does: the other is the master and the only one who knows.
	Follow MergePolicy = iota
	// Raise takes only what is further ahead than here: both went on by
	// themselves, and progress is not lost by listening.
	Raise
)

// Position is one queue's progress in one group.
type Position struct {
	Group, Topic string
	Queue        int32
	Offset       int64
}

// MergeResult is what Merge did.
type MergeResult struct {
	// Changed is the number of queues whose offset is new or other than before.
	Changed int
	// Ahead, with Raise, is where this table was, and stays, further ahead
	// than the other one: what the other should hear of.
	Ahead []Position
}

// Offsets is the table of how far each group has consumed each queue: the next
// offset it wants. See the package comment for goroutine rules.
type Offsets struct {
	files Files

	consumed positions
	pulled   positions // pulled but maybe not consumed; for statistics alone

	commits atomic.Uint64
	changes atomic.Uint64 // grows after each change
	saved   uint64        // value of changes on disk; guarded by saving

	mu      sync.Mutex // guards version
	version codec.DataVersion

	saving sync.Mutex // one Persist at a time; taken before every other lock
}

// NewOffsets returns an empty table.
func NewOffsets(files Files) *Offsets {
	o := &Offsets{files: files}
	o.consumed.init()
	o.pulled.init()
	o.version.Timestamp = files.now()
	return o
}

// Load fills the table from consumerOffset.json. No file is no error. The error
// is ErrDamaged.
func (o *Offsets) Load() error {
	from, err := load[codec.ConsumerOffsets](o.files, offsetsFile)
	if err != nil || from == nil {
		return err
	}
	o.fill(from)
	return nil
}

func (o *Offsets) fill(from *codec.ConsumerOffsets) {
	o.consumed.load(from.OffsetTable)
	o.pulled.load(from.PullOffsetTable)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version = from.DataVersion
}

// Commit stores the next offset a group wants from a queue. It may be lower than
// before: that is how a reset works. A negative queue or offset, which no client
// can mean, is ignored. After the first commit to a queue it does not allocate.
func (o *Offsets) Commit(group, topic string, queue int32, offset int64) {
	if queue >= 0 && offset >= 0 && o.consumed.set(groupTopic{group: group, topic: topic}, queue, offset) {
		o.committed()
	}
}

// CommitBytes is Commit for names that still lie in a frame.
func (o *Offsets) CommitBytes(group, topic []byte, queue int32, offset int64) {
	if queue >= 0 && offset >= 0 && o.consumed.setBytes(group, topic, queue, offset) {
		o.committed()
	}
}

// CommitPull notes up to where a group has pulled a queue.
func (o *Offsets) CommitPull(group, topic string, queue int32, offset int64) {
	if queue >= 0 && offset >= 0 && o.pulled.set(groupTopic{group: group, topic: topic}, queue, offset) {
		o.changes.Add(1)
	}
}

// committed counts a commit that changed something.
func (o *Offsets) committed() {
	if o.commits.Add(1)%commitsPerVersion == 0 {
		o.raiseVersion()
	}
	o.changes.Add(1)
}

func (o *Offsets) raiseVersion() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version.Counter++
	o.version.Timestamp = o.files.now()
}

// Query returns the next offset a group wants from a queue, if it ever said.
func (o *Offsets) Query(group, topic string, queue int32) (int64, bool) {
	return o.consumed.get(groupTopic{group: group, topic: topic}, queue)
}

// QueryPull returns up to where a group has pulled a queue, if it ever did.
func (o *Offsets) QueryPull(group, topic string, queue int32) (int64, bool) {
	return o.pulled.get(groupTopic{group: group, topic: topic}, queue)
}

// Queues returns the offsets of all queues of one group and topic: a copy, nil
// if there are none.
func (o *Offsets) Queues(group, topic string) map[int32]int64 {
	return o.consumed.queues(groupTopic{group: group, topic: topic})
}

// ByTopic returns the groups that have offsets in a topic, sorted.
func (o *Offsets) ByTopic(topic string) []string {
	var groups []string
	o.consumed.each(func(k groupTopic, _ map[int32]int64) {
		if k.topic == topic {
			groups = append(groups, k.group)
		}
	})
	slices.Sort(groups)
	return groups
}

// ByGroup returns the topics a group has offsets in, sorted.
func (o *Offsets) ByGroup(group string) []string {
	var topics []string
	o.consumed.each(func(k groupTopic, _ map[int32]int64) {
		if k.group == group {
			topics = append(topics, k.topic)
		}
	})
	slices.Sort(topics)
	return topics
}

// DeleteTopic forgets every group's offsets in a topic.
func (o *Offsets) DeleteTopic(topic string) {
	o.deleteIf(func(k groupTopic) bool { return k.topic == topic })
}

// DeleteGroup forgets a group's offsets in every topic.
func (o *Offsets) DeleteGroup(group string) {
	o.deleteIf(func(k groupTopic) bool { return k.group == group })
}

func (o *Offsets) deleteIf(match func(groupTopic) bool) {
	n := o.consumed.deleteIf(match)
	if n+o.pulled.deleteIf(match) == 0 {
		return
	}
	o.raiseVersion()
	o.changes.Add(1)
}

// Snapshot returns the table: consistent for each group and topic, and for all
// if nobody commits meanwhile. It is what the file and the answer to a slave hold.
func (o *Offsets) Snapshot() codec.ConsumerOffsets {
	o.mu.Lock()
	c := codec.ConsumerOffsets{DataVersion: o.version}
	o.mu.Unlock()
	c.OffsetTable = o.consumed.snapshot()
	c.PullOffsetTable = o.pulled.snapshot()
	c.GroupTopicMap = map[string][]string{}
	for text := range c.OffsetTable {
		if k := parseGroupTopic(text); !k.strange {
			c.GroupTopicMap[k.group] = append(c.GroupTopicMap[k.group], k.topic)
		}
	}
	for _, topics := range c.GroupTopicMap {
		slices.Sort(topics)
	}
	return c
}

// Merge takes progress from another broker. Groups and topics it does not name
// stay as they are. With Follow each group and topic it names gets exactly
// the queues it names there, and its data version is taken over; with Raise no
// offset falls and no queue goes. An empty table changes nothing.
func (o *Offsets) Merge(from codec.ConsumerOffsets, policy MergePolicy) MergeResult {
	var r MergeResult
	for text, queues := range from.OffsetTable {
		k := parseGroupTopic(text)
		if policy == Follow {
			r.Changed += o.consumed.replace(k, queues)
			continue
		}
		changed, ahead := o.consumed.raise(k, queues)
		r.Changed += changed
		r.Ahead = append(r.Ahead, ahead...)
	}
	versionIsNew := policy == Follow && len(from.OffsetTable) > 0 && o.takeVersion(from.DataVersion)
	if r.Changed > 0 || versionIsNew {
		o.changes.Add(1)
	}
	if r.Changed > 0 && policy == Raise {
		o.raiseVersion()
	}
	return r
}

// takeVersion stores the master's version; 4.9 sends none.
func (o *Offsets) takeVersion(v codec.DataVersion) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v == (codec.DataVersion{}) || v == o.version {
		return false
	}
	o.version = v
	return true
}

// Persist writes consumerOffset.json if anything changed since it was last written.
func (o *Offsets) Persist() error {
	o.saving.Lock()
	defer o.saving.Unlock()
	changes := o.changes.Load()
	if changes == o.saved {
		return nil
	}
	if err := o.files.save(offsetsFile, o.Snapshot()); err != nil {
		return err
	}
	o.saved = changes
	return nil
}

// groupTopic is the key of a set of queues.
type groupTopic struct {
	group, topic string
	strange      bool // a key without @: of no use to us, and kept
}

// text is the key's form in files and on the wire: topic@group.
func (k groupTopic) text() string {
	if k.strange {
		return k.topic
	}
	return k.topic + "@" + k.group
}

func parseGroupTopic(text string) groupTopic {
	topic, group, ok := strings.Cut(text, "@")
	return groupTopic{group: group, topic: topic, strange: !ok}
}

const positionShards = 16

// positions maps group and topic to the offsets of its queues, in shards by
// group so that commits wait for each other rarely and for a snapshot shortly.
type positions struct {
	shards [positionShards]positionShard
}

type positionShard struct {
	mu sync.Mutex
	m  map[groupTopic]map[int32]int64
}

func (p *positions) init() {
	for i := range p.shards {
		p.shards[i].m = map[groupTopic]map[int32]int64{}
	}
}

func (p *positions) shard(group string) *positionShard {
	h := uint32(2166136261)
	for i := range len(group) {
		h = (h ^ uint32(group[i])) * 16777619
	}
	return &p.shards[h%positionShards]
}

func (p *positions) shardBytes(group []byte) *positionShard {
	h := uint32(2166136261)
	for _, c := range group {
		h = (h ^ uint32(c)) * 16777619
	}
	return &p.shards[h%positionShards]
}

func (p *positions) get(k groupTopic, queue int32) (int64, bool) {
	s := p.shard(k.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	offset, ok := s.m[k][queue]
	return offset, ok
}

// set says whether it changed anything.
func (p *positions) set(k groupTopic, queue int32, offset int64) bool {
	s := p.shard(k.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := s.m[k]
	if queues == nil {
		queues = map[int32]int64{}
		s.m[groupTopic{group: strings.Clone(k.group), topic: strings.Clone(k.topic)}] = queues
	}
	return setQueue(queues, queue, offset)
}

func (p *positions) setBytes(group, topic []byte, queue int32, offset int64) bool {
	s := p.shardBytes(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := s.m[groupTopic{group: string(group), topic: string(topic)}]
	if queues == nil {
		queues = map[int32]int64{}
		s.m[groupTopic{group: string(group), topic: string(topic)}] = queues
	}
	return setQueue(queues, queue, offset)
}

func setQueue(queues map[int32]int64, queue int32, offset int64) bool {
	if was, ok := queues[queue]; ok && was == offset {
		return false
	}
	queues[queue] = offset
	return true
}

func (p *positions) queues(k groupTopic) map[int32]int64 {
	s := p.shard(k.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.m[k])
}

// each calls yield under a shard's lock.
func (p *positions) each(yield func(k groupTopic, queues map[int32]int64)) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		for k, queues := range s.m {
			yield(k, queues)
		}
		s.mu.Unlock()
	}
}

func (p *positions) snapshot() map[string]map[int32]int64 {
	all := map[string]map[int32]int64{}
	p.each(func(k groupTopic, queues map[int32]int64) { all[k.text()] = maps.Clone(queues) })
	return all
}

func (p *positions) load(from map[string]map[int32]int64) {
	for text, queues := range from {
		p.replace(parseGroupTopic(text), queues)
	}
}

// replace makes the key's queues equal to queues and returns how many changed
// or went.
func (p *positions) replace(k groupTopic, queues map[int32]int64) (changed int) {
	s := p.shard(k.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.m[k]
	for queue, offset := range queues {
		if was, ok := old[queue]; !ok || was != offset {
			changed++
		}
	}
	for queue := range old {
		if _, ok := queues[queue]; !ok {
			changed++
		}
	}
	if changed > 0 {
		s.m[k] = maps.Clone(queues)
	}
	return changed
}

func (p *positions) raise(k groupTopic, queues map[int32]int64) (changed int, ahead []Position) {
	s := p.shard(k.group)
	s.mu.Lock()
	defer s.mu.Unlock()
	here := s.m[k]
	if here == nil {
		here = map[int32]int64{}
		s.m[k] = here
	}
	for queue, offset := range queues {
		switch was, ok := here[queue]; {
		case !ok || was < offset:
			here[queue] = offset
			changed++
		case was > offset:
			ahead = append(ahead, Position{k.group, k.topic, queue, was})
		}
	}
	return changed, ahead
}

func (p *positions) deleteIf(match func(groupTopic) bool) (n int) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		for k := range s.m {
			if match(k) {
				delete(s.m, k)
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}
