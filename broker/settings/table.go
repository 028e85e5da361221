package settings

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Kind is how the text of a setting is read.
type Kind string

const (
	KindInt    Kind = "int"    // a whole number
	KindInt64  Kind = "int64"  // a whole number, maybe above 2^31
	KindSize   Kind = "size"   // a whole number of bytes
	KindMillis Kind = "millis" // a whole number of milliseconds
	KindBool   Kind = "bool"   // true or false
	KindEnum   Kind = "enum"   // one of Values
	KindString Kind = "string" // text
)

// Applies says which roles look at a setting.
type Applies string

const (
	AnyRole    Applies = "any"
	MasterOnly Applies = "master"
	SlaveOnly  Applies = "slave"
)

// Setting describes one setting: the flag, the line in --help, the row in the documentation and the checks all come from it.
type Setting struct {
	Key         string   // RocketMQ's own spelling, or tandem's own key in the same style
	Aliases     []string // other spellings that mean the same (older RocketMQ)
	New         bool     // tandem's own: RocketMQ has no such key
	Group       string   // one of Groups
	Role        Applies
	Kind        Kind
	Unit        string   // "ms", "bytes", …; empty for text and switches
	Default     string   // the default as text, this machine's where it depends on the machine
	DefaultText string   // the default in words, where it depends on the machine or on other settings
	Values      []string // KindEnum: what is valid
	Min, Max    int64    // number kinds: the range, both ends valid
	Help        string   // one line, without a full stop

	field func(*Settings) any // pointer to the field
	text  textRule            // KindString: what is valid
	index int                 // place in the table
}

// Groups of settings, in the order of --help and of the documentation.
const (
	GroupBroker      = "Broker"
	GroupNetwork     = "Network"
	GroupNameServers = "Name servers"
	GroupStore       = "Store"
	GroupMessages    = "Messages"
	GroupReplication = "Replication"
	GroupLog         = "Log"
)

// Groups lists the groups in their order.
func Groups() []string {
	return []string{GroupBroker, GroupNetwork, GroupNameServers, GroupStore, GroupMessages, GroupReplication, GroupLog}
}

// DefaultWords is the default as people read it: in words where it depends on the machine.
func (s *Setting) DefaultWords() string {
	if s.DefaultText != "" {
		return s.DefaultText
	}
	return s.Default
}

// Valid says in words which values the setting takes.
func (s *Setting) Valid() string {
	switch s.Kind {
	case KindBool:
		return "true or false"
	case KindEnum:
		return oneOf(s.Values)
	case KindInt, KindInt64, KindSize, KindMillis:
		text := fmt.Sprintf("a whole number from %d to %d", s.Min, s.Max)
		if s.Unit != "" {
			text += " (" + s.Unit + ")"
		}
		return text
	default:
		return s.text.valid
	}
}

const (
	maxPort   = math.MaxUint16
	maxInt32  = math.MaxInt32
	hour      = int64(time.Hour / time.Millisecond)
	pageBytes = 4096
	// maxHABatch: a Java slave's read buffer of 4 MiB must never be full, the frame's header included (DefaultHAClient).
	maxHABatch = 4<<20 - 13
)

// Table describes every setting, in a fixed order. The slice is the caller's.
func Table() []Setting { return slices.Clone(described()) }

// described is the table, made once: the defaults that depend on the machine are looked up then. Not to be written to.
var described = sync.OnceValue(func() []Setting {
	table := concat(brokerTable(), networkTable(), nameServerTable(), storeTable(), messageTable(), replicationTable(), logTable())
	for i := range table {
		table[i].index = i
	}
	return table
})

func brokerTable() []Setting {
	return []Setting{
		{Key: "brokerClusterName", Default: "DefaultCluster", Kind: KindString, text: nameRule,
			Help: "cluster this broker belongs to", field: func(s *Settings) any { return &s.BrokerClusterName }},
		{Key: "brokerName", Default: hostName(), DefaultText: "the host name", Kind: KindString, text: nameRule,
			Help: "name that a master and its slaves share", field: func(s *Settings) any { return &s.BrokerName }},
		{Key: "brokerId", Default: "0", Kind: KindInt64, Min: 0, Max: math.MaxInt64,
			Help:  "0 on a master whatever is given; a slave needs one above 0 that no other slave of the name has",
			field: func(s *Settings) any { return &s.BrokerID }},
		{Key: "brokerRole", Default: string(AsyncMaster), Kind: KindEnum, Values: []string{string(AsyncMaster), string(SyncMaster), string(Slave)},
			Help: "whether sends are taken, and whether they wait for slaves", field: func(s *Settings) any { return &s.BrokerRole }},
		{Key: "brokerPermission", Default: "6", Kind: KindInt, Min: 0, Max: 15, Role: MasterOnly,
			Help: "what clients may do: 2 write, 4 read, 6 both", field: func(s *Settings) any { return &s.BrokerPermission }},
	}
}

