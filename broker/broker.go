package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"tandem/broker/settings"
	"tandem/broker/tables"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer"
)

// Broker is one running broker. See the package comment.
type Broker struct {
	set     *settings.Settings
	log     *zap.Logger
	started time.Time
	host    netip.AddrPort // what clients are told: brokerIP1:listenPort; also the records' store host

	store   *commitlog.Store
	topics  *tables.Topics
	groups  *tables.Groups
	offsets *tables.Offsets
	delays  *tables.DelayOffsets

	// unsaved names the topics that are being made and not on disk yet; see makeTopic.
	unsaved sync.Map

	// topicEpoch moves with every change of the topic table and tells the loops to drop what they remember of it.
	topicEpoch atomic.Uint64

	clients  *clients
	locks    *queueLocks
	holds    *holds
	counters counters
	rates    rates
	ramInUse int64 // bytes of log that a machine like this keeps in memory, about

	server   *engine.Server
	outbound *engine.Client
	pool     *engine.Pool

	// master is set while the role is a master's, slave while it is a slave's.
	master atomic.Pointer[transfer.Master]
	slave  atomic.Pointer[transfer.Slave]
	peer   *masterPeer

	registrar *registrar
	waits     bool // an OK waits for slaves or for the disk; settled with the role

	states   atomic.Pointer[[]*loopState]
	statesMu sync.Mutex

	stop   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	closed atomic.Bool
}

// Start opens the store, takes the role and serves. It returns when the broker answers requests; name servers and masters that are
// not there are looked for in the background. The error names the setting to change.
func Start(s *settings.Settings, log *zap.Logger) (*Broker, error) {
	if log == nil {
		log = zap.NewNop()
	}
	b := &Broker{set: s, log: log, started: time.Now(), ramInUse: int64(ramShareInUse * float64(machineMemory()))}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if err := b.start(); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return nil, errors.Join(err, b.release(ctx))
	}
	return b, nil
}

func (b *Broker) start() error {
	if err := b.openTables(); err != nil {
		return err
	}
	if err := b.openStore(); err != nil {
		return err
	}
	if !b.isSlave() {
		if err := b.restoreTopics(); err != nil {
			return err
		}
	}
	b.clients, b.locks, b.holds = newClients(b), newQueueLocks(), newHolds()
	b.outbound = engine.NewClient(engine.ClientOptions{Logger: b.log.Named("client")})
	b.pool = engine.NewPool(poolWorkers, poolQueue)
	b.peer = newMasterPeer(b)
	b.store.OnDispatched(func(q *commitlog.Queue, _, _ int64) { b.holds.wake(q) })
	b.store.SetAwaited(func() bool { return b.holds.n.Load() > 0 })
	if err := b.takeRole(); err != nil {
		return err
	}
	b.registrar = newRegistrar(b) // the first send may already create a topic
	if err := b.listen(); err != nil {
		return err
	}
	if m := b.master.Load(); m != nil {
		if err := m.Serve(b.haHost()); err != nil {
			return err
		}
	}
	b.registrar.start()
	b.spawn(b.housekeep)
	if b.isSlave() {
		b.spawn(b.syncMetadata)
	}
	b.announce()
	return nil
}

