package broker

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/broker/settings"
	"tandem/codec"
)

func TestAMessageIsDeliveredAsItWasSent(t *testing.T) {
	b := startBroker(t, nil)
	resp := b.send("T", 1, "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02", "hello")
	require.Equal(t, codec.Success, resp.Code, resp.Remark)
	require.Equal(t, "1", resp.Ext["queueId"])
	require.Equal(t, "0", resp.Ext["queueOffset"])
	require.Equal(t, "U1", resp.Ext["transactionId"])
	require.Len(t, resp.Ext["msgId"], 32)

	got := b.pull("T", 1, 0, "*", time.Second)
	require.Equal(t, codec.Success, got.Code, got.Remark)
	require.Equal(t, "FOUND", got.Remark)
	require.Equal(t, "1", got.Ext["nextBeginOffset"])
	var r codec.Record
	_, err := r.Decode(got.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(r.Body))
	require.Equal(t, "T", string(r.Topic))
	require.True(t, strings.HasPrefix(string(r.Properties), "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02"), "the client's properties stay as they came")
	require.Equal(t, int64(1700000000000), r.BornTimestamp)
}

func TestASendByTheLongNamesWorksToo(t *testing.T) {
	b := startBroker(t, nil)
	resp := b.ask(codec.ReqSendMessage, map[string]string{"producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
		"queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "7", "properties": ""}, []byte("x"))
	require.Equal(t, "0", resp.Ext["queueOffset"])
	require.Equal(t, []string{"x"}, b.consumed("T", 0, 1))
}

func TestABatchIsStoredAsItsMessages(t *testing.T) {
	b := startBroker(t, nil)
	var rows []byte
	for i := range 3 {
		rows = appendRow(rows, fmt.Sprintf("m%d", i), "KEYS\x01k\x02")
	}
	h := sendHeader("T", 0, "")
	h["m"] = "true"
	resp := b.ask(codec.ReqSendBatchMessage, h, rows)
	require.Len(t, strings.Split(resp.Ext["msgId"], ","), 3)
	require.Equal(t, []string{"m0", "m1", "m2"}, b.consumed("T", 0, 3))
	require.EqualValues(t, 3, b.queueBound(codec.ReqGetMaxOffset, "T", 0))
	for i, id := range strings.Split(resp.Ext["msgId"], ",") {
		_, off, err := codec.ParseMessageID(id)
		require.NoError(t, err)
		view := b.ask(codec.ReqViewMessageByID, map[string]string{"offset": strconv.FormatInt(off, 10)}, nil)
		require.Equal(t, []string{fmt.Sprintf("m%d", i)}, bodies(t, view))
	}
}

func appendRow(dst []byte, body, props string) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(4*5+len(body)+2+len(props)))
	dst = append(dst, make([]byte, 12)...)
	dst = be.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	dst = be.AppendUint16(dst, uint16(len(props)))
	return append(dst, props...)
}

