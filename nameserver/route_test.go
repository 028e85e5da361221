package nameserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

const (
	addrM  = "127.0.0.1:20911"
	addrS  = "127.0.0.1:30911"
	addrS2 = "127.0.0.1:40911"
)

var start = time.UnixMilli(1_700_000_000_000)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func topicTable(names ...string) map[string]codec.TopicConfig {
	all := map[string]codec.TopicConfig{}
	for _, name := range names {
		all[name] = codec.TopicConfig{TopicName: name, ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6}
	}
	return all
}

func masterOf(name string, counter int64, topics ...string) registration {
	return registration{
		cluster: "C", name: name, addr: addrM, haAddr: "127.0.0.1:20912", conn: 1,
		version: codec.DataVersion{Timestamp: 5, Counter: counter}, topics: topicTable(topics...),
	}
}

func slaveOf(name string, id, counter int64, topics ...string) registration {
	reg := masterOf(name, counter, topics...)
	reg.id, reg.conn = id, uint64(id)+1
	reg.addr, reg.haAddr = addrS, "127.0.0.1:30912"
	if id > 1 {
		reg.addr = addrS2
	}
	return reg
}

func register(t *testing.T, r *routes, reg registration, seconds int) registered {
	t.Helper()
	got, err := r.register(reg, at(seconds))
	require.NoError(t, err)
	return got
}

func pair(t *testing.T) *routes {
	r := newRoutes(120 * time.Second)
	register(t, r, masterOf("b1", 1, "T1", "T2"), 0)
	register(t, r, slaveOf("b1", 1, 1, "T1", "T2"), 0)
	return r
}

func perm(t *testing.T, r *routes, topic, broker string) int32 {
	t.Helper()
	route, ok := r.route(topic)
	require.True(t, ok)
	for _, q := range route.QueueDatas {
		if q.BrokerName == broker {
			return q.Perm
		}
	}
	t.Fatalf("topic %s has no queues on %s", topic, broker)
	return 0
}

func TestASlaveLearnsItsMasterOnlyWhileTheMasterIsRegistered(t *testing.T) {
	r := newRoutes(120 * time.Second)
	slave := slaveOf("b1", 1, 1, "T1", "T2")
	require.Equal(t, registered{}, register(t, r, slave, 0))
	require.Equal(t, registered{}, register(t, r, masterOf("b1", 1, "T1", "T2"), 1), "a master needs no master")
	require.Equal(t, registered{addrM, "127.0.0.1:20912"}, register(t, r, slave, 2))
	r.unregister(addrM)
	require.Equal(t, registered{}, register(t, r, slave, 3))
}

func TestTopicsOfASlaveDoNotCountBesideItsMaster(t *testing.T) {
	r := pair(t)
	register(t, r, slaveOf("b1", 1, 9, "T1", "T2", "T3"), 1)
	require.Equal(t, []string{"T1", "T2"}, r.topicNames())
}

func TestTopicsOfTheSmallestIDCountWhenThereIsNoMaster(t *testing.T) {
	for name, test := range map[string]struct {
		known, acting bool
		perm          int32
	}{
		"a broker of 4.9":                    {known: false},
		"a broker of 5":                      {known: true, perm: 6},
		"a broker of 5 that acts for master": {known: true, acting: true, perm: 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoutes(120 * time.Second)
			reg := slaveOf("b1", 1, 1, "T1", "T2")
			reg.actingKnown, reg.actingMaster = test.known, test.acting
			register(t, r, reg, 0)
			if !test.known {
				require.Empty(t, r.topicNames())
				return
			}
			require.Equal(t, test.perm, perm(t, r, "T1", "b1"))
			other := slaveOf("b1", 2, 1, "T1", "T2", "T3")
			other.actingKnown = true
			register(t, r, other, 1)
			require.Equal(t, []string{"T1", "T2"}, r.topicNames(), "the larger id does not speak")
		})
	}
}

func TestAnUnknownBrokerWithOneTopicIsRefused(t *testing.T) {
	r := newRoutes(120 * time.Second)
	_, err := r.register(masterOf("b1", 1, "T1"), at(0))
	require.ErrorIs(t, err, errLoneTopic)
	require.Empty(t, r.clusterInfo().BrokerAddrTable)
	require.Empty(t, r.clusterInfo().ClusterAddrTable)

	register(t, r, masterOf("b1", 1, "T1", "T2"), 1)
	register(t, r, masterOf("b1", 2, "T3"), 2)
	require.Equal(t, []string{"T1", "T2", "T3"}, r.topicNames(), "a known one adds to what it has")
	_, err = r.register(slaveOf("b1", 1, 1, "T1"), at(3))
	require.ErrorIs(t, err, errLoneTopic, "a slave is a broker of its own")
}

