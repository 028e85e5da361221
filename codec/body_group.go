package codec

import "encoding/json"

// SubscriptionGroup is one consumer group of a broker (Apache class
// SubscriptionGroupConfig). NewSubscriptionGroup has the defaults.
type SubscriptionGroup struct {
	Attributes                     map[string]string `json:"attributes,omitzero"` // 5.x
	BrokerID                       int64             `json:"brokerId"`
	ConsumeBroadcastEnable         bool              `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool              `json:"consumeEnable"`
	ConsumeFromMinEnable           bool              `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool              `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32             `json:"consumeTimeoutMinute"`
	GroupName                      string            `json:"groupName"`
	GroupRetryPolicy               json.RawMessage   `json:"groupRetryPolicy,omitzero"` // 5.x, kept as it came
	GroupSysFlag                   int32             `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool              `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32             `json:"retryMaxTimes"`
	RetryQueueNums                 int32             `json:"retryQueueNums"`
	SubscriptionDataSet            json.RawMessage   `json:"subscriptionDataSet,omitzero"` // 5.x, kept as it came
	WhichBrokerWhenConsumeSlowly   int64             `json:"whichBrokerWhenConsumeSlowly"`
}

// NewSubscriptionGroup is a group with Java's defaults.
func NewSubscriptionGroup(name string) SubscriptionGroup {
	return SubscriptionGroup{
		GroupName: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueueNums: 1, RetryMaxTimes: 16, WhichBrokerWhenConsumeSlowly: 1,
		NotifyConsumerIDsChangedEnable: true, ConsumeTimeoutMinute: 15,
	}
}

// UnmarshalJSON leaves Java's defaults where a field is absent.
func (g *SubscriptionGroup) UnmarshalJSON(src []byte) error {
	type plain SubscriptionGroup
	p := plain(NewSubscriptionGroup(""))
	if err := json.Unmarshal(src, &p); err != nil {
		return err
	}
	*g = SubscriptionGroup(p)
	return nil
}

// SubscriptionGroups is a broker's whole group table: the file
// subscriptionGroup.json and the answer to code 201 (Apache class
// SubscriptionGroupWrapper).
type SubscriptionGroups struct {
	DataVersion            DataVersion                  `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32  `json:"forbiddenTable,omitzero"` // 5.x
	SubscriptionGroupTable map[string]SubscriptionGroup `json:"subscriptionGroupTable"`
}

// MarshalJSON writes an empty table for none.
func (g SubscriptionGroups) MarshalJSON() ([]byte, error) {
	type plain SubscriptionGroups
	g.SubscriptionGroupTable = orEmptyTable(g.SubscriptionGroupTable)
	return Marshal(plain(g))
}

// SubscriptionGroupList is the body of code 225.
type SubscriptionGroupList struct {
	GroupConfigList []SubscriptionGroup `json:"groupConfigList"`
}

// GroupList is the answer to code 300.
type GroupList struct {
	GroupList []string `json:"groupList"`
}

// MarshalJSON writes an empty list for none.
func (l GroupList) MarshalJSON() ([]byte, error) {
	type plain GroupList
	l.GroupList = orEmptyList(l.GroupList)
	return Marshal(plain(l))
}

// ConsumerOffsets is the file consumerOffset.json and the answer to code 43
// (Apache class ConsumerOffsetSerializeWrapper). Keys of both offset tables are
// "topic@group", then queue id. 4.9 has OffsetTable only; 5.5 has all.
type ConsumerOffsets struct {
	DataVersion     DataVersion                `json:"dataVersion"`
	GroupTopicMap   map[string][]string        `json:"groupTopicMap,omitzero"`
	OffsetTable     map[string]map[int32]int64 `json:"offsetTable"`
	PullOffsetTable map[string]map[int32]int64 `json:"pullOffsetTable,omitzero"`
}

// MarshalJSON writes an empty table for none.
func (o ConsumerOffsets) MarshalJSON() ([]byte, error) {
	type plain ConsumerOffsets
	o.OffsetTable = orEmptyTable(o.OffsetTable)
	return Marshal(plain(o))
}

// DelayOffsets is the file delayOffset.json and the answer to code 45 (Apache
// class DelayOffsetSerializeWrapper): next queue offset by delay level.
type DelayOffsets struct {
	DataVersion DataVersion     `json:"dataVersion"`
	OffsetTable map[int32]int64 `json:"offsetTable"`
}

// MarshalJSON writes an empty table for none.
func (o DelayOffsets) MarshalJSON() ([]byte, error) {
	type plain DelayOffsets
	o.OffsetTable = orEmptyTable(o.OffsetTable)
	return Marshal(plain(o))
}

// MessageRequestMode says how a group takes a topic (5.x; Apache class
// SetMessageRequestModeRequestBody).
type MessageRequestMode struct {
	ConsumerGroup    string `json:"consumerGroup"`
	Mode             string `json:"mode"` // "PULL" or "POP"
	PopShareQueueNum int32  `json:"popShareQueueNum"`
	Topic            string `json:"topic"`
}

// MessageRequestModes is the file messageRequestMode.json and the answer to
// code 402: by topic, then group.
type MessageRequestModes struct {
	MessageRequestModeMap map[string]map[string]MessageRequestMode `json:"messageRequestModeMap"`
}

// MarshalJSON writes an empty table for none.
func (m MessageRequestModes) MarshalJSON() ([]byte, error) {
	type plain MessageRequestModes
	m.MessageRequestModeMap = orEmptyTable(m.MessageRequestModeMap)
	return Marshal(plain(m))
}

// TimerMetrics is the answer to code 61 (5.x): messages the timer holds, by topic.
type TimerMetrics struct {
	DataVersion DataVersion            `json:"dataVersion"`
	TimingCount map[string]TimerMetric `json:"timingCount"`
}

// TimerMetric counts one topic's messages in the timer.
type TimerMetric struct {
	Count     int64 `json:"count"`
	TimeStamp int64 `json:"timeStamp"`
}

// MarshalJSON writes an empty table for none.
func (m TimerMetrics) MarshalJSON() ([]byte, error) {
	type plain TimerMetrics
	m.TimingCount = orEmptyTable(m.TimingCount)
	return Marshal(plain(m))
}
