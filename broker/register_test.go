package broker

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/nameserver"
	"tandem/transfer"
)

func startNames(t *testing.T) *nameserver.Server {
	t.Helper()
	ns, err := nameserver.Start(nameserver.Options{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ns.Shutdown(testContext(t))) })
	return ns
}

// hangingServer accepts and never answers.
func hangingServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// routeOf is what a name server says of a topic, nil if it does not know it.
func routeOf(b *testBroker, names, topic string) *codec.TopicRoute {
	b.t.Helper()
	resp, err := b.client.Call(testContext(b.t), names, codec.NewRequest(codec.ReqGetRouteInfoByTopic, map[string]string{"topic": topic, "acceptStandardJsonOnly": "true"}, nil))
	require.NoError(b.t, err)
	if resp.Code != codec.Success {
		return nil
	}
	var r codec.TopicRoute
	require.NoError(b.t, codec.Unmarshal(resp.Body, &r))
	return &r
}

func TestANameServerThatHangsOrIsGoneDelaysNobody(t *testing.T) {
	first, second := startNames(t), startNames(t)
	gone := hangingServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := l.Addr().String()
	require.NoError(t, l.Close())
	begin := time.Now()
	b := startBroker(t, map[string]string{"namesrvAddr": strings.Join([]string{gone, closed, first.Addr().String(), second.Addr().String()}, ";")})
	require.Less(t, time.Since(begin), 10*time.Second, "the start waited for a name server")
	require.Equal(t, codec.Success, b.send("Fresh", 0, "", "x").Code)
	for _, ns := range []*nameserver.Server{first, second} {
		require.Eventually(t, func() bool { return routeOf(b, ns.Addr().String(), "Fresh") != nil }, 5*time.Second, 10*time.Millisecond,
			"a new topic is told to every name server at once")
	}
}

func TestANameServerThatComesLaterIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	b := startBroker(t, map[string]string{"namesrvAddr": addr})
	ns, err := nameserver.Start(nameserver.Options{Addr: addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ns.Shutdown(testContext(t))) })
	require.Eventually(t, func() bool { return routeOf(b, addr, "TBW102") != nil }, 15*time.Second, 20*time.Millisecond)
}

func TestABrokerThatStopsIsForgottenAtOnce(t *testing.T) {
	ns := startNames(t)
	b := startBroker(t, map[string]string{"namesrvAddr": ns.Addr().String()})
	require.Eventually(t, func() bool { return routeOf(b, ns.Addr().String(), "TBW102") != nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, b.Broker.Close(testContext(t)))
	require.Nil(t, routeOf(b, ns.Addr().String(), "TBW102"))
}

func TestASlaveWithoutAMasterWaitsAndFindsItByTheNameServer(t *testing.T) {
	ns := startNames(t)
	s := startBroker(t, map[string]string{"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": ns.Addr().String()})
	require.Eventually(t, func() bool {
		st := s.slave.Load().Status()
		return st.State == transfer.Waiting && strings.Contains(st.LastError, "no name server")
	}, 5*time.Second, 5*time.Millisecond)
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER", "namesrvAddr": ns.Addr().String()})
	m.awaitUsable(1)
	require.Equal(t, codec.Success, m.send("T", 0, "", "x").Code)
	route := routeOf(m, ns.Addr().String(), "T")
	require.NotNil(t, route)
	require.Equal(t, m.addr, route.BrokerDatas[0].BrokerAddrs[0])
	require.Equal(t, s.addr, route.BrokerDatas[0].BrokerAddrs[1])
}

func TestASlaveTakesTablesOnlyFromTheMasterWhoseLogItFollows(t *testing.T) {
	m := startBroker(t, nil)
	s := startBroker(t, map[string]string{"brokerRole": "SLAVE", "brokerId": "1"})
	s.peer.learn(m.addr, m.master.Load().Addr().String())
	require.Equal(t, codec.Success, m.send("T", 0, "", "x").Code)
	s.awaitEnd(m)
	require.Eventually(t, func() bool { _, known := s.topics.Get("T"); return known }, 10*time.Second, 5*time.Millisecond)

	other := startBroker(t, nil) // of the same name, and empty
	s.peer.learn(other.addr, other.master.Load().Addr().String())
	refused := func() bool { return s.slave.Load().Status().State == transfer.Refused }
	require.Eventually(t, refused, 20*time.Second, 5*time.Millisecond, "the other log is found to be another one")
	rounds := other.master.Load().Status().Refused
	require.Never(t, func() bool { _, known := s.topics.Get("T"); return !known }, 5*s.set.SlaveSyncMetadataInterval.Duration(), 10*time.Millisecond)
	require.True(t, refused())
	require.GreaterOrEqual(t, other.master.Load().Status().Refused, rounds)
	require.Equal(t, []string{"x"}, s.consumed("T", 0, 1))
}

func TestSetAddressesOfTheMasterWinOverWhatNameServersSay(t *testing.T) {
	m := startBroker(t, nil)
	s := startSlave(t, m, "1", map[string]string{"masterAddr": ""}) // one below the HA port, unless set
	following := func() bool { return s.peer.checked() == m.addr && s.slave.Load().Status().State == transfer.Transfer }
	require.Eventually(t, following, 10*time.Second, 5*time.Millisecond)
	sessions := s.slave.Load().Status().Sessions
	s.peer.learn("127.0.0.1:1", "127.0.0.1:2")
	require.Equal(t, codec.Success, m.send("Later", 0, "", "x").Code)
	require.Eventually(t, func() bool { _, known := s.topics.Get("Later"); return known && following() }, 10*time.Second, 5*time.Millisecond,
		"the slave stays with the master that was set, and keeps taking over its tables")
	require.Equal(t, sessions, s.slave.Load().Status().Sessions)
}
