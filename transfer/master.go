package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
	"tandem/transfer/rules"
)

// Master serves the log to slaves on the HA port and knows what they hold. All its methods are safe from any goroutine.
type Master struct {
	o     MasterOptions
	store *commitlog.Store
	ring  *Ring
	log   *zap.Logger
	rules rules.Config

	whole  int64 // bytes behind up to which a slave gets all in one frame, sent by who appended them
	gather int64 // bytes that wait for a report at most

	listener *net.TCPListener
	addr     netip.AddrPort
	host     *engine.Server // whose loops take the reports
	own      *engine.Server // it, if it is the master's own
	serving  bool
	accepted chan struct{} // closed when no more connections come

	sessions   atomic.Pointer[[]*session] // replaced, never changed
	replicated atomic.Int64               // how far the needed slaves have it
	floor      atomic.Int64               // see rules.State.Floor
	asleep     atomic.Bool                // the expirer waits for a ticket
	ticket     chan struct{}              // wakes it
	feeding    sync.Mutex                 // tried only
	feedAsked  atomic.Bool                // somebody had bytes to send and found it taken
	fedEnd     int64                      // the log's end when it was last seen to have moved, and when; need feeding
	fedAt      int64
	content    atomic.Bool   // feedOthers waits for a slave that lacks bytes
	lacking    chan struct{} // wakes it

	mu      sync.Mutex // what follows
	state   *rules.State
	lastID  rules.SessionID
	pending map[netip.AddrPort]promise
	history history

	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	closeOnce  sync.Once
	closeErr   error
}

// promise is an identity that came before its connection did.
type promise struct {
	identity string
	until    int64
}

// mostPromises bounds how many of them are kept.
const mostPromises = 1024

// NewMaster takes the HA port; Serve begins to serve the store's log there, until Close. Errors: ErrOptions, ErrAddress.
func NewMaster(o MasterOptions, store *commitlog.Store) (*Master, error) {
	o.fill()
	if err := o.check(); err != nil {
		return nil, err
	}
	m := newMaster(o, store)
	if err := m.listen(); err != nil {
		m.cancel()
		return nil, err
	}
	return m, nil
}

// wholeBatches is how many batches a slave may be behind and still count as caught up: what it lacks is surely in memory.
const wholeBatches = 8

func newMaster(o MasterOptions, store *commitlog.Store) *Master {
	m := &Master{
		o: o, store: store, log: o.Logger,
		rules: rules.Config{
			Need: rules.Need(o.Sync, o.InSyncReplicas), MaxGap: o.MaxGapNotInSync, Housekeeping: o.Housekeeping.Milliseconds(),
		},
		ticket:   make(chan struct{}, 1),
		lacking:  make(chan struct{}, 1),
		accepted: make(chan struct{}),
		pending:  make(map[netip.AddrPort]promise),
		history:  newHistory(o.Logger),
	}
	m.whole = int64(min(wholeBatches*o.BatchSize, o.MaxBatch))
	m.gather = m.whole / 2
	m.state = rules.New(m.rules)
	m.sessions.Store(new([]*session))
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.ring = NewRing(o.RingSize)
	m.ring.Configure(RingConfig{
		Flushed: store.Flushed, Replicated: m.replicated.Load,
		SlaveTimeout: o.SlaveTimeout, SyncFlushTimeout: o.SyncFlushTimeout,
	})
	m.fedEnd, m.fedAt = store.End(), m.ring.now()
	m.replicated.Store(m.state.Watermark())
	m.floor.Store(m.state.Floor(m.nowMs()))
	return m
}

// nowMs is the ring's clock: it never goes back.
func (m *Master) nowMs() int64 { return m.ring.now() / int64(time.Millisecond) }

func (m *Master) newLimiter() *rate.Limiter {
	if m.o.MaxBytesPerSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(m.o.MaxBytesPerSecond), max(m.o.MaxBatch, int(m.o.MaxBytesPerSecond/10)))
}

