package broker

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/transfer"
)

// counters are what the broker counts since its start. Any goroutine.
type counters struct {
	put       atomic.Int64 // messages stored
	putBytes  atomic.Int64 // bytes of records stored
	putFailed atomic.Int64 // sends that could not be stored
	pulls     atomic.Int64 // pulls answered
	gotBytes  atomic.Int64 // bytes of records given out
}

// machineMemory is the machine's memory in bytes.
func machineMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// brokerConfig gives every setting as it is in force.
func (b *Broker) brokerConfig(*request) answer {
	var text strings.Builder
	for _, s := range b.set.Effective() {
		fmt.Fprintf(&text, "%s=%s\n", s.Key, s.Value)
	}
	version, err := codec.Marshal(b.topics.DataVersion())
	if err != nil {
		return failed(codec.SystemError, err.Error())
	}
	return answer{body: []byte(text.String()), ext: map[string]string{"version": string(version)}}
}

// runtimeInfo gives the numbers that mqadmin clusterList and brokerStatus show. Numbers of what this broker does not have are 0.
func (b *Broker) runtimeInfo(*request) answer {
	table := map[string]string{
		"brokerVersionDesc":               "V5_5_0",
		"brokerVersion":                   strconv.Itoa(codec.VersionV5_5_0),
		"brokerActive":                    strconv.FormatBool(!b.isSlave()),
		"bootTimestamp":                   itoa(b.started.UnixMilli()),
		"startAcceptSendRequestTimeStamp": itoa(b.started.UnixMilli()),
		"runtime":                         "[ " + time.Since(b.started).Round(time.Second).String() + " ]",
		"commitLogMinOffset":              itoa(b.store.MinOffset()),
		"commitLogMaxOffset":              itoa(b.store.End()),
		"dispatchBehindBytes":             itoa(b.store.End() - b.store.Dispatched()),
		"remainHowManyDataToFlush":        byteText(b.store.End() - b.store.Flushed()),
		"earliestMessageTimeStamp":        itoa(b.earliestMessage()),
		"putMessageTimesTotal":            itoa(b.counters.put.Load()),
		"putMessageFailedTimes":           itoa(b.counters.putFailed.Load()),
		"putMessageSizeTotal":             itoa(b.counters.putBytes.Load()),
		"putMessageAverageSize":           average(b.counters.putBytes.Load(), b.counters.put.Load()),
		"commitLogDiskRatio":              diskRatio(b.set.StorePathCommitLog),
		"commitLogDirCapacity":            diskCapacity(b.set.StorePathCommitLog),
		"consumeQueueDiskRatio":           diskRatio(b.set.StorePathRootDir),
		"getTransferredTps":               b.rates.text(func(s sample) int64 { return s.pulls }),
		"getTransferedTps":                b.rates.text(func(s sample) int64 { return s.pulls }),
		"putTps":                          b.rates.text(func(s sample) int64 { return s.put }),
		"getFoundTps":                     b.rates.text(func(s sample) int64 { return s.pulls }),
		"getTotalTps":                     b.rates.text(func(s sample) int64 { return s.pulls }),
		"getMissTps":                      "0.0 0.0 0.0",
		"msgPutTotalTodayNow":             itoa(b.counters.put.Load()),
		"commitLogDiskRatio_" + b.set.StorePathCommitLog: diskRatio(b.set.StorePathCommitLog),
	}
	for _, key := range zeroKeys {
		table[key] = "0"
	}
	return okJSON(codec.KVTable{Table: table})
}

// zeroKeys are numbers that tools ask for and that are nothing here: there are no thread pools with queues, no timer wheel.
var zeroKeys = []string{
	"sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "ackThreadPoolQueueSize", "queryThreadPoolQueueSize", "litePullThreadPoolQueueSize",
	"EndTransactionQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
	"ackThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueHeadWaitTimeMills",
	"pageCacheLockTimeMills", "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
	"msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
	"msgGetTotalTodayNow", "putMessageEntireTimeMax", "getMessageEntireTimeMax", "dispatchMaxBuffer", "remainTransientStoreBufferNumbs",
	"remainHowManyDataToCommit",
}

func average(sum, n int64) string {
	if n == 0 {
		return "0.0"
	}
	return strconv.FormatFloat(float64(sum)/float64(n), 'f', 1, 64)
}