func TestTopicsAreTakenOverWhenTheDataVersionIsAnother(t *testing.T) {
	change := func(counter int64) registration {
		reg := masterOf("b1", counter, "T1", "T2", "T3")
		cfg := reg.topics["T1"]
		cfg.ReadQueueNums, cfg.Perm = 8, 4
		reg.topics["T1"] = cfg
		return reg
	}
	t.Run("same version: only what is unknown", func(t *testing.T) {
		r := pair(t)
		register(t, r, change(1), 1)
		require.Equal(t, int32(6), perm(t, r, "T1", "b1"))
		require.Equal(t, []string{"T1", "T2", "T3"}, r.topicNames())
	})
	t.Run("another version: all, and what is no longer named stays", func(t *testing.T) {
		r := pair(t)
		reg := change(2)
		delete(reg.topics, "T2")
		register(t, r, reg, 1)
		require.Equal(t, int32(4), perm(t, r, "T1", "b1"))
		require.Equal(t, []string{"T1", "T2", "T3"}, r.topicNames())
	})
	t.Run("same version after the broker was gone: all", func(t *testing.T) {
		r := pair(t)
		r.unregister(addrM)
		register(t, r, change(1), 1)
		require.Equal(t, int32(4), perm(t, r, "T1", "b1"))
	})
}

func TestOneAddressIsOneBroker(t *testing.T) {
	t.Run("a slave becomes the master", func(t *testing.T) {
		r := pair(t)
		r.unregister(addrM)
		reg := slaveOf("b1", 1, 1, "T1", "T2")
		reg.id = 0
		register(t, r, reg, 1)
		require.Equal(t, map[int64]string{0: addrS}, r.members("b1"))
	})
	t.Run("a process comes back under another broker name", func(t *testing.T) {
		r := pair(t)
		r.unregister(addrS)
		register(t, r, masterOf("b2", 1, "T2", "T3"), 1)
		require.Empty(t, r.members("b1"))
		require.Equal(t, []string{"T2", "T3"}, r.topicNames())
		require.Equal(t, map[string][]string{"C": {"b2"}}, r.clusterInfo().ClusterAddrTable)
	})
	t.Run("a broker name moves to another cluster", func(t *testing.T) {
		r := pair(t)
		reg := masterOf("b1", 1, "T1", "T2")
		reg.cluster = "D"
		register(t, r, reg, 1)
		require.Equal(t, map[string][]string{"D": {"b1"}}, r.clusterInfo().ClusterAddrTable)
		route, _ := r.route("T1")
		require.Equal(t, "D", route.BrokerDatas[0].Cluster)
		r.unregister(addrS)
		r.unregister(addrM)
		require.Empty(t, r.clusterInfo().ClusterAddrTable)
	})
}

func TestOneIDIsOneBroker(t *testing.T) {
	rival := func(state int64) registration {
		reg := masterOf("b1", 1, "T1", "T2")
		reg.addr, reg.version.StateVersion = addrS2, state
		return reg
	}
	t.Run("equal state: the newcomer takes the place", func(t *testing.T) {
		r := pair(t)
		register(t, r, rival(0), 1)
		require.Equal(t, map[int64]string{0: addrS2, 1: addrS}, r.members("b1"))
		_, known := r.dataVersion(addrM)
		require.False(t, known)
	})
	t.Run("older state: the newcomer does not count", func(t *testing.T) {
		r := pair(t)
		register(t, r, rival(7), 1)
		require.Equal(t, registered{}, register(t, r, masterOf("b1", 3, "T1", "T2", "T9"), 2))
		require.Equal(t, map[int64]string{0: addrS2, 1: addrS}, r.members("b1"))
		require.Equal(t, []string{"T1", "T2"}, r.topicNames())
	})
	t.Run("older state after the other died: it counts", func(t *testing.T) {
		r := pair(t)
		register(t, r, rival(7), 1)
		r.unregister(addrS2)
		register(t, r, masterOf("b1", 3, "T1", "T2"), 2)
		require.Equal(t, map[int64]string{0: addrM, 1: addrS}, r.members("b1"))
	})
}

func TestQueuesStayWhileTheNameHasAnAddress(t *testing.T) {
	r := pair(t)
	r.unregister(addrM)
	require.Equal(t, int32(6), perm(t, r, "T1", "b1"))
	route, _ := r.route("T1")
	require.Equal(t, map[int64]string{1: addrS}, route.BrokerDatas[0].BrokerAddrs)
	r.unregister(addrS)
	_, ok := r.route("T1")
	require.False(t, ok)
	require.Empty(t, r.topicNames())
	require.Empty(t, r.clusterInfo().BrokerAddrTable)
	require.Empty(t, r.clusterInfo().ClusterAddrTable)
	require.Empty(t, r.live)
}

func TestAGroupThatActsForItsMasterIsReadOnlyWithoutIt(t *testing.T) {
	r := newRoutes(120 * time.Second)
	for _, reg := range []registration{masterOf("b1", 1, "T1", "T2"), slaveOf("b1", 1, 1, "T1", "T2")} {
		reg.actingKnown, reg.actingMaster = true, true
		register(t, r, reg, 0)
	}
	register(t, r, registration{
		cluster: "C", name: "b2", addr: addrS2, topics: topicTable("T1", "T3"),
	}, 0)
	r.unregister(addrM)
	require.Equal(t, int32(4), perm(t, r, "T1", "b1"))
	require.Equal(t, int32(6), perm(t, r, "T1", "b2"))
	reg := masterOf("b1", 1, "T1", "T2")
	reg.actingKnown, reg.actingMaster = true, true
	register(t, r, reg, 1)
	require.Equal(t, int32(6), perm(t, r, "T1", "b1"), "the master is back")
}

