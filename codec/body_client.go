package codec

import "encoding/json"

// SubscriptionData is what a group wants of one topic (Apache class SubscriptionData).
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []int32  `json:"codeSet"`        // hashes of the tags; empty takes all
	ExpressionType  string   `json:"expressionType"` // "TAG" or "SQL92"
	SubString       string   `json:"subString"`
	SubVersion      int64    `json:"subVersion"` // ms since 1970, rises with each change
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// MarshalJSON writes empty lists for none.
func (d SubscriptionData) MarshalJSON() ([]byte, error) {
	type plain SubscriptionData
	d.CodeSet, d.TagsSet = orEmptyList(d.CodeSet), orEmptyList(d.TagsSet)
	return Marshal(plain(d))
}

// UnmarshalJSON takes TAG as the type where it is absent, as in Java.
func (d *SubscriptionData) UnmarshalJSON(src []byte) error {
	type plain SubscriptionData
	p := plain{ExpressionType: "TAG"}
	if err := json.Unmarshal(src, &p); err != nil {
		return err
	}
	*d = SubscriptionData(p)
	return nil
}

// ConsumerData is one consumer group of a client (Apache class ConsumerData).
type ConsumerData struct {
	ConsumeFromWhere    string             `json:"consumeFromWhere"`
	ConsumeType         string             `json:"consumeType"` // CONSUME_ACTIVELY or CONSUME_PASSIVELY
	GroupName           string             `json:"groupName"`
	MessageModel        string             `json:"messageModel"` // CLUSTERING or BROADCASTING
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// MarshalJSON writes an empty list for none.
func (d ConsumerData) MarshalJSON() ([]byte, error) {
	type plain ConsumerData
	d.SubscriptionDataSet = orEmptyList(d.SubscriptionDataSet)
	return Marshal(plain(d))
}

// ProducerData is one producer group of a client (Apache class ProducerData).
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// Heartbeat is the body of code 34 (Apache class HeartbeatData).
type Heartbeat struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"` // 5.x
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"` // 5.x
}

// MarshalJSON writes empty lists for none.
func (h Heartbeat) MarshalJSON() ([]byte, error) {
	type plain Heartbeat
	h.ConsumerDataSet, h.ProducerDataSet = orEmptyList(h.ConsumerDataSet), orEmptyList(h.ProducerDataSet)
	return Marshal(plain(h))
}

// CheckClientRequest is the body of code 46 (Apache class CheckClientRequestBody).
type CheckClientRequest struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        string           `json:"namespace,omitempty"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

// ConsumerList is the answer to code 38 (Apache class GetConsumerListByGroupResponseBody).
type ConsumerList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// MarshalJSON writes an empty list for none.
func (l ConsumerList) MarshalJSON() ([]byte, error) {
	type plain ConsumerList
	l.ConsumerIDList = orEmptyList(l.ConsumerIDList)
	return Marshal(plain(l))
}

// LockBatchRequest is the body of codes 41 and 42 (Apache classes
// LockBatchRequestBody and UnlockBatchRequestBody).
type LockBatchRequest struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"` // 5.x
}

// MarshalJSON writes an empty list for none.
func (r LockBatchRequest) MarshalJSON() ([]byte, error) {
	type plain LockBatchRequest
	r.MQSet = orEmptyList(r.MQSet)
	return Marshal(plain(r))
}

// LockBatchResponse is the answer to code 41: the queues that are the client's now.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// MarshalJSON writes an empty list for none.
func (r LockBatchResponse) MarshalJSON() ([]byte, error) {
	type plain LockBatchResponse
	r.LockOKMQSet = orEmptyList(r.LockOKMQSet)
	return Marshal(plain(r))
}

// Connection is one client of a broker (Apache class Connection).
type Connection struct {
	ClientAddr string `json:"clientAddr"`
	ClientID   string `json:"clientId"`
	Language   string `json:"language"` // LanguageName
	Version    int32  `json:"version"`
}

// ConsumerConnection is the answer to code 203 (Apache class ConsumerConnection).
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet"`
	ConsumeFromWhere  string                      `json:"consumeFromWhere,omitempty"`
	ConsumeType       string                      `json:"consumeType,omitempty"`
	MessageModel      string                      `json:"messageModel,omitempty"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"` // by topic
}

// MarshalJSON writes an empty list and an empty table for none.
func (c ConsumerConnection) MarshalJSON() ([]byte, error) {
	type plain ConsumerConnection
	c.ConnectionSet, c.SubscriptionTable = orEmptyList(c.ConnectionSet), orEmptyTable(c.SubscriptionTable)
	return Marshal(plain(c))
}

// ProducerConnection is the answer to code 204 (Apache class ProducerConnection).
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// MarshalJSON writes an empty list for none.
func (c ProducerConnection) MarshalJSON() ([]byte, error) {
	type plain ProducerConnection
	c.ConnectionSet = orEmptyList(c.ConnectionSet)
	return Marshal(plain(c))
}

// OffsetMovedEvent is the body of the record a 4.9 master stores when it tells
// a consumer that its offset moved (Apache class OffsetMovedEvent).
type OffsetMovedEvent struct {
	ConsumerGroup string       `json:"consumerGroup"`
	MessageQueue  MessageQueue `json:"messageQueue"`
	OffsetNew     int64        `json:"offsetNew"`
	OffsetRequest int64        `json:"offsetRequest"`
}
