package settings

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is the value of brokerRole.
type Role string

const (
	AsyncMaster Role = "ASYNC_MASTER" // answers a send when it is in the master's log
	SyncMaster  Role = "SYNC_MASTER"  // answers a send when slaves have it too
	Slave       Role = "SLAVE"        // follows a master, refuses writes
)

// IsMaster tells whether a broker of this role takes writes.
func (r Role) IsMaster() bool { return r != Slave }

// FlushDiskType is the value of flushDiskType.
type FlushDiskType string

const (
	AsyncFlush FlushDiskType = "ASYNC_FLUSH" // the log is flushed in the background
	SyncFlush  FlushDiskType = "SYNC_FLUSH"  // a send is answered after its bytes were flushed
)

// JoinFrom is the value of haJoinFrom: where an empty slave begins.
type JoinFrom string

const (
	JoinLast   JoinFrom = "last"   // the master's newest segment, as RocketMQ's slaves do
	JoinOldest JoinFrom = "oldest" // the master's oldest segment: the whole log
)

// Values of haEventLoop: whose event loops read what slaves report.
const (
	HaLoopShared = "shared" // the clients'
	HaLoopOwn    = "own"    // one of their own
)

// Millis is a time in milliseconds, as RocketMQ's files give it.
type Millis int64

// Duration is m as Go has it.
func (m Millis) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// Settings holds the value in force of each setting, with the defaults filled in. The comment of a field names its
// key; [Table] describes each of them. A Settings is a plain value: copy it freely. It is not safe for concurrent change.
//
// Some defaults follow from other settings (haListenPort from listenPort, storePathCommitLog from storePathRootDir, …).
// [Settings.Set] keeps them up to date; whoever assigns fields directly sets such fields too.
type Settings struct {
	BrokerClusterName string // brokerClusterName
	BrokerName        string // brokerName
	BrokerID          int64  // brokerId; 0 on a master
	BrokerRole        Role   // brokerRole
	BrokerIP1         string // brokerIP1: the address clients and name servers are told
	BrokerIP2         string // brokerIP2: the address slaves are told

	ListenPort               int32  // listenPort; 0: one chosen by the system
	BindAddress              string // bindAddress
	EventLoops               int    // eventLoops
	MaxConnections           int    // maxConnections; 0: as the descriptor limit allows
	MaxInFlightPerConnection int    // maxInFlightPerConnection
	SoftOutputBytes          int    // softOutputBytes
	HardOutputBytes          int    // hardOutputBytes
	StallTimeout             Millis // stallTimeout

	NamesrvAddr                string // namesrvAddr; see NameServers
	RegisterNameServerPeriod   Millis // registerNameServerPeriod
	RegisterBrokerTimeoutMills Millis // registerBrokerTimeoutMills
	EmbeddedNamesrvPort        int32  // embeddedNamesrvPort; 0: none

	StorePathRootDir                  string        // storePathRootDir
	StorePathCommitLog                string        // storePathCommitLog
	MappedFileSizeCommitLog           int64         // mappedFileSizeCommitLog, bytes
	MappedFileSizeConsumeQueue        int           // mappedFileSizeConsumeQueue, bytes, a multiple of 20; see ConsumeQueueUnits
	FlushDiskType                     FlushDiskType // flushDiskType
	FlushIntervalCommitLog            Millis        // flushIntervalCommitLog
	FlushCommitLogLeastPages          int           // flushCommitLogLeastPages
	FlushCommitLogThoroughInterval    Millis        // flushCommitLogThoroughInterval
	FlushIntervalConsumeQueue         Millis        // flushIntervalConsumeQueue
	FlushConsumeQueueLeastPages       int           // flushConsumeQueueLeastPages
	FlushConsumeQueueThoroughInterval Millis        // flushConsumeQueueThoroughInterval
	SyncFlushTimeout                  Millis        // syncFlushTimeout

	MaxMessageSize              int    // maxMessageSize, bytes of the body
	MessageDelayLevel           string // messageDelayLevel; see DelayLevels
	AutoCreateTopicEnable       bool   // autoCreateTopicEnable
	AutoCreateSubscriptionGroup bool   // autoCreateSubscriptionGroup
	DefaultTopicQueueNums       int    // defaultTopicQueueNums
	BrokerPermission            int    // brokerPermission: 2 write, 4 read, 6 both
	LongPollingEnable           bool   // longPollingEnable
	SlaveReadEnable             bool   // slaveReadEnable
	FlushConsumerOffsetInterval Millis // flushConsumerOffsetInterval

	HaListenPort              int32    // haListenPort; 0: one chosen by the system
	HaMasterAddress           string   // haMasterAddress, host:port; empty: asked of the name servers
	MasterAddr                string   // masterAddr, host:port of the master's listenPort; empty: asked of the name servers
	HaJoinFrom                JoinFrom // haJoinFrom
	HaSendHeartbeatInterval   Millis   // haSendHeartbeatInterval
	HaHousekeepingInterval    Millis   // haHousekeepingInterval
	HaTransferBatchSize       int      // haTransferBatchSize, bytes
	HaMaxTransferBatchSize    int      // haMaxTransferBatchSize, bytes; at least HaTransferBatchSize
	HaFramesInFlight          int      // haFramesInFlight
	HaMaxGapNotInSync         int64    // haMaxGapNotInSync, bytes
	InSyncReplicas            int      // inSyncReplicas as given; 0: the role's default. See NeededReplicas
	MinInSyncReplicas         int      // minInSyncReplicas
	TotalReplicas             int      // totalReplicas
	SlaveTimeout              Millis   // slaveTimeout
	HaRingSize                int      // haRingSize, sends that may wait at once
	HaEventLoop               string   // haEventLoop: HaLoopShared or HaLoopOwn
	HaTransferMode            string   // haTransferMode: auto, sendfile, mmap or copy
	HaFlowControlEnable       bool     // haFlowControlEnable
	MaxHaTransferByteInSecond int64    // maxHaTransferByteInSecond
	SlaveSyncMetadataInterval Millis   // slaveSyncMetadataInterval

	LogLevel string // logLevel: debug, info, warn, error

	explicit [maxSettings]bool // by table index: given in a file, by a flag or by Set
}