func byteText(n int64) string { return itoa(n) + " bytes" }

func diskRatio(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Blocks == 0 {
		return "-1.0"
	}
	return strconv.FormatFloat(1-float64(st.Bavail)/float64(st.Blocks), 'f', 4, 64)
}

func diskCapacity(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "unknown"
	}
	const gib = 1 << 30
	size := float64(st.Bsize) / gib
	return fmt.Sprintf("Total : %.1f GiB, Free : %.1f GiB.", float64(st.Blocks)*size, float64(st.Bavail)*size)
}

// earliestMessage is the store time of the log's first message, -1 if there is none.
func (b *Broker) earliestMessage() int64 {
	rec, err := b.store.RecordAt(b.store.MinOffset())
	if err != nil {
		return -1
	}
	defer rec.Release()
	var r codec.Record
	if _, err := r.DecodeUnchecked(rec.Bytes); err != nil {
		return -1
	}
	return r.StoreTimestamp
}

// topicStats gives the bounds of each queue of a topic.
func (b *Broker) topicStats(r *request) answer {
	cfg, known := b.topics.Get(r.text("topic"))
	if !known {
		return failed(codec.TopicNotExist, "topic "+r.text("topic")+" does not exist on broker "+b.set.BrokerName)
	}
	table := map[codec.MessageQueue]codec.TopicOffset{}
	for id := range queueCount(cfg) {
		q := b.store.Queue(cfg.TopicName, id)
		table[codec.MessageQueue{Topic: cfg.TopicName, BrokerName: b.set.BrokerName, QueueID: id}] = codec.TopicOffset{
			MinOffset: q.MinOffset(), MaxOffset: q.MaxOffset(), LastUpdateTimestamp: b.storeTime(q, q.MaxOffset()-1)}
	}
	return okJSON(codec.TopicStats{OffsetTable: table})
}

// consumeStats gives a group's progress in each queue of the topics it consumes.
func (b *Broker) consumeStats(r *request) answer {
	group := r.text("consumerGroup")
	if group == "" {
		return missingField(r, "consumerGroup")
	}
	topics := map[string]bool{}
	if topic := r.text("topic"); topic != "" {
		topics[topic] = true
	} else {
		for _, t := range b.offsets.ByGroup(group) {
			topics[t] = true
		}
	}
	table := map[codec.MessageQueue]codec.QueueProgress{}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		cfg, known := b.topics.Get(topic)
		if !known {
			continue
		}
		for id := range min(cfg.ReadQueueNums, queueCount(cfg)) {
			table[codec.MessageQueue{Topic: topic, BrokerName: b.set.BrokerName, QueueID: id}] = b.progress(group, topic, id)
		}
	}
	return okJSON(codec.ConsumeStats{OffsetTable: table})
}

func (b *Broker) progress(group, topic string, id int32) codec.QueueProgress {
	q := b.store.Queue(topic, id)
	p := codec.QueueProgress{BrokerOffset: q.MaxOffset()}
	p.ConsumerOffset, _ = b.offsets.Query(group, topic, id)
	p.PullOffset = p.ConsumerOffset
	if p.ConsumerOffset > 0 {
		p.LastTimestamp = max(b.storeTime(q, p.ConsumerOffset-1), 0)
	}
	return p
}

// storeTime is when the message with number n was stored, 0 if it is not known.
func (b *Broker) storeTime(q *commitlog.Queue, n int64) int64 {
	var unit [1]commitlog.Unit
	if n < q.MinOffset() {
		return 0
	}
	if got, err := q.Read(n, unit[:]); err != nil || got == 0 {
		return 0
	}
	rec, err := b.store.RecordAt(unit[0].Offset)
	if err != nil {
		return 0
	}
	defer rec.Release()
	var r codec.Record
	if _, err := r.DecodeUnchecked(rec.Bytes); err != nil {
		return 0
	}
	return r.StoreTimestamp
}

// haStatus answers mqadmin haStatus.
func (b *Broker) haStatus(*request) answer {
	if m := b.master.Load(); m != nil {
		return okJSON(masterHAStatus(m.Status()))
	}
	s := b.slave.Load().Status()
	return okJSON(codec.BrokerHAStatus{HAClientRuntimeInfo: &codec.HAClientInfo{MasterAddr: s.MasterAddr, MaxOffset: s.MaxOffset,
		LastReadTimestamp: s.LastReadMs, LastWriteTimestamp: s.LastReadMs, MasterFlushOffset: s.MasterMax}})
}

