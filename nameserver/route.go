package nameserver

import (
	"errors"
	"maps"
	"slices"
	"time"

	"tandem/codec"
)

const masterID int64 = 0

// errLoneTopic refuses the first registration of a broker that names one topic
// only: that is what a change looks like, and the rest would stay unknown for as
// long as the data version stays (RouteInfoManager since 5.0.0).
var errLoneTopic = errors.New("an unknown broker has to register all its topics, not a single one")

// routes holds what the brokers said. It does no I/O, takes the time as an
// argument, and belongs to one goroutine.
type routes struct {
	expiry time.Duration // for a broker that names no time of its own

	clusters map[string]map[string]struct{}         // cluster → broker names
	brokers  map[string]*codec.BrokerData           // broker name → its addresses
	topics   map[string]map[string]*codec.QueueData // topic → broker name → queues
	live     map[string]*liveBroker                 // address → broker process
	filters  map[string][]string                    // address → its filter servers
}

// liveBroker is one registered broker process. Its address tells it from others.
type liveBroker struct {
	cluster string
	name    string
	id      int64
	version codec.DataVersion
	haAddr  string
	conn    uint64 // the connection of its last registration
	seen    time.Time
	timeout time.Duration
}

func newRoutes(expiry time.Duration) *routes {
	return &routes{
		expiry:   expiry,
		clusters: map[string]map[string]struct{}{},
		brokers:  map[string]*codec.BrokerData{},
		topics:   map[string]map[string]*codec.QueueData{},
		live:     map[string]*liveBroker{},
		filters:  map[string][]string{},
	}
}

// registration is one broker's word about itself.
type registration struct {
	cluster, name, addr, haAddr string
	zone                        string
	id                          int64
	timeout                     time.Duration // 0: the server's
	// actingKnown says that the broker named actingMaster at all, as
	// brokers since 5.0 do.
	actingKnown, actingMaster bool
	conn                      uint64

	version codec.DataVersion
	topics  map[string]codec.TopicConfig
	filters []string
}

// registered is the name server's answer, empty for a master.
type registered struct{ masterAddr, haServerAddr string }

// register takes a broker in, or renews it. The error is errLoneTopic; nothing
// changed then.
func (r *routes) register(reg registration, now time.Time) (registered, error) {
	if r.outdated(reg) {
		delete(r.live, reg.addr)
		return registered{}, nil
	}
	if len(reg.topics) == 1 && !r.knows(reg.name, reg.id) {
		return registered{}, errLoneTopic
	}
	r.forgetOtherPlaces(reg)
	first := r.enter(reg)
	if r.topicsCount(reg) {
		r.takeTopics(reg, first)
	}
	r.live[reg.addr] = &liveBroker{
		cluster: reg.cluster, name: reg.name, id: reg.id, version: reg.version, haAddr: reg.haAddr,
		conn: reg.conn, seen: now, timeout: reg.timeout,
	}
	if len(reg.filters) > 0 {
		r.filters[reg.addr] = reg.filters
	} else {
		delete(r.filters, reg.addr)
	}
	return r.master(reg), nil
}

// outdated says whether another broker lives under the same name and id with
// newer state, so that this one's word does not count.
func (r *routes) outdated(reg registration) bool {
	data := r.brokers[reg.name]
	if data == nil {
		return false
	}
	addr, ok := data.BrokerAddrs[reg.id]
	if !ok || addr == reg.addr {
		return false
	}
	other := r.live[addr]
	return other != nil && other.version.StateVersion > reg.version.StateVersion
}

func (r *routes) knows(name string, id int64) bool {
	data := r.brokers[name]
	if data == nil {
		return false
	}
	_, ok := data.BrokerAddrs[id]
	return ok
}

// forgetOtherPlaces removes what the address or the id was before: the address
// under another id (a slave that became the master), another name or cluster,
// and the address that had the id until now.
func (r *routes) forgetOtherPlaces(reg registration) {
	if was := r.live[reg.addr]; was != nil && (was.name != reg.name || was.cluster != reg.cluster) {
		r.remove(reg.addr)
	}
	data := r.brokers[reg.name]
	if data == nil {
		return
	}
	for id, addr := range data.BrokerAddrs {
		if addr == reg.addr && id != reg.id {
			delete(data.BrokerAddrs, id)
		}
	}
	if addr, ok := data.BrokerAddrs[reg.id]; ok && addr != reg.addr {
		delete(r.live, addr)
		delete(r.filters, addr)
	}
}