func TestWhatCannotBeStoredIsRefusedAndNotStored(t *testing.T) {
	b := startBroker(t, map[string]string{"maxMessageSize": "1000"})
	require.Equal(t, codec.Success, b.send("T", 0, "", "first").Code)
	half := sendHeader("T", 0, "")
	half["f"] = "4"
	cases := map[string]struct {
		ext  map[string]string
		body string
		want codec.ResponseCode
		says string
	}{
		"an illegal topic":           {sendHeader("a b", 0, ""), "x", codec.InvalidParameter, "a b"},
		"a topic too long":           {sendHeader(strings.Repeat("t", 128), 0, ""), "x", codec.InvalidParameter, "128"},
		"a missing topic":            {map[string]string{"a": "PG", "e": "0"}, "x", codec.InvalidParameter, "topic"},
		"a topic that does not come": {map[string]string{"b": "N", "c": "nosuch", "d": "4", "e": "0"}, "x", codec.TopicNotExist, "N"},
		"a system topic":             {sendHeader("SCHEDULE_TOPIC_XXXX", 0, ""), "x", codec.NoPermission, "SCHEDULE"},
		"a queue that is not there":  {sendHeader("T", 99, ""), "x", codec.InvalidParameter, "99"},
		"an oversized body":          {sendHeader("T", 0, ""), strings.Repeat("x", 1001), codec.MessageIllegal, "maxMessageSize"},
		"an empty body":              {sendHeader("T", 0, ""), "", codec.MessageIllegal, "body"},
		"oversized properties":       {sendHeader("T", 0, "K\x01"+strings.Repeat("v", 32767)+"\x02"), "x", codec.MessageIllegal, "32767"},
		"a delayed message":          {sendHeader("T", 0, "DELAY\x013\x02"), "x", codec.MessageIllegal, "delayed"},
		"a half message":             {half, "x", codec.MessageIllegal, "transaction"},
		"a number that is none":      {map[string]string{"b": "T", "e": "zero"}, "x", codec.InvalidParameter, "queueId"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			resp := b.call(codec.ReqSendMessageV2, c.ext, []byte(c.body))
			require.Equal(t, codec.CodeName(c.want), codec.CodeName(resp.Code), resp.Remark)
			require.Contains(t, resp.Remark, c.says)
		})
	}
	require.Eventually(t, func() bool { return b.queueBound(codec.ReqGetMaxOffset, "T", 0) == 1 }, 10*time.Second, time.Millisecond)
	broken := sendHeader("T", 0, "")
	broken["m"] = "true"
	require.Equal(t, codec.MessageIllegal, b.call(codec.ReqSendBatchMessage, broken, []byte("\x00\x00\x00\xffnot a batch")).Code)
	require.EqualValues(t, 1, b.queueBound(codec.ReqGetMaxOffset, "T", 0))
}

func TestABatchHidesNothingThatASingleMessageIsRefusedFor(t *testing.T) {
	b := startBroker(t, nil)
	for name, row := range map[string][]byte{
		"delayed":     appendRow(appendRow(nil, "a", ""), "b", "DELAY\x013\x02"),
		"timed":       appendRow(nil, "b", "TIMER_DELAY_SEC\x013\x02"),
		"transaction": appendRow(nil, "b", "TRAN_MSG\x01true\x02"),
		"no body":     appendRow(appendRow(nil, "a", ""), "", ""),
	} {
		resp := b.call(codec.ReqSendBatchMessage, sendHeader("T", 0, ""), row)
		require.Equal(t, codec.CodeName(codec.MessageIllegal), codec.CodeName(resp.Code), name)
		require.Contains(t, resp.Remark, "of the batch", name)
	}
	require.Zero(t, b.queueBound(codec.ReqGetMaxOffset, "T", 0), "nothing of a refused batch is stored")
}

func TestATopicMadeByASendIsOnDiskBeforeItsAnswer(t *testing.T) {
	b := startBroker(t, map[string]string{"flushConsumerOffsetInterval": "3600000"})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			resp := b.send("Fresh", 0, "", fmt.Sprint(i))
			assert.Equal(t, codec.Success, resp.Code, resp.Remark)
			text, err := os.ReadFile(filepath.Join(b.conf["storePathRootDir"], "config", "topics.json"))
			assert.NoError(t, err)
			assert.Contains(t, string(text), "Fresh")
		})
	}
	wg.Wait()
	require.Len(t, b.consumed("Fresh", 0, 20), 20)
}

func TestPipelinedSendsToANewTopicKeepTheirOrder(t *testing.T) {
	b := startBroker(t, nil)
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var frames []byte
	var want []string
	for i := range int32(100) {
		cmd := codec.NewRequest(codec.ReqSendMessageV2, sendHeader("New", 0, ""), []byte(fmt.Sprint(i)))
		cmd.Opaque = i
		frames = codec.AppendFrame(frames, cmd)
		want = append(want, fmt.Sprint(i))
	}
	_, err = c.Write(frames)
	require.NoError(t, err)
	for range 100 {
		got := readFrame(t, c)
		require.Equal(t, codec.Success, got.Code, got.Remark)
	}
	require.Equal(t, want, b.consumed("New", 0, 100))
}