// maxSettings bounds the table, so that Settings stays a plain value. A test holds it.
const maxSettings = 96

// NeededReplicas is how many copies of a message, the master's included, there must be before its send is answered OK.
// A SYNC_MASTER needs two where inSyncReplicas is not given; every other role needs its own copy only.
func (s *Settings) NeededReplicas() int {
	switch {
	case s.BrokerRole != SyncMaster:
		return 1
	case s.InSyncReplicas == 0:
		return 2
	default:
		return s.InSyncReplicas
	}
}

// ReplicationRule says in one line when a send is answered OK.
func (s *Settings) ReplicationRule() string {
	flushed := ""
	if s.FlushDiskType == SyncFlush {
		flushed = ", flushed to disk"
	}
	switch n := s.NeededReplicas(); {
	case s.BrokerRole == Slave:
		return "SLAVE: takes no sends, follows a master"
	case s.BrokerRole == AsyncMaster:
		return "ASYNC_MASTER: a send is OK once it is in the master's log" + flushed + "; slaves follow behind"
	case n == 1:
		return "SYNC_MASTER with inSyncReplicas=1: a send is OK once it is in the master's log" + flushed + "; it waits for NO slave"
	default:
		return fmt.Sprintf("SYNC_MASTER: a send is OK once it is in the master's log%s and %d slave(s) have it (%d copies), within %d ms",
			flushed, n-1, n, s.SlaveTimeout)
	}
}

// NameServers is namesrvAddr as a list of host:port, and the name server of this process where there is one; empty if there
// is none.
func (s *Settings) NameServers() []string {
	servers := splitList(s.NamesrvAddr)
	if s.EmbeddedNamesrvPort == 0 {
		return servers
	}
	host := s.BindAddress
	if a, err := netip.ParseAddr(host); err != nil || a.IsUnspecified() {
		host = "127.0.0.1"
	}
	own := net.JoinHostPort(host, strconv.Itoa(int(s.EmbeddedNamesrvPort)))
	if slices.Contains(servers, own) {
		return servers
	}
	return append(servers, own)
}

// ConsumeQueueUnits is the number of 20-byte units in a consume queue file.
func (s *Settings) ConsumeQueueUnits() int { return s.MappedFileSizeConsumeQueue / consumeQueueUnit }