// Addr is where slaves connect.
func (m *Master) Addr() netip.AddrPort { return m.addr }

// Ring holds the answers that wait for this master's disk and slaves. The store's flush callback must call its Advance.
func (m *Master) Ring() *Ring { return m.ring }

// Admit says what becomes of a write whose sender waits for slaves: Success, it gets a ticket; SlaveNotAvailable, fewer
// slaves are usable than are needed, and it is to be stored and answered so at once, without a ticket.
func (m *Master) Admit() codec.ResponseCode {
	if m.rules.Enough(m.floor.Load(), m.store.End()) {
		return codec.Success
	}
	return codec.SlaveNotAvailable
}

// NotifyAppended is to be called after each append section, without locks held: it sends the new bytes to caught-up slaves (see feed),
// or wakes their writers, and starts the clock of a ticket that was put. It never blocks.
func (m *Master) NotifyAppended() {
	m.offerAppended()
	if m.asleep.Load() && m.ring.Waiting() > 0 {
		select {
		case m.ticket <- struct{}{}:
		default:
		}
	}
	if m.rules.Need == 0 {
		m.ring.Advance()
	}
}

// offerAppended lets slaves have what is new: all of them, if they do not take turns.
func (m *Master) offerAppended() {
	sessions := *m.sessions.Load()
	if m.feed(sessions) {
		return
	}
	for _, s := range sessions {
		s.offer()
	}
}

// offerReported lets a slave have, after its report, what it lacks and may gather no longer.
func (m *Master) offerReported(s *session) {
	if !m.feed(*m.sessions.Load()) && s.promised.Load() < m.store.End() {
		s.offer()
	}
}

// Identify notes that the HA connection which has the address haLocal on the slave's side is that of slave id. It may come
// before the connection does, and is then kept for the housekeeping time.
func (m *Master) Identify(haLocal netip.AddrPort, id string) error {
	if id == "" || !haLocal.IsValid() || haLocal.Port() == 0 {
		return fmt.Errorf("%w: slave %q with HA connection from %v; both must be given", ErrOptions, id, haLocal)
	}
	m.identify(unmapped(haLocal), id)
	m.ring.Advance() // it may have parted two slaves that were taken for one
	return nil
}

func (m *Master) identify(addr netip.AddrPort, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range *m.sessions.Load() {
		if s.remote == addr {
			m.state.Identify(s.id, id)
			m.moved()
			return
		}
	}
	if len(m.pending) < mostPromises {
		m.pending[addr] = promise{id, m.nowMs() + m.rules.Housekeeping}
	}
}

// Refused notes that slave id, with the HA connection from haLocal, does not follow this master, and why. It shows in Status and in
// the log.
func (m *Master) Refused(haLocal netip.AddrPort, id, reason string) error {
	if id == "" || reason == "" || !haLocal.IsValid() {
		return fmt.Errorf("%w: slave %q with HA connection from %v does not follow, reason %q; all three must be given", ErrOptions, id, haLocal, reason)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.refused(id, unmapped(haLocal), fmt.Errorf("the slave does not follow: %s", reason), m.o.Now())
	return nil
}

// moved publishes what the rules say after a change. It needs mu. The ring is told by the caller, without it.
func (m *Master) moved() {
	m.replicated.Store(m.state.Watermark())
	m.floor.Store(m.state.Floor(m.nowMs()))
}

// Close stops accepting, ends all sessions and waits for its goroutines. Tickets that still wait are answered as not
// replicated in time.
func (m *Master) Close() error {
	m.closeOnce.Do(func() {
		m.cancel()
		m.closeErr = errors.Join(m.StopAccepting(), m.stopHost())
		m.goroutines.Wait()
		m.ring.expireAt(never)
	})
	return m.closeErr
}

// never is later than any clock of a ticket.
const never = int64(1) << 62
