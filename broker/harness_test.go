package broker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"tandem/broker/settings"
	"tandem/codec"
	"tandem/engine"
)

// gnet starts goroutines of its own when it is loaded.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// testBroker is a broker on free ports of the loopback, with a client to ask it.
type testBroker struct {
	*Broker
	t      testing.TB
	client *engine.Client
	addr   string
	conf   map[string]string
}

// startBroker starts a broker with small files; conf overrides its settings.
func startBroker(t testing.TB, conf map[string]string) *testBroker {
	t.Helper()
	port := freePorts(t)
	all := map[string]string{
		"brokerName": "b1", "brokerClusterName": "C", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1",
		"listenPort": strconv.Itoa(port), "storePathRootDir": filepath.Join(t.TempDir(), "store"),
		"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "2000", "slaveSyncMetadataInterval": "200",
	}
	for k, v := range conf {
		all[k] = v
	}
	return runBroker(t, all)
}

// runBroker starts a broker with exactly these settings.
func runBroker(t testing.TB, conf map[string]string) *testBroker {
	t.Helper()
	set, _, err := settings.Load("", conf)
	require.NoError(t, err)
	b, err := Start(set, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
	require.NoError(t, err)
	tb := &testBroker{Broker: b, t: t, client: engine.NewClient(engine.ClientOptions{CallTimeout: 10 * time.Second}),
		addr: "127.0.0.1:" + conf["listenPort"], conf: conf}
	t.Cleanup(func() {
		tb.client.Close()
		require.NoError(t, b.Close(testContext(t)))
	})
	return tb
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// freePorts finds a port whose neighbours (VIP two below, HA one above) are free too.
func freePorts(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
		if free(port-2) && free(port+1) {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}

// call asks and returns the answer, whatever its code.
func (b *testBroker) call(code codec.RequestCode, ext map[string]string, body []byte) *codec.Command {
	b.t.Helper()
	resp, err := b.client.Call(testContext(b.t), b.addr, codec.NewRequest(code, ext, body))
	require.NoError(b.t, err)
	return resp
}

// ask is call, and wants success.
func (b *testBroker) ask(code codec.RequestCode, ext map[string]string, body []byte) *codec.Command {
	b.t.Helper()
	resp := b.call(code, ext, body)
	require.Equal(b.t, codec.CodeName(codec.Success), codec.CodeName(resp.Code), resp.Remark)
	return resp
}

func sendHeader(topic string, queue int, props string) map[string]string {
	return map[string]string{"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": strconv.Itoa(queue), "f": "0",
		"g": "1700000000000", "h": "0", "i": props}
}

func (b *testBroker) send(topic string, queue int, props, body string) *codec.Command {
	b.t.Helper()
	return b.call(codec.ReqSendMessageV2, sendHeader(topic, queue, props), []byte(body))
}

func pullHeader(group, topic string, queue int, offset int64, expression string, suspend time.Duration) map[string]string {
	flag := codec.PullSubscription
	if suspend > 0 {
		flag |= codec.PullSuspend
	}
	return map[string]string{"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(offset, 10),
		"maxMsgNums": "32", "sysFlag": strconv.Itoa(int(flag)), "commitOffset": "0", "suspendTimeoutMillis": strconv.FormatInt(suspend.Milliseconds(), 10),
		"subVersion": "0", "subscription": expression, "expressionType": "TAG"}
}

func (b *testBroker) pull(topic string, queue int, offset int64, expression string, suspend time.Duration) *codec.Command {
	b.t.Helper()
	return b.call(codec.ReqPullMessage, pullHeader("CG", topic, queue, offset, expression, suspend), nil)
}

// bodies are the message bodies of a pull's answer.
func bodies(t testing.TB, resp *codec.Command) []string {
	t.Helper()
	var got []string
	for rest := resp.Body; len(rest) > 0; {
		var r codec.Record
		n, err := r.Decode(rest)
		require.NoError(t, err)
		got = append(got, string(r.Body))
		rest = rest[n:]
	}
	return got
}

// consumed pulls a queue from its beginning until n messages were seen.
func (b *testBroker) consumed(topic string, queue, n int) []string {
	b.t.Helper()
	var got []string
	offset := int64(0)
	deadline := time.Now().Add(20 * time.Second)
	for len(got) < n && time.Now().Before(deadline) {
		resp := b.pull(topic, queue, offset, "*", time.Second)
		if resp.Code == codec.Success {
			got = append(got, bodies(b.t, resp)...)
		}
		next, err := strconv.ParseInt(resp.Ext["nextBeginOffset"], 10, 64)
		require.NoError(b.t, err)
		offset = next
	}
	return got
}

func (b *testBroker) queueBound(code codec.RequestCode, topic string, queue int) int64 {
	b.t.Helper()
	n, err := strconv.ParseInt(b.ask(code, map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)}, nil).Ext["offset"], 10, 64)
	require.NoError(b.t, err)
	return n
}