func TestAClosedConnectionTakesAllItsBrokersWithIt(t *testing.T) {
	r := newRoutes(120 * time.Second)
	register(t, r, masterOf("b1", 1, "T1", "T2"), 0)
	reg := slaveOf("b2", 1, 1, "T3", "T4")
	reg.id, reg.conn = 0, 1
	register(t, r, reg, 0)
	require.ElementsMatch(t, []string{addrM, addrS}, r.closed(1))
	require.Empty(t, r.topicNames())
}

func TestTheCloseOfAnOlderConnectionRemovesNothing(t *testing.T) {
	r := pair(t)
	reg := masterOf("b1", 1, "T1", "T2")
	reg.conn = 9
	register(t, r, reg, 1)
	require.Empty(t, r.closed(1))
	require.Equal(t, []string{addrM}, r.closed(9))
}

func TestSilentBrokersExpire(t *testing.T) {
	r := newRoutes(120 * time.Second)
	register(t, r, masterOf("b1", 1, "T1", "T2"), 0)
	quick := slaveOf("b1", 1, 1, "T1", "T2")
	quick.timeout = 10 * time.Second
	register(t, r, quick, 0)

	require.Empty(t, r.expired(at(10)))
	r.heartbeat(addrS, at(10))
	require.Empty(t, r.expired(at(20)))
	require.Contains(t, r.expired(at(21)), addrS, "its own time is over")
	require.Empty(t, r.expired(at(120)))
	require.Contains(t, r.expired(at(121)), addrM)
	require.Empty(t, r.topicNames())
	r.heartbeat(addrM, at(122))
	require.Empty(t, r.members("b1"), "a heartbeat registers nobody")
}

func TestWritePermissionOfABrokerCanBeTakenAndGivenBack(t *testing.T) {
	r := pair(t)
	require.Equal(t, 0, r.setWritable("nobody", false))
	require.Equal(t, 2, r.setWritable("b1", false))
	require.Equal(t, int32(4), perm(t, r, "T1", "b1"))
	register(t, r, masterOf("b1", 1, "T1", "T2"), 1)
	require.Equal(t, int32(4), perm(t, r, "T1", "b1"), "the same version changes nothing")
	require.Equal(t, 2, r.setWritable("b1", true))
	require.Equal(t, int32(6), perm(t, r, "T1", "b1"))
	r.setWritable("b1", false)
	register(t, r, masterOf("b1", 2, "T1", "T2"), 2)
	require.Equal(t, int32(6), perm(t, r, "T1", "b1"), "another version undoes it")
}

func TestATopicIsDeletedEverywhereOrInOneCluster(t *testing.T) {
	both := func() *routes {
		r := pair(t)
		register(t, r, registration{cluster: "D", name: "b2", addr: addrS2, topics: topicTable("T1", "T3")}, 0)
		return r
	}
	t.Run("everywhere", func(t *testing.T) {
		r := both()
		r.deleteTopic("T1", "")
		require.Equal(t, []string{"T2", "T3"}, r.topicNames())
	})
	t.Run("in one cluster", func(t *testing.T) {
		r := both()
		r.deleteTopic("T1", "C")
		require.Equal(t, []string{"T1", "T2", "T3"}, r.topicNames())
		require.Equal(t, []string{"T2"}, r.clusterTopics("C"))
		r.deleteTopic("T1", "D")
		require.Equal(t, []string{"T2", "T3"}, r.topicNames())
		r.deleteTopic("nothing", "D")
	})
}

func TestATopicCanBeRegisteredOnKnownBrokersOnly(t *testing.T) {
	r := pair(t)
	r.registerTopic("T9", []codec.QueueData{
		{BrokerName: "b1", ReadQueueNums: 2, WriteQueueNums: 2, Perm: 6}, {BrokerName: "stranger", Perm: 6},
	})
	route, ok := r.route("T9")
	require.True(t, ok)
	require.Len(t, route.QueueDatas, 1)
	require.Equal(t, "b1", route.QueueDatas[0].BrokerName)
}

func TestFilterServersFollowTheirBroker(t *testing.T) {
	r := pair(t)
	reg := masterOf("b1", 1, "T1", "T2")
	reg.filters = []string{"127.0.0.1:1"}
	register(t, r, reg, 1)
	route, _ := r.route("T1")
	require.Equal(t, map[string][]string{addrM: {"127.0.0.1:1"}}, route.FilterServerTable)
	register(t, r, masterOf("b1", 1, "T1", "T2"), 2)
	route, _ = r.route("T1")
	require.Empty(t, route.FilterServerTable)
}
