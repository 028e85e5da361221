package broker

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tandem/broker/settings"
	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer"
)

// takeRole starts the replication side that the role asks for.
func (b *Broker) takeRole() error {
	if b.isSlave() {
		return b.becomeSlave()
	}
	return b.becomeMaster()
}

func (b *Broker) becomeMaster() error {
	mode, err := transfer.ParseMode(b.set.HaTransferMode)
	if err != nil {
		return err
	}
	var limit int64
	if b.set.HaFlowControlEnable {
		limit = b.set.MaxHaTransferByteInSecond
	}
	m, err := transfer.NewMaster(transfer.MasterOptions{
		Addr:              b.set.HAListenAddr(),
		BatchSize:         b.set.HaTransferBatchSize,
		MaxBatch:          max(b.set.HaMaxTransferBatchSize, b.set.HaTransferBatchSize),
		InFlight:          b.set.HaFramesInFlight,
		HeartbeatInterval: b.set.HaSendHeartbeatInterval.Duration(),
		Housekeeping:      b.set.HaHousekeepingInterval.Duration(),
		InSyncReplicas:    b.set.NeededReplicas(),
		MinInSyncReplicas: b.set.MinInSyncReplicas,
		MaxGapNotInSync:   b.set.HaMaxGapNotInSync,
		SlaveTimeout:      b.set.SlaveTimeout.Duration(),
		SyncFlushTimeout:  b.set.SyncFlushTimeout.Duration(),
		Sync:              b.waitsForSlaves(),
		SyncFlush:         b.syncFlush(),
		RingSize:          b.set.HaRingSize,
		Mode:              mode,
		MaxBytesPerSecond: limit,
		Logger:            b.log.Named("replication"),
	}, b.store)
	if err != nil {
		return fmt.Errorf("haListenPort=%d: %w", b.set.HaListenPort, err)
	}
	b.waits = b.waitsForSlaves() || b.syncFlush()
	b.master.Store(m)
	ring := m.Ring()
	ring.OnDrained(b.answerDrained)
	b.store.OnFlushed(func(int64) { ring.Advance() })
	if b.waits {
		// What a consumer may see ends at the first message whose send is not answered yet.
		b.store.SetVisible(b.visible)
	}
	return nil
}

// haHost is whose loops take the slaves' reports: the clients', so that a report completes the answers that wait for it without a
// hand-over, or nil for loops of the replication's own.
func (b *Broker) haHost() *engine.Server {
	if b.set.HaEventLoop == settings.HaLoopOwn {
		return nil
	}
	return b.server
}

func (b *Broker) becomeSlave() error {
	from, err := transfer.ParseJoinFrom(string(b.set.HaJoinFrom))
	if err != nil {
		return err
	}
	s := transfer.NewSlave(transfer.SlaveOptions{
		JoinFrom:     from,
		Housekeeping: b.set.HaHousekeepingInterval.Duration(),
		Identity:     b.identity(),
		Peer:         b.peer,
		Logger:       b.log.Named("replication"),
	}, b.store)
	b.slave.Store(s)
	s.Start()
	return nil
}

// identity is who a slave says it is; a master counts it once, however many connections it has.
func (b *Broker) identity() string {
	return fmt.Sprintf("%s/%s/%d", b.set.BrokerClusterName, b.set.BrokerName, b.set.BrokerID)
}

// waitsForSlaves tells whether a send is answered only when slaves have it.
func (b *Broker) waitsForSlaves() bool { return b.set.NeededReplicas() > 1 }

// appendFailure is what a client is told of a message that could not be stored.
func (b *Broker) appendFailure(err error) (code codec.ResponseCode, remark string) {
	switch {
	case errors.Is(err, commitlog.ErrTooLarge):
		return codec.MessageIllegal, err.Error()
	case errors.Is(err, commitlog.ErrDiskFull), errors.Is(err, commitlog.ErrNotWritable), errors.Is(err, commitlog.ErrClosed):
		return codec.ServiceNotAvailable, err.Error()
	default:
		b.log.Error("a message could not be stored", zap.Error(err))
		return codec.SystemError, err.Error()
	}
}
