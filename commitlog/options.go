package commitlog

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// Options of a store. Zero values mean the defaults, which are RocketMQ's.
type Options struct {
	// RootDir is storePathRootDir. Required; made if absent.
	RootDir string
	// CommitLogDir is storePathCommitLog; RootDir/commitlog by default.
	CommitLogDir string
	// SegmentSize is mappedFileSizeCommitLog in bytes, 1 GiB by default. It must be that of the existing segments, and
	// master and slaves must agree on it.
	SegmentSize int64
	// ConsumeQueueUnits is the number of units in a consume queue file (mappedFileSizeConsumeQueue / 20), 300000 by default.
	ConsumeQueueUnits int
	// SyncFlush is flushDiskType=SYNC_FLUSH: the flusher makes everything durable at each interval. Either way
	// [Store.FlushTo] starts a flush at once.
	SyncFlush bool
	// FlushInterval (500 ms), FlushThorough (10 s) and FlushLeastPages (4): at each interval the log is flushed if at least
	// so many pages are dirty, but for those around its end (256 KiB at most), and all of it when nothing was appended for an interval,
	// and at each thorough one in any case.
	FlushInterval, FlushThorough time.Duration
	FlushLeastPages              int
	// QueueFlushInterval (1 s) and QueueFlushThorough (60 s) are the same for consume queues and checkpoint.
	QueueFlushInterval, QueueFlushThorough time.Duration
	// DelayLevels are the delays of messageDelayLevel, level 1 first; RocketMQ's 18 by default.
	DelayLevels []time.Duration
	// Slave is the role to begin with; see [Store.SetSlave].
	Slave bool
	// LazyDispatch leaves it to the caller of Append and RawCommit to wake the dispatcher ([Store.WakeDispatch]), after what is
	// more urgent than consume queues: an answer, a report to the master.
	LazyDispatch bool
	// DispatchPace is how long the dispatcher rests after a round, so that it costs few wake-ups under load; a wake-up ends
	// the rest where a consumer waits ([Store.SetAwaited]). 0 is no rest.
	DispatchPace time.Duration
	// StoreHost is what the callers write into records; the log does not use it.
	StoreHost netip.AddrPort
	// FS is the file system, the operating system's by default.
	FS FS
	// Now is the clock in ms since 1970. Store times never fall along the log even if it does.
	Now func() int64
	// Logger may be nil.
	Logger *zap.Logger
}

// DefaultDelayLevels are the delays of RocketMQ's default messageDelayLevel.
func DefaultDelayLevels() []time.Duration {
	l := []time.Duration{1 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	for m := 1; m <= 10; m++ {
		l = append(l, time.Duration(m)*time.Minute)
	}
	return append(l, 20*time.Minute, 30*time.Minute, time.Hour, 2*time.Hour)
}

func (o *Options) fill() error {
	if o.RootDir == "" {
		return fmt.Errorf("storePathRootDir is empty")
	}
	setDefault(&o.CommitLogDir, filepath.Join(o.RootDir, "commitlog"))
	setDefault(&o.SegmentSize, 1<<30)
	setDefault(&o.ConsumeQueueUnits, 300000)
	setDefault(&o.FlushInterval, 500*time.Millisecond)
	setDefault(&o.FlushThorough, 10*time.Second)
	setDefault(&o.FlushLeastPages, 4)
	setDefault(&o.QueueFlushInterval, time.Second)
	setDefault(&o.QueueFlushThorough, time.Minute)
	if o.DelayLevels == nil {
		o.DelayLevels = DefaultDelayLevels()
	}
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o.validate()
}

const minSegmentSize = 1024

func (o *Options) validate() error {
	switch {
	case o.SegmentSize < minSegmentSize || o.SegmentSize > math.MaxInt32:
		return fmt.Errorf("mappedFileSizeCommitLog is %d, it must lie between %d and %d", o.SegmentSize, minSegmentSize, math.MaxInt32)
	case o.ConsumeQueueUnits < 1 || o.ConsumeQueueUnits > math.MaxInt32/UnitSize:
		return fmt.Errorf("mappedFileSizeConsumeQueue is %d, it must be a positive multiple of %d below 2 GiB", o.ConsumeQueueUnits*UnitSize, UnitSize)
	case o.FlushInterval <= 0 || o.FlushThorough <= 0 || o.QueueFlushInterval <= 0 || o.QueueFlushThorough <= 0:
		return fmt.Errorf("flush intervals must be positive")
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// delay is that of a level ≥ 1; levels above the highest count as the highest.
func (o *Options) delay(level int) time.Duration {
	if len(o.DelayLevels) == 0 {
		return unknownLevelLag
	}
	return o.DelayLevels[min(level, len(o.DelayLevels))-1]
}
