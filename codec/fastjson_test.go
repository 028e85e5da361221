package codec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDialectsOfJavaBecomeStandardJSON(t *testing.T) {
	for src, want := range map[string]string{
		`{0:"a",-1:"b"}`:                        `{"0":"a","-1":"b"}`,
		`{a:1,$b_2:2}`:                          `{"a":1,"$b_2":2}`,
		`{'a':'it\'s "x"'}`:                     `{"a":"it's \"x\""}`,
		`{{"t":"T","q":1}:2}`:                   `{"{\"t\":\"T\",\"q\":1}":2}`,
		`{ "a" : [ 1 , 2 ] }`:                   `{"a":[1,2]}`,
		`{,"a":1,,"b":[,],}`:                    `{"a":1,"b":[]}`,
		"{\"a\":\"x\ty\"}":                      `{"a":"x\ty"}`,
		`{"a":NaN,"b":undefined,"c":-Infinity}`: `{"a":null,"b":null,"c":null}`,
		`{"a":1}` + "\n\x00trailing":            `{"a":1}`,
		`"text"`:                                `"text"`,
		`{"a":"<&>\u2028"}`:                     "{\"a\":\"<&>\u2028\"}",
	} {
		got, err := standardJSON([]byte(src))
		require.NoError(t, err, src)
		require.Equal(t, want, string(got), src)
		require.True(t, json.Valid(got))
	}
}

func TestWhatIsNoJSONInAnyDialectIsRefused(t *testing.T) {
	for _, src := range []string{
		"", " ", "{", "[", `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1 "b":2}`, `[1 2]`, `{:1}`, `{"a":tru}`, `{"a":01x}`, `{"a":'x}`, `}`,
		`{{{1:2}:3}:4}`, // an object as key of an object as key: every level would double the text
		strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1),
		strings.Repeat(`{"a":`, 100000),
	} {
		var v any
		require.ErrorIs(t, Unmarshal([]byte(src), &v), ErrJSON, "%.60s", src)
	}
	var d DataVersion
	require.ErrorIs(t, Unmarshal([]byte(`{"counter":"many"}`), &d), ErrJSON)
}

func TestStandardJSONKeepsItsMeaning(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) any { return genJSON(t, 3) })
	rapid.Check(t, func(t *rapid.T) {
		want := value.Draw(t, "value")
		src, err := json.Marshal(want)
		require.NoError(t, err)
		std, err := standardJSON(src)
		require.NoError(t, err)
		var got any
		require.NoError(t, json.Unmarshal(std, &got))
		var ref any
		require.NoError(t, json.Unmarshal(src, &ref))
		require.Equal(t, ref, got)
	})
}

func genJSON(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		return rapid.Int64().Draw(t, "number")
	case 2:
		return rapid.Float64Range(-1e20, 1e20).Draw(t, "float")
	case 3:
		return rapid.SampledFrom([]any{true, false, nil}).Draw(t, "word")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, genJSON(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[rapid.String().Draw(t, "name")] = genJSON(t, depth-1)
	}
	return object
}

func TestAbsentFieldsKeepJavasDefaults(t *testing.T) {
	var c TopicConfig
	require.NoError(t, Unmarshal([]byte(`{topicName:"T",perm:4}`), &c))
	want := NewTopicConfig("T")
	want.Perm = PermRead
	require.Equal(t, want, c)

	var g SubscriptionGroups
	require.NoError(t, Unmarshal([]byte(`{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3}}}`), &g))
	group := NewSubscriptionGroup("G")
	group.RetryMaxTimes = 3
	require.Equal(t, group, g.SubscriptionGroupTable["G"])

	var s SubscriptionData
	require.NoError(t, Unmarshal([]byte(`{"topic":"T"}`), &s))
	require.Equal(t, "TAG", s.ExpressionType)
}

