package interop

import (
	"context"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/engine"
)

// wire is a bare client: one request, one answer, no routes, no retries, so that a test sees each code as the broker sent it.
// Safe from any goroutine.
type wire struct {
	client *engine.Client
}

// callTimeout is longer than any time-out of a broker, so that its own answer is always seen.
const callTimeout = 20 * time.Second

func newWire(t testing.TB) *wire {
	w := &wire{client: engine.NewClient(engine.ClientOptions{DialTimeout: 3 * time.Second, CallTimeout: callTimeout})}
	t.Cleanup(w.client.Close)
	return w
}

func (w *wire) call(addr string, code codec.RequestCode, ext map[string]string, body []byte) (*codec.Command, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return w.client.Call(ctx, addr, codec.NewRequest(code, ext, body))
}

// ask is a call that must be answered with Success.
func (w *wire) ask(t testing.TB, addr string, code codec.RequestCode, ext map[string]string, body []byte) *codec.Command {
	t.Helper()
	resp, err := w.call(addr, code, ext, body)
	require.NoError(t, err, "request %d to %s", code, addr)
	require.Equal(t, codec.Success, resp.Code, "request %d to %s: %s", code, addr, resp.Remark)
	return resp
}

// message is what a test sends. ID becomes the UNIQ_KEY property, by which ledgers know it.
type message struct {
	Topic  string
	Queue  int
	ID     string
	Body   []byte
	Tags   string
	NoWait bool // WAIT=false: not held for flush or slaves
}

// sent is one send's fate: the answer's code, or Err when there was none.
type sent struct {
	Code        codec.ResponseCode
	Remark      string
	MsgID       string
	Queue       int
	QueueOffset int64
	Took        time.Duration
	Err         error
}

func (s sent) String() string {
	if s.Err != nil {
		return fmt.Sprintf("no answer after %v: %v", s.Took, s.Err)
	}
	return fmt.Sprintf("%s after %v %s", codec.CodeName(s.Code), s.Took, s.Remark)
}

func (w *wire) send(addr string, m message) sent {
	start := time.Now()
	resp, err := w.call(addr, codec.ReqSendMessageV2, sendFields(m), m.Body)
	s := sent{Took: time.Since(start), Err: err}
	if err != nil {
		return s
	}
	s.Code, s.Remark, s.MsgID = resp.Code, resp.Remark, resp.Ext["msgId"]
	s.Queue, _ = strconv.Atoi(resp.Ext["queueId"])
	s.QueueOffset, _ = strconv.ParseInt(resp.Ext["queueOffset"], 10, 64)
	return s
}

func sendFields(m message) map[string]string {
	return map[string]string{
		"a": "interop-wire", "b": m.Topic, "c": "TBW102", "d": "4", "e": strconv.Itoa(m.Queue), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": properties(m), "j": "0", "k": "false", "m": "false",
	}
}

func properties(m message) string {
	var b strings.Builder
	add := func(name, value string) {
		if value != "" {
			b.WriteString(name + "\x01" + value + "\x02")
		}
	}
	add("UNIQ_KEY", m.ID)
	add("KEYS", m.ID)
	add("TAGS", m.Tags)
	if m.NoWait {
		add("WAIT", "false")
	}
	return b.String()
}

// got is one message as a broker delivered it.
type got struct {
	ID          string
	Queue       int
	QueueOffset int64
	LogOffset   int64
	Sum         uint32 // CRC-32 of the body
	Tags        string
}

// pulled is a pull's answer.
type pulled struct {
	Code           codec.ResponseCode
	Remark         string
	Next, Min, Max int64
	Messages       []got
}

