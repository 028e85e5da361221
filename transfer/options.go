package transfer

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"
)

// Defaults and bounds of the options below.
const (
	DefaultBatchSize       = 32 << 10
	DefaultMaxBatch        = 1 << 20
	LargestBatch           = 4<<20 - 12 - 1 // a Java slave's buffer is 4 MiB, header included, and must never be full
	DefaultHeartbeat       = 5 * time.Second
	DefaultHousekeeping    = 20 * time.Second
	DefaultMaxGapNotInSync = 256 << 20
	DefaultAckTimeout      = 2 * time.Second
	DefaultRingSize        = 65536
	DefaultMaxSessions     = 256
	DefaultInFlight        = 2
	DefaultFeedPace        = 2 * time.Millisecond
	DefaultFeedSlack       = 500 * time.Microsecond
	LargestInFlight        = 1024
)

// Mode says how a body leaves the master.
type Mode int

const (
	// Auto sends small bodies for caught-up slaves from the mapping, together with the header, and all others by sendfile.
	Auto Mode = iota
	// Sendfile sends every body by sendfile from the segment's file.
	Sendfile
	// Mapped sends every body by a vectored write from inside the mapped segment.
	Mapped
	// Copied reads every body into memory first, for file systems that can do neither.
	Copied
)

// ParseMode reads the configuration's word (haTransferMode).
func ParseMode(s string) (Mode, error) {
	switch s {
	case "auto", "":
		return Auto, nil
	case "sendfile":
		return Sendfile, nil
	case "mmap":
		return Mapped, nil
	case "copy":
		return Copied, nil
	}
	return Auto, fmt.Errorf("%w: haTransferMode=%s; auto, sendfile, mmap or copy", ErrOptions, s)
}

// MasterOptions configures a Master. A zero field means its default.
type MasterOptions struct {
	// Addr is the host:port to listen on (haListenPort); port 0 lets the system choose.
	Addr string
	// BatchSize is the measure of a frame's body, in bytes (haTransferBatchSize, 32 KiB). A slave that is less than eight of
	// them behind counts as caught up and gets what it lacks in one frame; half as many gather for a report at most.
	BatchSize int
	// MaxBatch bounds the body while a slave lags, in bytes (1 MiB, at most 4 MiB - 13: a Java
	// slave that is sent more never gets further).
	MaxBatch int
	// InFlight is how many frames may be on their way to a caught-up slave, not acknowledged, before what is appended gathers
	// until its next report comes, a few batches at most (2). 1 costs the least per message, many make nothing wait.
	InFlight int
	// FeedPace is how long slaves beyond those that writes wait for may lack what others were sent, if nothing more is appended: up
	// to twice that (2 ms).
	FeedPace time.Duration
	// FeedSlack is how much longer than four times those of the slaves that a write has to wait for anyway a slave's reports may take for
	// it to be one of those that are sent at once what writes wait for (500 µs).
	FeedSlack time.Duration
	// HeartbeatInterval is the silence after which an empty frame is sent (haSendHeartbeatInterval, 5 s).
	HeartbeatInterval time.Duration
	// Housekeeping is how long a slave may go without a valid report, its first one included, and
	// how long it may take no byte while output waits, before its connection is closed
	// (haHousekeepingInterval, 20 s).
	Housekeeping time.Duration
	// InSyncReplicas is how many copies a sync write needs, the master's included. 0 means the
	// default: 2 if Sync. 1 waits for nobody.
	InSyncReplicas int
	// MinInSyncReplicas is kept for RocketMQ's configuration files. In plain master/slave mode
	// neither RocketMQ 5.x nor this master consults it; the rule text says so.
	MinInSyncReplicas int
	// MaxGapNotInSync is the lag in bytes from which on a slave is not usable (haMaxGapNotInSync, 256 MiB).
	MaxGapNotInSync int64
	// SlaveTimeout and SyncFlushTimeout end a ticket's wait for slaves and for the disk (2 s each, so
	// that the answer comes before the clients' own 3 s are over).
	SlaveTimeout, SyncFlushTimeout time.Duration
	// Sync is brokerRole=SYNC_MASTER; SyncFlush is flushDiskType=SYNC_FLUSH.
	Sync, SyncFlush bool
	// RingSize is how many answers can wait at once (65536; rounded up to a power of two).
	RingSize int
	// MaxSessions bounds the connections on the HA port (256); more are closed at once.
	MaxSessions int
	// MaxBytesPerSecond limits what each lagging slave is sent; 0 is no limit. What a caught-up
	// slave gets as it is appended is not limited.
	MaxBytesPerSecond int64
	// Mode says how bodies leave (haTransferMode).
	Mode Mode
	// Now gives milliseconds since the epoch for what is shown in Status. nil is the wall clock.
	Now func() int64
	// Logger may be nil.
	Logger *zap.Logger
}