// enter puts the broker into cluster and address tables and says whether its
// name or id is new there.
func (r *routes) enter(reg registration) (first bool) {
	names := r.clusters[reg.cluster]
	if names == nil {
		names = map[string]struct{}{}
		r.clusters[reg.cluster] = names
	}
	names[reg.name] = struct{}{}

	data := r.brokers[reg.name]
	if data == nil {
		data = &codec.BrokerData{Cluster: reg.cluster, BrokerName: reg.name, BrokerAddrs: map[int64]string{}}
		r.brokers[reg.name] = data
	}
	if data.Cluster != reg.cluster {
		r.leaveCluster(data.Cluster, reg.name)
		data.Cluster = reg.cluster
	}
	data.EnableActingMaster = reg.actingMaster
	data.ZoneName = reg.zone
	_, known := data.BrokerAddrs[reg.id]
	data.BrokerAddrs[reg.id] = reg.addr
	return !known
}

// topicsCount says whether this broker speaks for its name: the master does,
// and among brokers since 5.0 the smallest id while there is no master.
func (r *routes) topicsCount(reg registration) bool {
	if reg.id == masterID {
		return true
	}
	return reg.actingKnown && smallest(r.brokers[reg.name].BrokerAddrs) == reg.id
}

func smallest(addrs map[int64]string) int64 {
	return slices.Min(slices.Collect(maps.Keys(addrs)))
}

// takeTopics takes all topics if the data version is another one than last time,
// else only those not known yet. Topics that are no longer named stay.
func (r *routes) takeTopics(reg registration, first bool) {
	was := r.live[reg.addr]
	all := first || was == nil || was.version != reg.version
	for topic, cfg := range reg.topics {
		if !all && r.topics[topic][reg.name] != nil {
			continue
		}
		perm := cfg.Perm
		if reg.id != masterID && reg.actingMaster {
			perm &^= codec.PermWrite
		}
		r.setQueues(topic, codec.QueueData{
			BrokerName: reg.name, ReadQueueNums: cfg.ReadQueueNums, WriteQueueNums: cfg.WriteQueueNums,
			Perm: perm, TopicSysFlag: cfg.TopicSysFlag,
		})
	}
}

func (r *routes) setQueues(topic string, queues codec.QueueData) {
	byBroker := r.topics[topic]
	if byBroker == nil {
		byBroker = map[string]*codec.QueueData{}
		r.topics[topic] = byBroker
	}
	byBroker[queues.BrokerName] = &queues
}

// master is what a slave wants to know.
func (r *routes) master(reg registration) registered {
	if reg.id == masterID {
		return registered{}
	}
	addr := r.brokers[reg.name].BrokerAddrs[masterID]
	live := r.live[addr]
	if live == nil {
		return registered{}
	}
	return registered{masterAddr: addr, haServerAddr: live.haAddr}
}

// registerTopic takes one topic's queues on known brokers.
func (r *routes) registerTopic(topic string, queues []codec.QueueData) {
	for _, q := range queues {
		if r.brokers[q.BrokerName] != nil {
			r.setQueues(topic, q)
		}
	}
}

// dataVersion returns the version a broker last registered with; false if it
// is not registered.
func (r *routes) dataVersion(addr string) (codec.DataVersion, bool) {
	live := r.live[addr]
	if live == nil {
		return codec.DataVersion{}, false
	}
	return live.version, true
}

// heartbeat renews a registered broker.
func (r *routes) heartbeat(addr string, now time.Time) {
	if live := r.live[addr]; live != nil {
		live.seen = now
	}
}

// unregister removes one broker by its address.
func (r *routes) unregister(addr string) { r.remove(addr) }

// closed removes every broker whose last registration came by the connection.
func (r *routes) closed(conn uint64) (removed []string) {
	for addr, live := range r.live {
		if live.conn == conn {
			removed = append(removed, addr)
		}
	}
	r.remove(removed...)
	return removed
}

// expired removes every broker that was silent for too long and returns them.
func (r *routes) expired(now time.Time) (removed map[string]*liveBroker) {
	for addr, live := range r.live {
		timeout := live.timeout
		if timeout <= 0 {
			timeout = r.expiry
		}
		if now.Sub(live.seen) <= timeout {
			continue
		}
		if removed == nil {
			removed = map[string]*liveBroker{}
		}
		removed[addr] = live
	}
	r.remove(slices.Collect(maps.Keys(removed))...)
	return removed
}

// remove takes brokers out of every table, all in one pass over the topics.
// While a name has an address left its queues stay, so that clients can
// read from a slave; without the master of a group that may act for it they lose
// the write bit.
func (r *routes) remove(addrs ...string) {
	gone, reduced := map[string]bool{}, map[string]bool{}
	for _, addr := range addrs {
		delete(r.live, addr)
		delete(r.filters, addr)
		for name, data := range r.brokers {
			if !removeAddr(data.BrokerAddrs, addr) {
				continue
			}
			if len(data.BrokerAddrs) > 0 {
				_, hasMaster := data.BrokerAddrs[masterID]
				reduced[name] = data.EnableActingMaster && !hasMaster
				continue
			}
			gone[name] = true
			delete(r.brokers, name)
			r.leaveCluster(data.Cluster, name)
		}
	}
	r.cleanTopics(gone, reduced)
}