func TestSendsThatWishANewTopicDifferentlyAreAnsweredEachForItself(t *testing.T) {
	b := startBroker(t, nil)
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var frames []byte
	for i, model := range []string{"nosuch", "TBW102", "nosuch"} {
		cmd := codec.NewRequest(codec.ReqSendMessageV2, with(sendHeader("Wish", 0, ""), "c", model), []byte("x"))
		cmd.Opaque = int32(i)
		frames = codec.AppendFrame(frames, cmd)
	}
	_, err = c.Write(frames)
	require.NoError(t, err)
	codes := map[int32]codec.ResponseCode{}
	for range 3 {
		got := readFrame(t, c)
		codes[got.Opaque] = got.Code
	}
	require.Equal(t, map[int32]codec.ResponseCode{0: codec.TopicNotExist, 1: codec.Success, 2: codec.TopicNotExist}, codes)
}

func TestABrokerIP1ThatIsNotFoundStopsTheStart(t *testing.T) {
	set, _, err := settings.Load("", map[string]string{"brokerName": "b1", "brokerIP1": "no-such-host.invalid", "storePathRootDir": t.TempDir()})
	require.NoError(t, err)
	_, err = Start(set, nil)
	require.ErrorIs(t, err, settings.ErrBadValue)
	require.ErrorContains(t, err, "brokerIP1=no-such-host.invalid")
}

func TestATopicWithMessagesOutlivesTheLossOfItsTable(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 3, "", "x").Code)
	require.Equal(t, []string{"x"}, b.consumed("T", 3, 1))
	require.NoError(t, b.Close(testContext(t)))
	dir := filepath.Join(b.conf["storePathRootDir"], "config")
	require.NoError(t, os.RemoveAll(dir))
	again := runBroker(t, b.conf)
	require.Equal(t, []string{"x"}, again.consumed("T", 3, 1))
}

func TestHeldPullsEndWithTheirConnection(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "", "x").Code)
	require.Equal(t, []string{"x"}, b.consumed("T", 0, 1))
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	var frames []byte
	for i := range int32(50) {
		cmd := codec.NewRequest(codec.ReqPullMessage, pullHeader("CG", "T", 0, 1, "*", time.Minute), nil)
		cmd.Opaque = i
		frames = codec.AppendFrame(frames, cmd)
	}
	_, err = c.Write(frames)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.holds.n.Load() == 50 }, 5*time.Second, time.Millisecond)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return b.holds.n.Load() == 0 }, 5*time.Second, time.Millisecond)
	b.holds.mu.Lock()
	defer b.holds.mu.Unlock()
	require.Empty(t, b.holds.queues)
	require.Empty(t, b.holds.conns)
	require.Empty(t, b.holds.due)
}

func TestAnOlderAnswerStillUnwrittenKeepsYoungerMessagesHidden(t *testing.T) {
	st := &loopState{}
	st.unwritten.Store(noneUnwritten)
	st.answering(200) // it did not wait
	st.answering(100) // its slave's report came just now
	require.EqualValues(t, 100, st.unwritten.Load())
}

func TestAnUnknownRequestIsNamedAsSuch(t *testing.T) {
	b := startBroker(t, nil)
	resp := b.call(22222, nil, nil)
	require.Equal(t, codec.RequestCodeNotSupported, resp.Code)
	require.Contains(t, resp.Remark, "22222")
}

func TestAPullIsHeldUntilItsQueueGrows(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "", "old").Code)
	require.Equal(t, []string{"old"}, b.consumed("T", 0, 1))
	answer := make(chan *codec.Command, 1)
	go func() { answer <- b.pull("T", 0, 1, "*", 15*time.Second) }()
	require.Eventually(t, func() bool { return b.holds.n.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, codec.Success, b.send("T", 0, "", "new").Code)
	require.Equal(t, []string{"new"}, bodies(t, <-answer))
	require.Zero(t, b.holds.n.Load())
}