// fill puts the defaults in.
func (o *MasterOptions) fill() {
	setDefault(&o.BatchSize, DefaultBatchSize)
	setDefault(&o.MaxBatch, max(DefaultMaxBatch, o.BatchSize))
	setDefault(&o.InFlight, DefaultInFlight)
	setDefault(&o.FeedPace, DefaultFeedPace)
	setDefault(&o.FeedSlack, DefaultFeedSlack)
	setDefault(&o.HeartbeatInterval, DefaultHeartbeat)
	setDefault(&o.Housekeeping, DefaultHousekeeping)
	setDefault(&o.MaxGapNotInSync, DefaultMaxGapNotInSync)
	setDefault(&o.SlaveTimeout, DefaultAckTimeout)
	setDefault(&o.SyncFlushTimeout, DefaultAckTimeout)
	setDefault(&o.RingSize, DefaultRingSize)
	setDefault(&o.MaxSessions, DefaultMaxSessions)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// check names the first value that cannot work.
func (o *MasterOptions) check() error {
	switch {
	case o.Addr == "":
		return fmt.Errorf("%w: no HA address to listen on; give host:port", ErrOptions)
	case o.BatchSize < 1 || o.BatchSize > LargestBatch:
		return fmt.Errorf("%w: haTransferBatchSize=%d; 1 to %d bytes are possible", ErrOptions, o.BatchSize, LargestBatch)
	case o.MaxBatch < o.BatchSize || o.MaxBatch > LargestBatch:
		return fmt.Errorf("%w: largest HA batch %d; haTransferBatchSize (%d) to %d bytes are possible", ErrOptions, o.MaxBatch, o.BatchSize, LargestBatch)
	case o.InFlight < 1 || o.InFlight > LargestInFlight:
		return fmt.Errorf("%w: %d frames on their way to a slave; 1 to %d are possible", ErrOptions, o.InFlight, LargestInFlight)
	case o.InSyncReplicas < 0:
		return fmt.Errorf("%w: inSyncReplicas=%d; 1 (wait for nobody) or more copies, the master's included", ErrOptions, o.InSyncReplicas)
	case o.HeartbeatInterval < 0 || o.Housekeeping < 0 || o.SlaveTimeout < 0 || o.SyncFlushTimeout < 0:
		return fmt.Errorf("%w: a negative HA interval or time-out", ErrOptions)
	case o.RingSize < 1 || o.RingSize > 1<<26:
		return fmt.Errorf("%w: %d answers waiting at once; 1 to %d are possible", ErrOptions, o.RingSize, 1<<26)
	case o.MaxGapNotInSync < 0 || o.MaxBytesPerSecond < 0 || o.MaxSessions < 0:
		return fmt.Errorf("%w: haMaxGapNotInSync, the transfer limit and the number of sessions cannot be negative", ErrOptions)
	}
	return nil
}

// JoinFrom says where an empty slave begins.
type JoinFrom int

const (
	// JoinLast begins at the start of the master's newest segment, as RocketMQ does.
	JoinLast JoinFrom = iota
	// JoinOldest fetches the whole log.
	JoinOldest
)

// String gives the configuration's word.
func (j JoinFrom) String() string {
	if j == JoinOldest {
		return "oldest"
	}
	return "last"
}

// ParseJoinFrom reads the configuration's word (haJoinFrom).
func ParseJoinFrom(s string) (JoinFrom, error) {
	switch s {
	case "last", "":
		return JoinLast, nil
	case "oldest":
		return JoinOldest, nil
	}
	return JoinLast, fmt.Errorf("%w: haJoinFrom=%s; last or oldest", ErrOptions, s)
}

// Peer is how a slave reaches its master's remoting port. Calls may block until ctx ends, come from
// the slave's own goroutine only, and one at a time. It wraps the sentinels of this package.
type Peer interface {
	// HAAddr gives the master's HA address as host:port, or ErrNoMaster.
	HAAddr(ctx context.Context) (string, error)
	// Hello tells the master who this slave is and that the HA connection from haLocal is its own.
	// ErrNotSupported from masters that do not know it.
	Hello(ctx context.Context, haLocal netip.AddrPort) error
	// Refuse tells the master that the slave with the HA connection from haLocal does not follow it, and why, so that the master's
	// operator sees it too. Best effort: its errors change nothing.
	Refuse(ctx context.Context, haLocal netip.AddrPort, reason string) error
	// Range gives the lowest and the end offset of the master's log.
	Range(ctx context.Context) (min, max int64, err error)
	// Record gives the bytes of the record that starts exactly at off, or ErrNoRecord.
	Record(ctx context.Context, off int64) ([]byte, error)
}

// SlaveOptions configures a Slave. A zero field means its default.
type SlaveOptions struct {
	// JoinFrom says where an empty slave begins (haJoinFrom).
	JoinFrom JoinFrom
	// Housekeeping is the silence of the master after which the connection is given up (20 s).
	Housekeeping time.Duration
	// ReportInterval is the longest time between two reports (5 s).
	ReportInterval time.Duration
	// DialTimeout bounds a connect, CallTimeout each call of the Peer (5 s each).
	DialTimeout, CallTimeout time.Duration
	// ReconnectMin and ReconnectMax bound the back-off between attempts (250 ms to 5 s).
	ReconnectMin, ReconnectMax time.Duration
	// Identity is what this slave calls itself; shown in Status only, the Peer's Hello carries it.
	Identity string
	// Peer reaches the master.
	Peer Peer
	// Now gives milliseconds since the epoch for what is shown in Status. nil is the wall clock.
	Now func() int64
	// Logger may be nil.
	Logger *zap.Logger
}

func (o *SlaveOptions) fill() {
	setDefault(&o.Housekeeping, DefaultHousekeeping)
	setDefault(&o.ReportInterval, DefaultHeartbeat)
	setDefault(&o.DialTimeout, 5*time.Second)
	setDefault(&o.CallTimeout, 5*time.Second)
	setDefault(&o.ReconnectMin, 250*time.Millisecond)
	setDefault(&o.ReconnectMax, 5*time.Second)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