func networkTable() []Setting {
	return []Setting{
		{Key: "brokerIP1", Default: ownAddress(), DefaultText: "the machine's first address", Kind: KindString, text: hostRule,
			Help: "address that clients are told", field: func(s *Settings) any { return &s.BrokerIP1 }},
		{Key: "brokerIP2", Default: ownAddress(), DefaultText: "the machine's first address; brokerIP1 where that is given and loopback", Kind: KindString, text: hostRule,
			Role: MasterOnly, Help: "address that slaves are told", field: func(s *Settings) any { return &s.BrokerIP2 }},
		{Key: "listenPort", Default: "10911", Kind: KindInt, Max: maxPort,
			Help: "port for clients; listenPort-2 is served too; 0 lets the system choose", field: func(s *Settings) any { return &s.ListenPort }},
		{Key: "bindAddress", Default: "0.0.0.0", Kind: KindString, text: ipRule,
			Help: "address to listen on, for clients and slaves", field: func(s *Settings) any { return &s.BindAddress }},
		{Key: "eventLoops", New: true, Default: "1", Kind: KindInt, Min: 1, Max: 256,
			Help: "event loops that serve clients", field: func(s *Settings) any { return &s.EventLoops }},
		{Key: "maxConnections", New: true, Default: "0", DefaultText: "0: seven eighths of the descriptor limit", Kind: KindInt, Max: 1 << 24,
			Help: "client connections in all; further ones are refused", field: func(s *Settings) any { return &s.MaxConnections }},
		{Key: "maxInFlightPerConnection", New: true, Default: "8192", Kind: KindInt, Min: 1, Max: 1 << 20,
			Help: "requests of one connection waiting for an answer; further ones are answered SYSTEM_BUSY", field: func(s *Settings) any { return &s.MaxInFlightPerConnection }},
		{Key: "softOutputBytes", New: true, Default: "1048576", Kind: KindSize, Min: 64 << 10, Max: 1 << 30, Unit: "bytes",
			Help: "output one connection has not taken yet; above it new requests are answered SYSTEM_BUSY", field: func(s *Settings) any { return &s.SoftOutputBytes }},
		{Key: "hardOutputBytes", New: true, Default: "67108864", Kind: KindSize, Min: 64 << 10, Max: 1 << 31, Unit: "bytes",
			Help: "the same; above it the connection is closed", field: func(s *Settings) any { return &s.HardOutputBytes }},
		{Key: "stallTimeout", New: true, Default: "30000", Kind: KindMillis, Min: 100, Max: hour, Unit: "ms",
			Help: "a peer that takes no byte for this long while output waits is closed", field: func(s *Settings) any { return &s.StallTimeout }},
	}
}

func nameServerTable() []Setting {
	return []Setting{
		{Key: "namesrvAddr", Default: "", DefaultText: "none", Kind: KindString, text: addressListRule,
			Help: "name servers to register at, all of them: host:port;host:port", field: func(s *Settings) any { return &s.NamesrvAddr }},
		{Key: "registerNameServerPeriod", Default: "30000", Kind: KindMillis, Min: 1, Max: maxInt32, Unit: "ms",
			Help: "time between registrations; held within 10000 and 60000", field: func(s *Settings) any { return &s.RegisterNameServerPeriod }},
		{Key: "registerBrokerTimeoutMills", Default: "24000", Kind: KindMillis, Min: 1, Max: maxInt32, Unit: "ms",
			Help: "how long a name server may take to answer", field: func(s *Settings) any { return &s.RegisterBrokerTimeoutMills }},
		{Key: "embeddedNamesrvPort", New: true, Default: "0", Kind: KindInt, Max: maxPort,
			Help: "port of a name server inside this process; 0 for none", field: func(s *Settings) any { return &s.EmbeddedNamesrvPort }},
	}
}

