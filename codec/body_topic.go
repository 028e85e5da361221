package codec

import "encoding/json"

// Permission bits of a topic.
const (
	PermInherit int32 = 1 << 0
	PermWrite   int32 = 1 << 1
	PermRead    int32 = 1 << 2
)

// TopicConfig is one topic of a broker (Apache class TopicConfig).
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes,omitzero"` // 5.x
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"`
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// NewTopicConfig is a topic with Java's defaults: 16 queues, read and write.
func NewTopicConfig(name string) TopicConfig {
	return TopicConfig{
		TopicName: name, ReadQueueNums: 16, WriteQueueNums: 16,
		Perm: PermRead | PermWrite, TopicFilterType: "SINGLE_TAG",
	}
}

// UnmarshalJSON leaves Java's defaults where a field is absent.
func (c *TopicConfig) UnmarshalJSON(src []byte) error {
	type plain TopicConfig
	p := plain(NewTopicConfig(""))
	if err := json.Unmarshal(src, &p); err != nil {
		return err
	}
	*c = TopicConfig(p)
	return nil
}

// TopicConfigs is a broker's whole topic table: the file topics.json, the
// answer to code 21 and, inside RegisterBrokerBody, a registration (Apache
// class TopicConfigAndMappingSerializeWrapper). The three mapping fields belong
// to 5.x answers and registrations; see WithMapping.
type TopicConfigs struct {
	DataVersion                DataVersion                `json:"dataVersion"`
	MappingDataVersion         *DataVersion               `json:"mappingDataVersion,omitempty"`
	TopicConfigTable           map[string]TopicConfig     `json:"topicConfigTable"`
	TopicQueueMappingDetailMap map[string]json.RawMessage `json:"topicQueueMappingDetailMap,omitzero"`
	TopicQueueMappingInfoMap   map[string]json.RawMessage `json:"topicQueueMappingInfoMap,omitzero"`
}

// WithMapping is c with the 5.x mapping fields there, empty where they were absent.
func (c TopicConfigs) WithMapping() TopicConfigs {
	if c.MappingDataVersion == nil {
		c.MappingDataVersion = &DataVersion{Timestamp: c.DataVersion.Timestamp}
	}
	c.TopicQueueMappingDetailMap = orEmptyTable(c.TopicQueueMappingDetailMap)
	c.TopicQueueMappingInfoMap = orEmptyTable(c.TopicQueueMappingInfoMap)
	return c
}

// MarshalJSON writes an empty table for none.
func (c TopicConfigs) MarshalJSON() ([]byte, error) {
	type plain TopicConfigs
	c.TopicConfigTable = orEmptyTable(c.TopicConfigTable)
	return Marshal(plain(c))
}

// TopicConfigList is the body of code 18.
type TopicConfigList struct {
	TopicConfigList []TopicConfig `json:"topicConfigList"`
}

// RegisterBrokerBody is what a broker tells a name server about its topics
// (code 103; Apache class RegisterBrokerBody).
type RegisterBrokerBody struct {
	FilterServerList            []string     `json:"filterServerList"`
	TopicConfigSerializeWrapper TopicConfigs `json:"topicConfigSerializeWrapper"`
}

// MarshalJSON writes an empty list for none.
func (b RegisterBrokerBody) MarshalJSON() ([]byte, error) {
	type plain RegisterBrokerBody
	b.FilterServerList = orEmptyList(b.FilterServerList)
	return Marshal(plain(b))
}

// TopicList is the answer to codes 206, 224, 304, 305 and 343.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"`
}

// MarshalJSON writes an empty list for none.
func (l TopicList) MarshalJSON() ([]byte, error) {
	type plain TopicList
	l.TopicList = orEmptyList(l.TopicList)
	return Marshal(plain(l))
}

// KVTable is a table of texts: runtime info (28), order topics, KV lists (219).
type KVTable struct {
	Table map[string]string `json:"table"`
}

// MarshalJSON writes an empty table for none.
func (t KVTable) MarshalJSON() ([]byte, error) {
	type plain KVTable
	t.Table = orEmptyTable(t.Table)
	return Marshal(plain(t))
}
