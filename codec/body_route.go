package codec

import (
	"encoding/json"
	"strconv"
)

// BrokerData is one broker name and its addresses by id, 0 the master (Apache
// class BrokerData).
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"` // 5.x
	ZoneName           string           `json:"zoneName,omitempty"` // 5.x
}

// AppendJSON appends b, ids as keys quoted and sorted if standard, else bare.
func (b *BrokerData) AppendJSON(dst []byte, standard bool) []byte {
	dst = append(dst, `{"brokerAddrs":`...)
	dst = appendAddrs(dst, b.BrokerAddrs, standard)
	dst = append(dst, `,"brokerName":`...)
	dst = appendJSONString(dst, b.BrokerName)
	dst = append(dst, `,"cluster":`...)
	dst = appendJSONString(dst, b.Cluster)
	dst = append(dst, `,"enableActingMaster":`...)
	dst = strconv.AppendBool(dst, b.EnableActingMaster)
	if b.ZoneName != "" {
		dst = append(dst, `,"zoneName":`...)
		dst = appendJSONString(dst, b.ZoneName)
	}
	return append(dst, '}')
}

func (b BrokerData) appendJSON(dst []byte) []byte { return b.AppendJSON(dst, true) }

// QueueData is how many queues of a topic one broker name has (Apache class QueueData).
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

func (q QueueData) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"brokerName":`...)
	dst = appendJSONString(dst, q.BrokerName)
	dst = appendIntField(dst, `,"perm":`, int64(q.Perm))
	dst = appendIntField(dst, `,"readQueueNums":`, int64(q.ReadQueueNums))
	dst = appendIntField(dst, `,"topicSysFlag":`, int64(q.TopicSysFlag))
	dst = appendIntField(dst, `,"writeQueueNums":`, int64(q.WriteQueueNums))
	return append(dst, '}')
}

// TopicRoute is the answer to code 105 (Apache class TopicRouteData).
type TopicRoute struct {
	BrokerDatas       []BrokerData        `json:"brokerDatas"`
	FilterServerTable map[string][]string `json:"filterServerTable"`
	OrderTopicConf    string              `json:"orderTopicConf,omitempty"`
	QueueDatas        []QueueData         `json:"queueDatas"`
	// TopicQueueMappingByBroker is of 5.x static topics, kept as it came.
	TopicQueueMappingByBroker map[string]json.RawMessage `json:"topicQueueMappingByBroker,omitzero"`
}

// AppendJSON appends the route. Old Java clients ask for broker ids as bare
// number keys; with standard they are quoted and sorted, for a request with
// acceptStandardJsonOnly or a version from VersionV4_9_4 on.
func (r *TopicRoute) AppendJSON(dst []byte, standard bool) []byte {
	dst = append(dst, `{"brokerDatas":`...)
	dst = appendList(dst, r.BrokerDatas, func(dst []byte, b BrokerData) []byte { return b.AppendJSON(dst, standard) })
	dst = append(dst, `,"filterServerTable":`...)
	dst = appendTable(dst, r.FilterServerTable, appendStrings)
	if r.OrderTopicConf != "" {
		dst = append(dst, `,"orderTopicConf":`...)
		dst = appendJSONString(dst, r.OrderTopicConf)
	}
	dst = append(dst, `,"queueDatas":`...)
	dst = appendList(dst, r.QueueDatas, func(dst []byte, q QueueData) []byte { return q.appendJSON(dst) })
	if len(r.TopicQueueMappingByBroker) > 0 {
		dst = append(dst, `,"topicQueueMappingByBroker":`...)
		dst = appendTable(dst, r.TopicQueueMappingByBroker, func(dst []byte, raw json.RawMessage) []byte { return append(dst, raw...) })
	}
	return append(dst, '}')
}

func (r TopicRoute) appendJSON(dst []byte) []byte { return r.AppendJSON(dst, true) }

// ClusterInfo is the answer to code 106 (Apache class ClusterInfo).
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// AppendJSON appends c; Apache's name server writes it with bare number keys
// (standard false) for everybody.
func (c *ClusterInfo) AppendJSON(dst []byte, standard bool) []byte {
	dst = append(dst, `{"brokerAddrTable":`...)
	dst = appendTable(dst, c.BrokerAddrTable, func(dst []byte, b BrokerData) []byte { return b.AppendJSON(dst, standard) })
	dst = append(dst, `,"clusterAddrTable":`...)
	dst = appendTable(dst, c.ClusterAddrTable, appendStrings)
	return append(dst, '}')
}

func (c ClusterInfo) appendJSON(dst []byte) []byte { return c.AppendJSON(dst, true) }

// BrokerMemberGroup is the members of one broker name (5.x; Apache class
// BrokerMemberGroup). The answer to code 901 wraps it: BrokerMemberGroupBody.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// BrokerMemberGroupBody is the answer to code 901.
type BrokerMemberGroupBody struct {
	BrokerMemberGroup BrokerMemberGroup `json:"brokerMemberGroup"`
}

// AppendJSON appends b, ids as keys quoted and sorted if standard, else bare.
func (b *BrokerMemberGroupBody) AppendJSON(dst []byte, standard bool) []byte {
	g := &b.BrokerMemberGroup
	dst = append(dst, `{"brokerMemberGroup":{"brokerAddrs":`...)
	dst = appendAddrs(dst, g.BrokerAddrs, standard)
	dst = append(dst, `,"brokerName":`...)
	dst = appendJSONString(dst, g.BrokerName)
	dst = append(dst, `,"cluster":`...)
	dst = appendJSONString(dst, g.Cluster)
	return append(dst, '}', '}')
}

func (b BrokerMemberGroupBody) appendJSON(dst []byte) []byte { return b.AppendJSON(dst, true) }