// ListenAddrs are the addresses to serve clients on: listenPort, and the VIP port two below it, where Java slaves ask
// for topics. With a port chosen by the system there is no VIP port.
func (s *Settings) ListenAddrs() []string {
	if s.ListenPort == 0 {
		return []string{s.bind(0)}
	}
	return []string{s.bind(s.ListenPort), s.bind(s.ListenPort - vipDistance)}
}

// HAListenAddr is the address to serve slaves on.
func (s *Settings) HAListenAddr() string { return s.bind(s.HaListenPort) }

// EmbeddedNamesrvAddr is the address of the name server inside the process; empty if there is none.
func (s *Settings) EmbeddedNamesrvAddr() string {
	if s.EmbeddedNamesrvPort == 0 {
		return ""
	}
	return s.bind(s.EmbeddedNamesrvPort)
}

func (s *Settings) bind(port int32) string {
	return net.JoinHostPort(s.BindAddress, strconv.Itoa(int(port)))
}

// DelayLevels is messageDelayLevel as durations; level n is the n-th, counted from 1.
func (s *Settings) DelayLevels() []time.Duration {
	levels, _ := parseDelayLevels(s.MessageDelayLevel) // checked when it was set
	return levels
}

// StoreHost is brokerIP1 with the given port, as it is written into records and told to clients. A host name is looked up, which may take a
// while; one that cannot be found is an ErrBadValue.
func (s *Settings) StoreHost(port int) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(s.BrokerIP1)
	if err != nil {
		ip, err := net.ResolveIPAddr("ip", s.BrokerIP1)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%w: brokerIP1=%s: not valid: %w; valid: this machine's IP address, or a name that is found", ErrBadValue, s.BrokerIP1, err)
		}
		addr, _ = netip.AddrFromSlice(ip.IP)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// vipDistance: RocketMQ serves a second port this far below listenPort (NettyRemotingServer's "fast" server).
const vipDistance = 2

// consumeQueueUnit is the size of one consume queue entry in bytes.
const consumeQueueUnit = 20

// resolve fills in the defaults that follow from other settings, where they were not given.
func (s *Settings) resolve() {
	derive := func(key string, fill func()) {
		if !s.IsSet(key) {
			fill()
		}
	}
	if s.BrokerRole.IsMaster() {
		s.BrokerID = 0 // BrokerStartup: a master is 0 whatever its file says
	}
	derive("haListenPort", func() {
		s.HaListenPort = 0
		if s.ListenPort != 0 {
			s.HaListenPort = s.ListenPort + 1
		}
	})
	derive("storePathCommitLog", func() { s.StorePathCommitLog = filepath.Join(s.StorePathRootDir, "commitlog") })
	derive("brokerIP2", func() { s.BrokerIP2 = defaultHAAddress(s.BrokerIP1, s.IsSet("brokerIP1")) })
	derive("masterAddr", func() { s.MasterAddr = masterAddrOf(s.HaMasterAddress) })
	if rest := s.MappedFileSizeConsumeQueue % consumeQueueUnit; rest != 0 {
		s.MappedFileSizeConsumeQueue += consumeQueueUnit - rest // MessageStoreConfig rounds up in the same way
	}
}

// defaultHAAddress is the machine's own address, as in RocketMQ also where brokerIP1 names another one (brokerIP1 may be
// a public address in front of the machine). Only a broker that is on loopback by its owner's word stays there wholly.
func defaultHAAddress(ip1 string, ip1Given bool) string {
	if addr, err := netip.ParseAddr(ip1); ip1Given && err == nil && addr.IsLoopback() {
		return ip1
	}
	return ownAddress()
}

// masterAddrOf guesses a master's remoting address from its HA address: RocketMQ puts the HA port one above listenPort.
func masterAddrOf(haAddr string) string {
	host, port, err := net.SplitHostPort(haAddr)
	if err != nil {
		return ""
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 2 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(n-1))
}

// ownAddress is the first IPv4 address of this machine that is not loopback, 127.0.0.1 if there is none.
func ownAddress() string {
	addrs, _ := net.InterfaceAddrs() // no addresses: loopback is the answer
	for _, a := range addrs {
		ipNet, ok := a.(*net.IPNet)
		if ok && ipNet.IP.To4() != nil && !ipNet.IP.IsLoopback() && !ipNet.IP.IsLinkLocalUnicast() {
			return ipNet.IP.String()
		}
	}
	return "127.0.0.1"
}

func splitList(v string) []string {
	var list []string
	for part := range strings.SplitSeq(v, ";") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