func removeAddr(addrs map[int64]string, addr string) (removed bool) {
	n := len(addrs)
	maps.DeleteFunc(addrs, func(_ int64, a string) bool { return a == addr })
	return len(addrs) < n
}

func (r *routes) leaveCluster(cluster, name string) {
	delete(r.clusters[cluster], name)
	if len(r.clusters[cluster]) == 0 {
		delete(r.clusters, cluster)
	}
}

func (r *routes) cleanTopics(gone, readOnly map[string]bool) {
	if len(gone) == 0 && !slices.Contains(slices.Collect(maps.Values(readOnly)), true) {
		return
	}
	for topic, byBroker := range r.topics {
		for name, queues := range byBroker {
			switch {
			case gone[name]:
				delete(byBroker, name)
			case readOnly[name]:
				queues.Perm &^= codec.PermWrite
			}
		}
		if len(byBroker) == 0 {
			delete(r.topics, topic)
		}
	}
}

// setWritable sets or clears the write bit of all topics of a broker name and
// returns how many it has. A later registration with another data version
// undoes it.
func (r *routes) setWritable(name string, writable bool) (topics int) {
	for _, byBroker := range r.topics {
		queues := byBroker[name]
		if queues == nil {
			continue
		}
		topics++
		if writable {
			queues.Perm |= codec.PermRead | codec.PermWrite
		} else {
			queues.Perm &^= codec.PermWrite
		}
	}
	return topics
}

// deleteTopic forgets a topic, with a cluster only on the brokers of that one.
func (r *routes) deleteTopic(topic, cluster string) {
	if cluster == "" {
		delete(r.topics, topic)
		return
	}
	byBroker := r.topics[topic]
	for name := range r.clusters[cluster] {
		delete(byBroker, name)
	}
	if len(byBroker) == 0 {
		delete(r.topics, topic)
	}
}

// route says where a topic is; false if nobody has it.
func (r *routes) route(topic string) (route codec.TopicRoute, ok bool) {
	byBroker := r.topics[topic]
	for _, name := range slices.Sorted(maps.Keys(byBroker)) {
		route.QueueDatas = append(route.QueueDatas, *byBroker[name])
		data := r.brokers[name]
		if data == nil {
			continue
		}
		route.BrokerDatas = append(route.BrokerDatas, *data)
		for _, addr := range data.BrokerAddrs {
			if filters := r.filters[addr]; len(filters) > 0 {
				if route.FilterServerTable == nil {
					route.FilterServerTable = map[string][]string{}
				}
				route.FilterServerTable[addr] = filters
			}
		}
	}
	return route, len(route.BrokerDatas) > 0
}

// clusterInfo returns all brokers and clusters.
func (r *routes) clusterInfo() codec.ClusterInfo {
	info := codec.ClusterInfo{
		BrokerAddrTable:  make(map[string]codec.BrokerData, len(r.brokers)),
		ClusterAddrTable: make(map[string][]string, len(r.clusters)),
	}
	for name, data := range r.brokers {
		info.BrokerAddrTable[name] = *data
	}
	for cluster, names := range r.clusters {
		info.ClusterAddrTable[cluster] = slices.Sorted(maps.Keys(names))
	}
	return info
}

// topicNames returns all topics, sorted.
func (r *routes) topicNames() []string { return slices.Sorted(maps.Keys(r.topics)) }

// clusterTopics returns the topics on any broker of the cluster, sorted.
func (r *routes) clusterTopics(cluster string) []string {
	var topics []string
	for topic, byBroker := range r.topics {
		for name := range byBroker {
			if _, ok := r.clusters[cluster][name]; ok {
				topics = append(topics, topic)
				break
			}
		}
	}
	slices.Sort(topics)
	return topics
}

// systemTopics returns the names of the clusters and brokers, which are topics,
// too, and the address of some broker.
func (r *routes) systemTopics() (topics []string, brokerAddr string) {
	for _, cluster := range slices.Sorted(maps.Keys(r.clusters)) {
		topics = append(topics, cluster)
		topics = append(topics, slices.Sorted(maps.Keys(r.clusters[cluster]))...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.brokers)) {
		addrs := r.brokers[name].BrokerAddrs
		return topics, addrs[smallest(addrs)]
	}
	return topics, ""
}

// members returns the addresses registered under a broker name: a copy.
func (r *routes) members(name string) map[int64]string {
	if data := r.brokers[name]; data != nil {
		return maps.Clone(data.BrokerAddrs)
	}
	return map[int64]string{}
}