func TestListsAndTablesJavaWalksOverAreNeverNull(t *testing.T) {
	for _, c := range []struct {
		body any
		want string
	}{
		{ConsumerList{}, `{"consumerIdList":[]}`},
		{LockBatchResponse{}, `{"lockOKMQSet":[]}`},
		{&LockBatchRequest{}, `{"clientId":"","consumerGroup":"","mqSet":[],"onlyThisBroker":false}`},
		{TopicList{}, `{"topicList":[]}`},
		{GroupList{}, `{"groupList":[]}`},
		{KVTable{}, `{"table":{}}`},
		{MessageRequestModes{}, `{"messageRequestModeMap":{}}`},
		{ProducerConnection{}, `{"connectionSet":[]}`},
		{ConsumerConnection{}, `{"connectionSet":[],"subscriptionTable":{}}`},
		{DelayOffsets{}, `{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"offsetTable":{}}`},
		{ConsumerOffsets{}, `{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"offsetTable":{}}`},
		{TopicConfigs{}, `{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"topicConfigTable":{}}`},
		{SubscriptionGroups{}, `{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"subscriptionGroupTable":{}}`},
		{TimerMetrics{}, `{"dataVersion":{"stateVersion":0,"timestamp":0,"counter":0},"timingCount":{}}`},
		{TopicRoute{}, `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`},
		{&ClusterInfo{}, `{"brokerAddrTable":{},"clusterAddrTable":{}}`},
		{TopicStats{}, `{"offsetTable":{},"topicPutTps":0.0}`},
		{&ConsumeStats{ConsumeTPS: 1.25}, `{"consumeTps":1.25,"offsetTable":{}}`},
		{QueueOffsets{}, `{"offsetTable":{}}`},
		{BrokerHAStatus{Master: true}, `{"haConnectionInfo":[],"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":0}`},
		{Heartbeat{ClientID: "c", ConsumerDataSet: []ConsumerData{{SubscriptionDataSet: []SubscriptionData{{}}}}}, `{"clientID":"c","consumerDataSet":[` +
			`{"consumeFromWhere":"","consumeType":"","groupName":"","messageModel":"","subscriptionDataSet":[` +
			`{"classFilterMode":false,"codeSet":[],"expressionType":"","subString":"","subVersion":0,"tagsSet":[],"topic":""}],"unitMode":false}],` +
			`"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}`},
	} {
		got, err := Marshal(c.body)
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
}

func TestMapsKeyedByAQueueAreWrittenWithRawObjectKeys(t *testing.T) {
	q := func(topic string, id int32) MessageQueue {
		return MessageQueue{BrokerName: "b", QueueID: id, Topic: topic}
	}
	want := QueueOffsets{OffsetTable: map[MessageQueue]int64{q("T", 10): 1, q("T", 2): -1, q(`S"<`, 0): 1 << 60}}
	out, err := Marshal(want)
	require.NoError(t, err)
	require.Equal(t, `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"S\"<"}:1152921504606846976,`+
		`{"brokerName":"b","queueId":2,"topic":"T"}:-1,{"brokerName":"b","queueId":10,"topic":"T"}:1}}`, string(out))
	var got QueueOffsets
	require.NoError(t, Unmarshal(out, &got))
	require.Equal(t, want, got)
	require.NoError(t, Unmarshal([]byte(`{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":2,\"topic\":\"T\"}":7}}`), &got), "the key as text")
	require.Equal(t, map[MessageQueue]int64{q("T", 2): 7}, got.OffsetTable)
	//lint:ignore SA1026 that it is refused is what is tested
	_, err = json.Marshal(want)
	require.Error(t, err, "encoding/json would write keys Java can't read")
}

func TestQuotedAndBareNumberKeysAreTheSame(t *testing.T) {
	for _, src := range []string{`{"offsetTable":{"T@G":{0:12,1:3}}}`, `{"offsetTable":{"T@G":{"0":12,"1":3}}}`} {
		var o ConsumerOffsets
		require.NoError(t, Unmarshal([]byte(src), &o))
		require.Equal(t, map[int32]int64{0: 12, 1: 3}, o.OffsetTable["T@G"])
	}
	r := TopicRoute{BrokerDatas: []BrokerData{{BrokerName: "b", BrokerAddrs: map[int64]string{10: "x", 2: "y", 0: "z"}}}}
	require.Contains(t, string(r.AppendJSON(nil, true)), `{"0":"z","2":"y","10":"x"}`)
	require.Contains(t, string(r.AppendJSON(nil, false)), `{0:"z",2:"y",10:"x"}`)
}

func TestMappingFieldsAreThereOnlyWhenAskedFor(t *testing.T) {
	c := TopicConfigs{DataVersion: DataVersion{Timestamp: 5}, TopicConfigTable: map[string]TopicConfig{"T": NewTopicConfig("T")}}
	out, err := Marshal(c)
	require.NoError(t, err)
	require.NotContains(t, string(out), "apping")
	out, err = Marshal(RegisterBrokerBody{TopicConfigSerializeWrapper: c.WithMapping()})
	require.NoError(t, err)
	require.Contains(t, string(out), `"mappingDataVersion":{"stateVersion":0,"timestamp":5,"counter":0}`)
	require.Contains(t, string(out), `"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}`)
	require.Contains(t, string(out), `"filterServerList":[]`)
	require.Nil(t, c.MappingDataVersion, "the original stays as it was")
}

func TestBodiesAreNotEscapedForHTML(t *testing.T) {
	out, err := Marshal(KVTable{Table: map[string]string{"<k>": "a&b"}})
	require.NoError(t, err)
	require.Equal(t, `{"table":{"<k>":"a&b"}}`, string(out))
	_, err = Marshal(func() {})
	require.ErrorContains(t, err, "func()")
}