func (b *Broker) openTables() error {
	files := tables.Files{Dir: filepath.Join(b.set.StorePathRootDir, "config"), Logger: b.log.Named("tables")}
	builtin := tables.BuiltinTopics(b.set.BrokerClusterName, b.set.BrokerName)
	b.topics = tables.NewTopics(files, builtin)
	b.groups = tables.NewGroups(files, tables.BuiltinGroups())
	b.offsets = tables.NewOffsets(files)
	b.delays = tables.NewDelayOffsets(files)
	for _, load := range []func() error{b.topics.Load, b.groups.Load, b.offsets.Load, b.delays.Load} {
		if err := load(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) openStore() error {
	var err error
	if b.host, err = b.set.StoreHost(int(b.set.ListenPort)); err != nil {
		return err
	}
	b.store, err = commitlog.Open(commitlog.Options{
		RootDir:            b.set.StorePathRootDir,
		CommitLogDir:       b.set.StorePathCommitLog,
		SegmentSize:        b.set.MappedFileSizeCommitLog,
		ConsumeQueueUnits:  b.set.ConsumeQueueUnits(),
		SyncFlush:          b.syncFlush(),
		FlushInterval:      b.set.FlushIntervalCommitLog.Duration(),
		FlushThorough:      b.set.FlushCommitLogThoroughInterval.Duration(),
		FlushLeastPages:    b.set.FlushCommitLogLeastPages,
		QueueFlushInterval: b.set.FlushIntervalConsumeQueue.Duration(),
		QueueFlushThorough: b.set.FlushConsumeQueueThoroughInterval.Duration(),
		DelayLevels:        b.set.DelayLevels(),
		Slave:              b.isSlave(),
		LazyDispatch:       true,
		DispatchPace:       dispatchPace,
		Logger:             b.log.Named("store"),
	})
	return err
}

func (b *Broker) listen() error {
	server, err := engine.Listen(engine.Options{
		Addrs:        b.set.ListenAddrs(),
		Loops:        b.set.EventLoops,
		MaxConns:     b.set.MaxConnections,
		MaxInFlight:  b.set.MaxInFlightPerConnection,
		SoftOut:      b.set.SoftOutputBytes,
		HardOut:      b.set.HardOutputBytes,
		StallTimeout: b.set.StallTimeout.Duration(),
		Name:         "remoting",
		Logger:       b.log.Named("engine"),
	}, b)
	if err != nil {
		return fmt.Errorf("listenPort=%d (its VIP channel is two ports below): %w", b.set.ListenPort, err)
	}
	b.server = server
	return nil
}

const (
	poolWorkers = 8
	poolQueue   = 1024
)

// Addr is the remoting address the broker listens on.
func (b *Broker) Addr() netip.AddrPort { return b.server.Addrs()[0] }

func (b *Broker) spawn(run func()) {
	b.wg.Add(1)
	go func() { defer b.wg.Done(); run() }()
}

// announce writes the start line that an operator reads first.
func (b *Broker) announce() {
	b.log.Info("broker serves",
		zap.String("broker", b.set.BrokerName), zap.Int64("id", b.set.BrokerID), zap.String("role", string(b.set.BrokerRole)),
		zap.Stringer("address", b.Addr()), zap.String("rule", b.set.ReplicationRule()), zap.String("store", b.set.StorePathRootDir),
		zap.Int64("logMin", b.store.MinOffset()), zap.Int64("logEnd", b.store.End()), zap.Duration("took", time.Since(b.started)))
}

// Close stops accepting, answers what is in flight, tells the name servers, saves the tables, flushes and closes the store. What is not
// answered when ctx ends is dropped. Further calls do nothing.
func (b *Broker) Close(ctx context.Context) error {
	if b.closed.Swap(true) {
		return nil
	}
	var errs []error
	if s := b.slave.Load(); s != nil { // first of all, so that the master stops counting on this slave
		errs = append(errs, s.Close())
	}
	b.registrar.unregister(ctx)
	b.holds.close()
	return errors.Join(append(errs, b.release(ctx))...)
}

// release ends what start began, as far as it came, in the reverse order. ctx bounds the answers to what is in flight.
func (b *Broker) release(ctx context.Context) error {
	var errs []error
	keep := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	b.stop()
	if s := b.slave.Load(); s != nil {
		keep("ending the replication from the master", s.Close())
	}
	if m := b.master.Load(); m != nil { // its connections live on the loops that end next
		keep("closing the HA port", m.StopAccepting())
	}
	if b.server != nil {
		keep("closing the remoting port", b.server.Shutdown(ctx))
	}
	if m := b.master.Load(); m != nil {
		keep("ending the replication to the slaves", m.Close())
	}
	b.wg.Wait()
	if b.registrar != nil {
		b.registrar.close()
	}
	if b.outbound != nil {
		b.outbound.Close()
	}
	if b.pool != nil {
		b.pool.Close()
	}
	if b.store != nil {
		keep("saving the tables", b.persist())
		keep("closing the store", b.store.Close())
	}
	return errors.Join(errs...)
}

// persist saves the tables that changed.
func (b *Broker) persist() error {
	return errors.Join(b.topics.Persist(), b.groups.Persist(), b.offsets.Persist(), b.delays.Persist())
}

// housekeep does what has its time: held pulls, silent clients, saving the tables.
func (b *Broker) housekeep() {
	tick := time.NewTicker(holdTick)
	defer tick.Stop()
	var lastScan, lastSave time.Time
	for {
		select {
		case <-b.ctx.Done():
			return
		case now := <-tick.C:
			b.holds.expire(now.UnixMilli())
			b.rates.take(now, &b.counters)
			if now.Sub(lastScan) >= clientScanInterval {
				b.clients.expire(now)
				lastScan = now
			}
			if now.Sub(lastSave) >= b.set.FlushConsumerOffsetInterval.Duration() {
				if err := b.persist(); err != nil {
					b.log.Error("saving the tables failed, the next round tries again", zap.Error(err))
				}
				lastSave = now
			}
		}
	}
}

const (
	holdTick           = 100 * time.Millisecond
	clientScanInterval = 10 * time.Second
)

func (b *Broker) isSlave() bool   { return b.set.BrokerRole == settings.Slave }
func (b *Broker) syncFlush() bool { return b.set.FlushDiskType == settings.SyncFlush }
func (b *Broker) nowMs() int64    { return time.Now().UnixMilli() }
