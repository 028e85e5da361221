package interop

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// TestAdminToolWorks runs Apache's mqadmin against our broker and name server: each command must print what an operator looks for,
// and no stack trace.
func TestAdminToolWorks(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			needApache(t)
			testAdminTool(t, version)
		})
	}
}

func testAdminTool(t *testing.T, version string) {
	s := newSite(t, ours())
	master := s.master(ours(), "SYNC_MASTER")
	slave := s.slave(ours(), 1)
	seed(t, s.wire, master)
	book := newLedger()
	s.joined(book, master, topic)
	eventually(t, patience, func() bool { return knowsBoth(s, master, slave) }, "the name server knows both brokers")

	type command struct {
		args  []string
		shows []string
	}
	commands := []command{
		{[]string{"clusterList", "-n", s.namesrv}, []string{"C", "b1", master.addr, slave.addr}},
		{[]string{"topicList", "-n", s.namesrv}, []string{topic}},
		{[]string{"topicRoute", "-n", s.namesrv, "-t", topic}, []string{master.addr, slave.addr, `"writeQueueNums":4`}},
		{[]string{"brokerStatus", "-n", s.namesrv, "-b", master.addr}, []string{"commitLogMaxOffset", "putTps", "bootTimestamp"}},
		{[]string{"getBrokerConfig", "-n", s.namesrv, "-b", master.addr}, []string{"brokerRole", "SYNC_MASTER", "mappedFileSizeCommitLog", segment16M}},
		{[]string{"updateTopic", "-n", s.namesrv, "-c", "C", "-t", "MadeByTool", "-r", "3", "-w", "3"}, []string{"create topic to " + master.addr + " success"}},
	}
	if version != "4.9.7" {
		commands = append(commands,
			command{[]string{"haStatus", "-n", s.namesrv, "-b", master.addr}, []string{"127.0.0.1"}}, // 4.9.7 has no such command
			command{[]string{"getBrokerConfig", "-n", s.namesrv, "-b", slave.addr}, []string{"brokerRole", "SLAVE"}},
			command{[]string{"updateTopic", "-n", s.namesrv, "-b", master.addr, "-t", "MadeByTool", "-r", "5", "-w", "5"}, []string{"success"}},
			command{[]string{"topicStatus", "-n", s.namesrv, "-t", topic}, []string{"b1"}},
		)
	}
	for _, c := range commands {
		out := mqadmin(t, s, version, c.args...)
		for _, text := range c.shows {
			require.Contains(t, squeeze(out), squeeze(text), "mqadmin %v printed:\n%s", c.args, out)
		}
		require.NotContains(t, out, "Exception", "mqadmin %v", c.args)
	}
	queues := map[string]string{"4.9.7": "3", "5.5.0": "5"}[version]
	resp := s.wire.ask(t, s.namesrv, codec.ReqGetRouteInfoByTopic, map[string]string{"topic": "MadeByTool", "acceptStandardJsonOnly": "true"}, nil)
	require.Contains(t, string(resp.Body), `"writeQueueNums":`+queues, "the route of the topic made")
}

func mqadmin(t testing.TB, s *site, version string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := needApache(t)[version].MQAdmin(ctx, filepath.Join(s.dir, "mqadmin"), args...)
	require.NoError(t, err, "mqadmin %v printed:\n%s", args, out)
	return out
}

// squeeze takes the blanks out: the tools pad their tables, and lay out JSON, each version in its own way.
func squeeze(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] > ' ' {
			b = append(b, s[i])
		}
	}
	return string(b)
}

func knowsBoth(s *site, master, slave *node) bool {
	resp, err := s.wire.call(s.namesrv, codec.ReqGetBrokerClusterInfo, nil, nil)
	if err != nil || resp.Code != codec.Success {
		return false
	}
	var info codec.ClusterInfo
	if codec.Unmarshal(resp.Body, &info) != nil {
		return false
	}
	addrs := info.BrokerAddrTable["b1"].BrokerAddrs
	return addrs[0] == master.addr && addrs[1] == slave.addr
}
