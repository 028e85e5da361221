package codec

import (
	"encoding/json"
	"strconv"
)

// TopicOffset is one queue's range and age (Apache class TopicOffset).
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"`
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

func (o TopicOffset) appendJSON(dst []byte) []byte {
	dst = appendIntField(dst, `{"lastUpdateTimestamp":`, o.LastUpdateTimestamp)
	dst = appendIntField(dst, `,"maxOffset":`, o.MaxOffset)
	dst = appendIntField(dst, `,"minOffset":`, o.MinOffset)
	return append(dst, '}')
}

// TopicStats is the answer to code 202 (Apache class TopicStatsTable). Write it
// with Marshal; encoding/json refuses its keys.
type TopicStats struct {
	OffsetTable map[MessageQueue]TopicOffset
	TopicPutTPS float64 // 5.x
}

// UnmarshalJSON reads what Unmarshal made of the queues that are keys.
func (s *TopicStats) UnmarshalJSON(src []byte) error {
	var p struct {
		OffsetTable queueTable[TopicOffset] `json:"offsetTable"`
		TopicPutTPS float64                 `json:"topicPutTps"`
	}
	err := json.Unmarshal(src, &p)
	*s = TopicStats{OffsetTable: p.OffsetTable, TopicPutTPS: p.TopicPutTPS}
	return err
}

func (s TopicStats) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"offsetTable":`...)
	dst = appendQueueTable(dst, s.OffsetTable, func(dst []byte, o TopicOffset) []byte { return o.appendJSON(dst) })
	dst = append(dst, `,"topicPutTps":`...)
	dst = appendRate(dst, s.TopicPutTPS)
	return append(dst, '}')
}

// QueueProgress is how far a group is in one queue (Apache class OffsetWrapper).
type QueueProgress struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"`
	PullOffset     int64 `json:"pullOffset"` // 5.x
}

func (o QueueProgress) appendJSON(dst []byte) []byte {
	dst = appendIntField(dst, `{"brokerOffset":`, o.BrokerOffset)
	dst = appendIntField(dst, `,"consumerOffset":`, o.ConsumerOffset)
	dst = appendIntField(dst, `,"lastTimestamp":`, o.LastTimestamp)
	dst = appendIntField(dst, `,"pullOffset":`, o.PullOffset)
	return append(dst, '}')
}

// ConsumeStats is the answer to code 208 (Apache class ConsumeStats). Write it
// with Marshal; encoding/json refuses its keys.
type ConsumeStats struct {
	ConsumeTPS  float64
	OffsetTable map[MessageQueue]QueueProgress
}

// UnmarshalJSON reads what Unmarshal made of the queues that are keys.
func (s *ConsumeStats) UnmarshalJSON(src []byte) error {
	var p struct {
		ConsumeTPS  float64                   `json:"consumeTps"`
		OffsetTable queueTable[QueueProgress] `json:"offsetTable"`
	}
	err := json.Unmarshal(src, &p)
	*s = ConsumeStats{ConsumeTPS: p.ConsumeTPS, OffsetTable: p.OffsetTable}
	return err
}

func (s ConsumeStats) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"consumeTps":`...)
	dst = appendRate(dst, s.ConsumeTPS)
	dst = append(dst, `,"offsetTable":`...)
	dst = appendQueueTable(dst, s.OffsetTable, func(dst []byte, o QueueProgress) []byte { return o.appendJSON(dst) })
	return append(dst, '}')
}

// QueueOffsets is the body of codes 220, 222 and 223: an offset per queue
// (Apache class ResetOffsetBody). Write it with Marshal; encoding/json refuses
// its keys.
type QueueOffsets struct {
	OffsetTable map[MessageQueue]int64
}

// UnmarshalJSON reads what Unmarshal made of the queues that are keys.
func (o *QueueOffsets) UnmarshalJSON(src []byte) error {
	var p struct {
		OffsetTable queueTable[int64] `json:"offsetTable"`
	}
	err := json.Unmarshal(src, &p)
	o.OffsetTable = p.OffsetTable
	return err
}

func (o QueueOffsets) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"offsetTable":`...)
	dst = appendQueueTable(dst, o.OffsetTable, func(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) })
	return append(dst, '}')
}

// appendRate writes a rate with a decimal point, as Java does.
func appendRate(dst []byte, v float64) []byte {
	if v != v || v > 1e15 || v < -1e15 {
		v = 0
	}
	if v == float64(int64(v)) {
		return strconv.AppendFloat(dst, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

// BrokerHAStatus is the answer to code 907 (5.x; Apache class HARuntimeInfo).
type BrokerHAStatus struct {
	HAClientRuntimeInfo      *HAClientInfo      `json:"haClientRuntimeInfo,omitempty"` // of a slave
	HAConnectionInfo         []HAConnectionInfo `json:"haConnectionInfo"`              // of a master
	InSyncSlaveNums          int32              `json:"inSyncSlaveNums"`
	Master                   bool               `json:"master"`
	MasterCommitLogMaxOffset int64              `json:"masterCommitLogMaxOffset"`
}

// HAConnectionInfo is one slave as its master sees it.
type HAConnectionInfo struct {
	Addr                    string `json:"addr"`
	Diff                    int64  `json:"diff"` // bytes the slave is behind
	InSync                  bool   `json:"inSync"`
	SlaveAckOffset          int64  `json:"slaveAckOffset"`
	TransferFromWhere       int64  `json:"transferFromWhere"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// HAClientInfo is the slave's own view of its link.
type HAClientInfo struct {
	LastReadTimestamp       int64  `json:"lastReadTimestamp"`
	LastWriteTimestamp      int64  `json:"lastWriteTimestamp"`
	MasterAddr              string `json:"masterAddr,omitempty"`
	MasterFlushOffset       int64  `json:"masterFlushOffset"`
	MaxOffset               int64  `json:"maxOffset"`
	TransferredByteInSecond int64  `json:"transferredByteInSecond"`
}

// MarshalJSON writes an empty list for none.
func (s BrokerHAStatus) MarshalJSON() ([]byte, error) {
	type plain BrokerHAStatus
	s.HAConnectionInfo = orEmptyList(s.HAConnectionInfo)
	return Marshal(plain(s))
}