func TestAHeldPullWakesOnlyForItsTagAndKeepsItsPlace(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01A\x02", "a0").Code)
	answer := make(chan *codec.Command, 1)
	go func() { answer <- b.pull("T", 0, 0, "B || C", 15*time.Second) }()
	require.Eventually(t, func() bool { return b.holds.n.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01A\x02", "a1").Code)
	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01C\x02", "c2").Code)
	resp := <-answer
	require.Equal(t, []string{"c2"}, bodies(t, resp))
	require.Equal(t, "3", resp.Ext["nextBeginOffset"])
}

func TestAHoldThatEndsSaysSo(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01A\x02", "a0").Code)
	require.Equal(t, []string{"a0"}, b.consumed("T", 0, 1))
	resp := b.pull("T", 0, 1, "*", 50*time.Millisecond)
	require.Equal(t, codec.PullNotFound, resp.Code)
	require.Equal(t, "1", resp.Ext["nextBeginOffset"])
	other := b.pull("T", 0, 0, "B", 50*time.Millisecond)
	require.Equal(t, codec.PullRetryImmediately, other.Code)
	require.Equal(t, "1", other.Ext["nextBeginOffset"], "what does not match is not looked at again")
}

func TestAPullOutsideTheQueueIsToldWhereToGo(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "", "x").Code)
	require.Equal(t, []string{"x"}, b.consumed("T", 0, 1))
	resp := b.pull("T", 0, 100, "*", 0)
	require.Equal(t, codec.PullOffsetMoved, resp.Code)
	require.Equal(t, "1", resp.Ext["nextBeginOffset"])
	resp = b.pull("T", 1, 5, "*", 0)
	require.Equal(t, codec.PullOffsetMoved, resp.Code)
	require.Equal(t, "0", resp.Ext["nextBeginOffset"])
	require.Equal(t, codec.PullNotFound, b.pull("T", 1, 0, "*", 0).Code)
	require.Equal(t, codec.TopicNotExist, b.pull("nosuch", 0, 0, "*", 0).Code)
	require.Equal(t, codec.InvalidParameter, b.pull("T", 44, 0, "*", 0).Code)
}

func TestOffsetsAreKeptByGroupAndQueue(t *testing.T) {
	b := startBroker(t, nil)
	require.Equal(t, codec.Success, b.send("T", 0, "", "x").Code)
	q := map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0"}
	require.Equal(t, "0", b.ask(codec.ReqQueryConsumerOffset, q, nil).Ext["offset"], "a queue that is all there begins at 0")
	b.ask(codec.ReqUpdateConsumerOffset, with(q, "commitOffset", "1"), nil)
	require.Equal(t, "1", b.ask(codec.ReqQueryConsumerOffset, q, nil).Ext["offset"])
	require.Equal(t, codec.QueryNotFound, b.call(codec.ReqQueryConsumerOffset, with(with(q, "consumerGroup", "other"), "setZeroIfNotFound", "false"), nil).Code)
	require.Contains(t, string(b.ask(codec.ReqGetAllConsumerOffset, nil, nil).Body), `"T@G":{"0":1}`)
	for field, bad := range map[string]string{"queueId": "x", "commitOffset": "-1", "consumerGroup": "", "topic": ""} {
		resp := b.call(codec.ReqUpdateConsumerOffset, with(with(q, "commitOffset", "1"), field, bad), nil)
		require.Equal(t, codec.InvalidParameter, resp.Code, field)
		require.Contains(t, resp.Remark, field)
	}
}

func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

func TestAGroupsMembersKnowEachOther(t *testing.T) {
	b := startBroker(t, nil)
	beat := func(id string) []byte {
		body, err := codec.Marshal(codec.Heartbeat{ClientID: id, ConsumerDataSet: []codec.ConsumerData{{GroupName: "G", ConsumeType: "CONSUME_PASSIVELY",
			MessageModel: "CLUSTERING", ConsumeFromWhere: "CONSUME_FROM_FIRST_OFFSET",
			SubscriptionDataSet: []codec.SubscriptionData{{Topic: "T", SubString: "TagA", CodeSet: []int32{2598919}, SubVersion: 7}}}}})
		require.NoError(t, err)
		return body
	}
	notified := make(chan string, 10)
	second := newListeningClient(t, b.addr, notified)
	b.ask(codec.ReqHeartbeat, nil, beat("c1"))
	second.call(t, codec.ReqHeartbeat, nil, beat("c2"))
	require.Equal(t, "G", <-notified)
	require.JSONEq(t, `{"consumerIdList":["c1","c2"]}`, string(b.ask(codec.ReqGetConsumerListByGroup, map[string]string{"consumerGroup": "G"}, nil).Body))
	_, retry := b.topics.Get("%RETRY%G")
	require.True(t, retry, "a group's retry topic comes with its first heartbeat")

	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01TagA\x02", "a").Code)
	require.Equal(t, codec.Success, b.send("T", 0, "TAGS\x01TagB\x02", "b").Code)
	h := with(with(pullHeader("G", "T", 0, 0, "", time.Second), "sysFlag", "2"), "subVersion", "7")
	require.Eventually(t, func() bool { return b.queueBound(codec.ReqGetMaxOffset, "T", 0) == 2 }, 5*time.Second, time.Millisecond)
	require.Equal(t, []string{"a"}, bodies(t, b.ask(codec.ReqPullMessage, h, nil)), "the heartbeat's subscription filters")
	require.Equal(t, codec.SubscriptionNotLatest, b.call(codec.ReqPullMessage, with(h, "subVersion", "8"), nil).Code)
	require.Equal(t, codec.SubscriptionNotExist, b.call(codec.ReqPullMessage, with(h, "consumerGroup", "unknown"), nil).Code)

	second.close()
	require.Eventually(t, func() bool { return len(b.clients.ids("G")) == 1 }, 5*time.Second, time.Millisecond)
}