func storeTable() []Setting {
	root := filepath.Join(homeDir(), "store")
	return []Setting{
		{Key: "storePathRootDir", Default: root, DefaultText: "$HOME/store", Kind: KindString, text: pathRule,
			Help: "directory of the store", field: func(s *Settings) any { return &s.StorePathRootDir }},
		{Key: "storePathCommitLog", Default: filepath.Join(root, "commitlog"), DefaultText: "storePathRootDir/commitlog", Kind: KindString, text: pathRule,
			Help: "directory of the commit log", field: func(s *Settings) any { return &s.StorePathCommitLog }},
		{Key: "mappedFileSizeCommitLog", Default: "1073741824", Kind: KindSize, Min: pageBytes, Max: maxInt32, Unit: "bytes",
			Help: "size of a commit log segment; the same on a master and its slaves, and for the life of a store", field: func(s *Settings) any { return &s.MappedFileSizeCommitLog }},
		{Key: "mappedFileSizeConsumeQueue", Default: "6000000", Kind: KindSize, Min: consumeQueueUnit, Max: maxInt32 - consumeQueueUnit, Unit: "bytes",
			Help: "size of a consume queue file; rounded up to whole entries of 20 bytes", field: func(s *Settings) any { return &s.MappedFileSizeConsumeQueue }},
		{Key: "flushDiskType", Default: string(AsyncFlush), Kind: KindEnum, Values: []string{string(AsyncFlush), string(SyncFlush)},
			Help: "whether a send waits until its bytes are on the disk", field: func(s *Settings) any { return &s.FlushDiskType }},
		{Key: "flushIntervalCommitLog", Default: "500", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "ASYNC_FLUSH: time between flushes", field: func(s *Settings) any { return &s.FlushIntervalCommitLog }},
		{Key: "flushCommitLogLeastPages", Default: "4", Kind: KindInt, Max: 1 << 20, Unit: "pages of 4096 bytes",
			Help: "ASYNC_FLUSH: less than this is left for a later flush", field: func(s *Settings) any { return &s.FlushCommitLogLeastPages }},
		{Key: "flushCommitLogThoroughInterval", Default: "10000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "ASYNC_FLUSH: everything is flushed at least this often", field: func(s *Settings) any { return &s.FlushCommitLogThoroughInterval }},
		{Key: "flushIntervalConsumeQueue", Default: "1000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "time between flushes of the consume queues", field: func(s *Settings) any { return &s.FlushIntervalConsumeQueue }},
		{Key: "flushConsumeQueueLeastPages", Default: "2", Kind: KindInt, Max: 1 << 20, Unit: "pages of 4096 bytes",
			Help: "less than this in a queue is left for a later flush", field: func(s *Settings) any { return &s.FlushConsumeQueueLeastPages }},
		{Key: "flushConsumeQueueThoroughInterval", Default: "60000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "all consume queues are flushed at least this often", field: func(s *Settings) any { return &s.FlushConsumeQueueThoroughInterval }},
		{Key: "syncFlushTimeout", Default: "2000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms", Role: MasterOnly,
			Help: "SYNC_FLUSH: a send that waited this long is answered FLUSH_DISK_TIMEOUT", field: func(s *Settings) any { return &s.SyncFlushTimeout }},
	}
}

func messageTable() []Setting {
	return []Setting{
		{Key: "maxMessageSize", Default: "4194304", Kind: KindSize, Min: 1, Max: maxInt32, Unit: "bytes", Role: MasterOnly,
			Help: "largest body of a message or batch", field: func(s *Settings) any { return &s.MaxMessageSize }},
		{Key: "messageDelayLevel", Default: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", Kind: KindString, text: delayRule,
			Help: "the delay levels, first is 1", field: func(s *Settings) any { return &s.MessageDelayLevel }},
		{Key: "autoCreateTopicEnable", Default: "true", Kind: KindBool, Role: MasterOnly,
			Help: "a send to an unknown topic creates it", field: func(s *Settings) any { return &s.AutoCreateTopicEnable }},
		{Key: "autoCreateSubscriptionGroup", Default: "true", Kind: KindBool,
			Help: "an unknown consumer group is created when it is first heard of", field: func(s *Settings) any { return &s.AutoCreateSubscriptionGroup }},
		{Key: "defaultTopicQueueNums", Default: "8", Kind: KindInt, Min: 1, Max: 65535, Role: MasterOnly,
			Help: "queues of a topic that is created by a send", field: func(s *Settings) any { return &s.DefaultTopicQueueNums }},
		{Key: "longPollingEnable", Default: "true", Kind: KindBool,
			Help: "a pull that finds nothing waits for a message", field: func(s *Settings) any { return &s.LongPollingEnable }},
		{Key: "slaveReadEnable", Default: "true", Kind: KindBool, Role: SlaveOnly,
			Help: "a slave serves pulls", field: func(s *Settings) any { return &s.SlaveReadEnable }},
		{Key: "flushConsumerOffsetInterval", Default: "5000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "time between saves of the consumers' offsets", field: func(s *Settings) any { return &s.FlushConsumerOffsetInterval }},
	}
}

func replicationTable() []Setting {
	return []Setting{
		{Key: "haListenPort", Default: "10912", DefaultText: "listenPort+1", Kind: KindInt, Max: maxPort, Role: MasterOnly,
			Help: "port for slaves; 0 lets the system choose", field: func(s *Settings) any { return &s.HaListenPort }},
		{Key: "haMasterAddress", Default: "", DefaultText: "asked of the name servers", Kind: KindString, text: addressRule, Role: SlaveOnly,
			Help: "host:port of the master's haListenPort", field: func(s *Settings) any { return &s.HaMasterAddress }},
		{Key: "masterAddr", New: true, Default: "", DefaultText: "haMasterAddress with its port less 1, else asked of the name servers", Kind: KindString, text: addressRule, Role: SlaveOnly,
			Help: "host:port of the master's listenPort", field: func(s *Settings) any { return &s.MasterAddr }},
		{Key: "haJoinFrom", New: true, Default: string(JoinLast), Kind: KindEnum, Values: []string{string(JoinLast), string(JoinOldest)}, Role: SlaveOnly,
			Help: "where an empty slave begins: the master's last segment, or its oldest and so the whole log", field: func(s *Settings) any { return &s.HaJoinFrom }},
		{Key: "haSendHeartbeatInterval", Default: "5000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "a connection that was idle this long gets a heartbeat", field: func(s *Settings) any { return &s.HaSendHeartbeatInterval }},
		{Key: "haHousekeepingInterval", Default: "20000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms",
			Help: "a peer that was silent this long is given up", field: func(s *Settings) any { return &s.HaHousekeepingInterval }},
		{Key: "haTransferBatchSize", Default: "32768", Kind: KindSize, Min: 1024, Max: maxHABatch, Unit: "bytes", Role: MasterOnly,
			Help: "bytes of the log in one frame to a slave", field: func(s *Settings) any { return &s.HaTransferBatchSize }},
		{Key: "haMaxTransferBatchSize", New: true, Default: "1048576", Kind: KindSize, Min: 1024, Max: maxHABatch, Unit: "bytes", Role: MasterOnly,
			Help: "what a frame grows to while its slave lags", field: func(s *Settings) any { return &s.HaMaxTransferBatchSize }},
		{Key: "haFramesInFlight", New: true, Default: "2", Kind: KindInt, Min: 1, Max: 1024, Unit: "frames", Role: MasterOnly,
			Help: "frames on their way to a caught-up slave from which on appended bytes gather until its next report", field: func(s *Settings) any { return &s.HaFramesInFlight }},
		{Key: "haMaxGapNotInSync", Aliases: []string{"haSlaveFallbehindMax"}, Default: "268435456", Kind: KindSize, Min: 1, Max: math.MaxInt64, Unit: "bytes", Role: MasterOnly,
			Help: "a slave further behind than this does not count as in sync", field: func(s *Settings) any { return &s.HaMaxGapNotInSync }},
		{Key: "inSyncReplicas", Default: "0", DefaultText: "0: 2 on a SYNC_MASTER", Kind: KindInt, Max: 64, Role: MasterOnly, Unit: "copies",
			Help: "SYNC_MASTER: copies a send waits for, the master's included; 1 waits for no slave", field: func(s *Settings) any { return &s.InSyncReplicas }},
		{Key: "minInSyncReplicas", Default: "1", Kind: KindInt, Min: 1, Max: 64, Role: MasterOnly, Unit: "copies",
			Help: "read for RocketMQ's sake: without a controller nothing asks for it", field: func(s *Settings) any { return &s.MinInSyncReplicas }},
		{Key: "totalReplicas", Default: "1", Kind: KindInt, Min: 1, Max: 64, Unit: "copies",
			Help: "copies there are in all, the master's included; only compared with inSyncReplicas", field: func(s *Settings) any { return &s.TotalReplicas }},
		{Key: "slaveTimeout", Default: "2000", Kind: KindMillis, Min: 1, Max: hour, Unit: "ms", Role: MasterOnly,
			Help: "SYNC_MASTER: a send that waited this long for slaves is answered FLUSH_SLAVE_TIMEOUT", field: func(s *Settings) any { return &s.SlaveTimeout }},
		{Key: "haRingSize", New: true, Default: "65536", Kind: KindInt, Min: 64, Max: 1 << 24, Unit: "sends", Role: MasterOnly,
			Help: "sends that may wait for slaves or the disk at once; further ones are answered SYSTEM_BUSY", field: func(s *Settings) any { return &s.HaRingSize }},
		{Key: "haEventLoop", New: true, Default: HaLoopShared, Kind: KindEnum, Values: []string{HaLoopShared, HaLoopOwn}, Role: MasterOnly,
			Help: "where slaves' reports are read: on the clients' event loops, which saves a thread's wake-up per answer, or on one of their own", field: func(s *Settings) any { return &s.HaEventLoop }},
		{Key: "haTransferMode", New: true, Default: "auto", Kind: KindEnum, Values: []string{"auto", "sendfile", "mmap", "copy"}, Role: MasterOnly,
			Help: "how log bytes leave for the slaves: sendfile, from the mapped segment, read into memory first, or (auto) as size and heat of the bytes suggest", field: func(s *Settings) any { return &s.HaTransferMode }},
		{Key: "haFlowControlEnable", Default: "false", Kind: KindBool, Role: MasterOnly,
			Help: "limit what each slave that lags is sent", field: func(s *Settings) any { return &s.HaFlowControlEnable }},
		{Key: "maxHaTransferByteInSecond", Default: "104857600", Kind: KindSize, Min: 1 << 20, Max: math.MaxInt32, Unit: "bytes", Role: MasterOnly,
			Help: "that limit, per second", field: func(s *Settings) any { return &s.MaxHaTransferByteInSecond }},
		{Key: "slaveSyncMetadataInterval", New: true, Default: "10000", Kind: KindMillis, Min: 100, Max: hour, Unit: "ms", Role: SlaveOnly,
			Help: "time between fetches of topics, groups and offsets from the master", field: func(s *Settings) any { return &s.SlaveSyncMetadataInterval }},
	}
}

func logTable() []Setting {
	return []Setting{
		{Key: "logLevel", New: true, Default: "info", Kind: KindEnum, Values: []string{"debug", "info", "warn", "error"},
			Help: "least severe kind of line that is logged", field: func(s *Settings) any { return &s.LogLevel }},
	}
}

func concat(parts ...[]Setting) []Setting {
	var table []Setting
	for i, part := range parts {
		for _, s := range part {
			s.Group = Groups()[i]
			if s.Role == "" {
				s.Role = AnyRole
			}
			table = append(table, s)
		}
	}
	return table
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil || !isName(name) {
		return "DEFAULT_BROKER" // what RocketMQ calls a broker whose host has no name
	}
	return name
}

func homeDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "."
	}
	return home
}

// format writes the field's value as text.
func (s *Setting) format(from *Settings) string {
	switch f := s.field(from).(type) {
	case *string:
		return *f
	case *Role:
		return string(*f)
	case *FlushDiskType:
		return string(*f)
	case *JoinFrom:
		return string(*f)
	case *bool:
		return strconv.FormatBool(*f)
	case *int:
		return strconv.Itoa(*f)
	case *int32:
		return strconv.Itoa(int(*f))
	case *int64:
		return strconv.FormatInt(*f, 10)
	case *Millis:
		return strconv.FormatInt(int64(*f), 10)
	default:
		panic("BUG: settings: no text form for " + s.Key)
	}
}

// parse reads text into the field; it returns what would be valid where the text is not.
func (s *Setting) parse(into *Settings, value string) (valid string) {
	switch s.Kind {
	case KindBool:
		return s.parseBool(into, value)
	case KindEnum:
		return s.parseEnum(into, value)
	case KindString:
		return s.parseString(into, value)
	default:
		return s.parseNumber(into, value)
	}
}