// pull asks once; with hold > 0 the broker may keep the request that long.
func (w *wire) pull(addr, group, topic string, queue int, offset int64, hold time.Duration) (pulled, error) {
	flag := 0x4 // the subscription is in the request
	if hold > 0 {
		flag |= 0x2
	}
	resp, err := w.call(addr, codec.ReqPullMessage, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(offset, 10),
		"maxMsgNums": "32", "sysFlag": strconv.Itoa(flag), "commitOffset": "0", "suspendTimeoutMillis": strconv.FormatInt(hold.Milliseconds(), 10),
		"subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}, nil)
	if err != nil {
		return pulled{}, err
	}
	p := pulled{Code: resp.Code, Remark: resp.Remark}
	p.Next, _ = strconv.ParseInt(resp.Ext["nextBeginOffset"], 10, 64)
	p.Min, _ = strconv.ParseInt(resp.Ext["minOffset"], 10, 64)
	p.Max, _ = strconv.ParseInt(resp.Ext["maxOffset"], 10, 64)
	if p.Code == codec.Success {
		p.Messages, err = parseMessages(resp.Body)
	}
	return p, err
}

func parseMessages(body []byte) ([]got, error) {
	var all []got
	for len(body) > 0 {
		var r codec.Record
		n, err := r.Decode(body)
		if err != nil {
			return all, fmt.Errorf("message %d of a pull: %w", len(all), err)
		}
		all = append(all, gotOf(&r))
		body = body[n:]
	}
	return all, nil
}

func gotOf(r *codec.Record) got {
	id, _ := codec.Property(r.Properties, "UNIQ_KEY")
	tags, _ := codec.Property(r.Properties, "TAGS")
	return got{
		ID: string(id), Queue: int(r.QueueID), QueueOffset: r.QueueOffset, LogOffset: r.PhysicalOffset,
		Sum: crc32.ChecksumIEEE(r.Body), Tags: string(tags),
	}
}

// offset asks for one number: GET_MAX_OFFSET, GET_MIN_OFFSET and their like.
func (w *wire) offset(addr string, code codec.RequestCode, topic string, queue int) (int64, error) {
	resp, err := w.call(addr, code, map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)}, nil)
	if err != nil {
		return 0, err
	}
	if resp.Code != codec.Success {
		return 0, fmt.Errorf("%s: %s", codec.CodeName(resp.Code), resp.Remark)
	}
	return strconv.ParseInt(resp.Ext["offset"], 10, 64)
}

func (w *wire) createTopic(t testing.TB, addr, topic string, queues int) {
	t.Helper()
	n := strconv.Itoa(queues)
	w.ask(t, addr, codec.ReqUpdateAndCreateTopic, map[string]string{
		"topic": topic, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n, "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil)
}

func (w *wire) commitOffset(t testing.TB, addr, group, topic string, queue int, offset int64) {
	t.Helper()
	w.ask(t, addr, codec.ReqUpdateConsumerOffset, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "commitOffset": strconv.FormatInt(offset, 10),
	}, nil)
}

// committed is a group's offset, -1 when the broker knows none.
func (w *wire) committed(addr, group, topic string, queue int) (int64, error) {
	resp, err := w.call(addr, codec.ReqQueryConsumerOffset, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "setZeroIfNotFound": "false",
	}, nil)
	if err != nil {
		return 0, err
	}
	if resp.Code != codec.Success {
		return -1, nil
	}
	return strconv.ParseInt(resp.Ext["offset"], 10, 64)
}

// heartbeat makes a consumer group known, as a push consumer's heartbeat does.
func (w *wire) heartbeat(t testing.TB, addr, group, topic string) {
	t.Helper()
	body, err := codec.Marshal(codec.Heartbeat{ClientID: "127.0.0.1@" + group, ConsumerDataSet: []codec.ConsumerData{{
		GroupName: group, ConsumeType: "CONSUME_PASSIVELY", MessageModel: "CLUSTERING", ConsumeFromWhere: "CONSUME_FROM_FIRST_OFFSET",
		SubscriptionDataSet: []codec.SubscriptionData{{Topic: topic, SubString: "*", SubVersion: time.Now().UnixMilli(), ExpressionType: "TAG"}},
	}}})
	require.NoError(t, err)
	w.ask(t, addr, codec.ReqHeartbeat, nil, body)
}

// runtimeInfo is the broker's table of GET_BROKER_RUNTIME_INFO.
func (w *wire) runtimeInfo(addr string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	resp, err := w.client.Call(ctx, addr, codec.NewRequest(codec.ReqGetBrokerRuntimeInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	if resp.Code != codec.Success {
		return nil, fmt.Errorf("%s: %s", codec.CodeName(resp.Code), resp.Remark)
	}
	var kv codec.KVTable
	err = codec.Unmarshal(resp.Body, &kv)
	return kv.Table, err
}

// logEnd is the broker's own idea of where its commit log ends.
func (w *wire) logEnd(addr string) int64 {
	table, err := w.runtimeInfo(addr)
	if err != nil {
		return -1
	}
	end, err := strconv.ParseInt(table["commitLogMaxOffset"], 10, 64)
	if err != nil {
		return -1
	}
	return end
}