func masterHAStatus(s transfer.MasterStatus) codec.BrokerHAStatus {
	out := codec.BrokerHAStatus{Master: true, MasterCommitLogMaxOffset: s.MaxOffset, HAClientRuntimeInfo: &codec.HAClientInfo{}}
	for _, sl := range s.Slaves {
		if sl.InSync && out.InSyncSlaveNums < math.MaxInt32 {
			out.InSyncSlaveNums++
		}
		out.HAConnectionInfo = append(out.HAConnectionInfo, codec.HAConnectionInfo{Addr: sl.Addr, SlaveAckOffset: sl.Acked, Diff: sl.LagBytes,
			InSync: sl.InSync, TransferredByteInSecond: sl.BytesPerSec, TransferFromWhere: sl.Sent})
	}
	return out
}

// haInfo answers an Apache slave that asks where to find the log.
func (b *Broker) haInfo(r *request) answer {
	if b.isSlave() || r.text("masterHaAddress") != "" {
		return ok()
	}
	return answer{ext: map[string]string{"masterAddress": b.host.String(), "masterHaAddress": b.haServerAddr(),
		"masterFlushOffset": itoa(b.store.End())}}
}

// Status is what `tandem status` shows. Its JSON is the answer to codec.ReqTandemStatus.
type Status struct {
	Version    int                    `json:"version"` // of this shape
	Cluster    string                 `json:"cluster"`
	BrokerName string                 `json:"brokerName"`
	BrokerID   int64                  `json:"brokerId"`
	Role       string                 `json:"role"`
	Addr       string                 `json:"addr"`
	Rule       string                 `json:"rule"` // when a send is answered OK
	MinOffset  int64                  `json:"minOffset"`
	MaxOffset  int64                  `json:"maxOffset"`
	Flushed    int64                  `json:"flushed"`
	Dispatched int64                  `json:"dispatched"`
	StoreError string                 `json:"storeError,omitempty"`
	UptimeMs   int64                  `json:"uptimeMs"`
	Appends    *AppendTimes           `json:"appendTimes,omitempty"` // of a master
	Master     *transfer.MasterStatus `json:"master,omitempty"`
	Slave      *transfer.SlaveStatus  `json:"slave,omitempty"`
}

// AppendTimes says how long sends waited for and held the log, since the broker's start: one count for each turn of a loop that
// stored something.
type AppendTimes struct {
	Count   int64 `json:"count"`
	P50Ns   int64 `json:"p50Ns"`
	P99Ns   int64 `json:"p99Ns"`
	P999Ns  int64 `json:"p999Ns"`
	P9999Ns int64 `json:"p9999Ns"`
	MaxNs   int64 `json:"maxNs"`
}

func (b *Broker) appendTimes() *AppendTimes {
	t := b.store.AppendTimes()
	n := t.Count()
	if n == 0 {
		return nil
	}
	return &AppendTimes{Count: n, P50Ns: t.Quantile(0.5), P99Ns: t.Quantile(0.99), P999Ns: t.Quantile(0.999),
		P9999Ns: t.Quantile(0.9999), MaxNs: t.Max()}
}

func (b *Broker) status(*request) answer {
	s := Status{Version: 1, Cluster: b.set.BrokerClusterName, BrokerName: b.set.BrokerName, BrokerID: b.set.BrokerID,
		Role: string(b.set.BrokerRole), Addr: b.host.String(), Rule: b.set.ReplicationRule(), MinOffset: b.store.MinOffset(), MaxOffset: b.store.End(),
		Flushed: b.store.Flushed(), Dispatched: b.store.Dispatched(), UptimeMs: time.Since(b.started).Milliseconds()}
	if err := b.store.Err(); err != nil {
		s.StoreError = err.Error()
	}
	if m := b.master.Load(); m != nil {
		st := m.Status()
		s.Master, s.Appends = &st, b.appendTimes()
	}
	if sl := b.slave.Load(); sl != nil {
		st := sl.Status()
		s.Slave = &st
	}
	return okJSON(s)
}