func TestOnlyOneClientHoldsAQueuesLock(t *testing.T) {
	b := startBroker(t, nil)
	lock := func(code codec.RequestCode, client string) string {
		body, err := codec.Marshal(codec.LockBatchRequest{ConsumerGroup: "G", ClientID: client, MQSet: []codec.MessageQueue{{Topic: "T", BrokerName: "b1", QueueID: 0}}})
		require.NoError(t, err)
		return string(b.ask(code, nil, body).Body)
	}
	require.Contains(t, lock(codec.ReqLockBatchMQ, "c1"), `"topic":"T"`)
	require.NotContains(t, lock(codec.ReqLockBatchMQ, "c2"), `"topic":"T"`)
	lock(codec.ReqUnlockBatchMQ, "c2")
	require.NotContains(t, lock(codec.ReqLockBatchMQ, "c2"), `"topic":"T"`, "a stranger's unlock does nothing")
	lock(codec.ReqUnlockBatchMQ, "c1")
	require.Contains(t, lock(codec.ReqLockBatchMQ, "c2"), `"topic":"T"`)
}

func TestTopicsAreMadeChangedAndDeleted(t *testing.T) {
	b := startBroker(t, nil)
	topic := map[string]string{"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
	b.ask(codec.ReqUpdateAndCreateTopic, topic, nil)
	require.Equal(t, codec.Success, b.send("T", 1, "", "x").Code)
	require.Equal(t, codec.InvalidParameter, b.send("T", 2, "", "x").Code)
	b.ask(codec.ReqUpdateAndCreateTopic, with(with(topic, "readQueueNums", "4"), "writeQueueNums", "4"), nil)
	require.Equal(t, codec.Success, b.send("T", 2, "", "x").Code)
	require.Equal(t, codec.InvalidParameter, b.call(codec.ReqUpdateAndCreateTopic, with(topic, "topic", "no good"), nil).Code)
	require.Equal(t, codec.InvalidParameter, b.call(codec.ReqUpdateAndCreateTopic, with(topic, "perm", "99"), nil).Code)

	b.ask(codec.ReqDeleteTopicInBroker, map[string]string{"topic": "T"}, nil)
	require.Equal(t, codec.TopicNotExist, b.pull("T", 0, 0, "*", 0).Code)
	b.ask(codec.ReqUpdateAndCreateTopic, topic, nil)
	require.Equal(t, "0", b.send("T", 1, "", "y").Ext["queueOffset"], "a topic made anew counts from 0")
	require.Equal(t, []string{"y"}, b.consumed("T", 1, 1))
}

func TestMessagesAndProgressSurviveARestart(t *testing.T) {
	b := startBroker(t, nil)
	for i := range 50 {
		require.Equal(t, codec.Success, b.send("T", 0, "", fmt.Sprintf("m%02d", i)).Code)
	}
	b.ask(codec.ReqUpdateConsumerOffset, map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "20"}, nil)
	require.NoError(t, b.Close(testContext(t)))
	again := runBroker(t, b.conf)
	got := again.consumed("T", 0, 50)
	require.Len(t, got, 50)
	require.Equal(t, "m49", got[49])
	require.Equal(t, "20", again.ask(codec.ReqQueryConsumerOffset, map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0"}, nil).Ext["offset"])
	require.Equal(t, "50", again.send("T", 0, "", "next").Ext["queueOffset"])
}
