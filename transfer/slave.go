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

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"tandem/commitlog"
	"tandem/transfer/rules"
)

// Slave follows a master's log: it finds the master, checks that the two logs are one, and writes what comes. One goroutine
// does all of it, between Start and Close. All methods are safe from any goroutine.
type Slave struct {
	o     SlaveOptions
	store *commitlog.Store
	log   *zap.Logger

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	again  chan struct{} // one slot: do not wait any longer

	mu      sync.Mutex // what follows
	started bool
	status  SlaveStatus
	drop    context.CancelFunc // ends the present connection

	// Written by the slave's goroutine, shown by Status.
	reported, lastRead, received atomic.Int64
	reads, reports               atomic.Int64 // system calls that brought bytes, and positions sent

	// The slave's goroutine only.
	pause    *backoff.ExponentialBackOff
	unproven bool // byte 0 of the log was assumed, its record not yet whole
	doubtful bool // the latest stream was refused: so it stays until a byte of one is taken
	lines    *rate.Limiter
	lastLine SlaveState
	told     string // the refusal the master knows of
}

// errRefused marks what cannot get better by trying: this store does not fit that master.
var errRefused = errors.New("refused to follow")

func refused(err error) error { return fmt.Errorf("%w: %w", errRefused, err) }

// NewSlave makes a slave that does nothing before Start. The store must be in the slave's role while it runs.
func NewSlave(o SlaveOptions, store *commitlog.Store) *Slave {
	o.fill()
	s := &Slave{
		o: o, store: store, log: o.Logger,
		done: make(chan struct{}), again: make(chan struct{}, 1),
		status: SlaveStatus{State: Closed, Identity: o.Identity},
		pause: &backoff.ExponentialBackOff{
			InitialInterval: o.ReconnectMin, MaxInterval: o.ReconnectMax, Multiplier: 2, RandomizationFactor: 0.2,
		},
		lines: rate.NewLimiter(rate.Every(time.Minute), 1),
	}
	s.pause.Reset()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start begins to follow. It has no effect the second time, or after Close.
func (s *Slave) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ctx.Err() != nil {
		return
	}
	s.started = true
	s.status.State = Waiting
	go s.run()
}

// Close ends the connection and waits for the slave's goroutine. What was received is in the store.
func (s *Slave) Close() error {
	s.cancel()
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if started {
		<-s.done
	}
	return nil
}

// MasterChanged makes the slave ask for the master's address again at once: a connection to the former one is ended.
func (s *Slave) MasterChanged() {
	s.mu.Lock()
	if s.drop != nil {
		s.drop()
	}
	s.mu.Unlock()
	select {
	case s.again <- struct{}{}:
	default:
	}
}

// Status describes the slave as it is now.
func (s *Slave) Status() SlaveStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.MinOffset, status.MaxOffset = s.store.MinOffset(), s.store.End()
	status.Reported, status.LastReadMs, status.Received = s.reported.Load(), s.lastRead.Load(), s.received.Load()
	return status
}

func (s *Slave) update(change func(*SlaveStatus)) {
	s.mu.Lock()
	change(&s.status)
	s.mu.Unlock()
}

func (s *Slave) setState(state SlaveState) {
	s.update(func(status *SlaveStatus) { status.State = state })
}

// run is the slave's goroutine.
func (s *Slave) run() {
	defer close(s.done)
	defer s.setState(Closed)
	for s.ctx.Err() == nil {
		err := s.attempt()
		if s.ctx.Err() != nil {
			return
		}
		s.note(err)
		s.wait()
	}
}

func (s *Slave) wait() {
	timer := time.NewTimer(s.pause.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.again:
	case <-s.ctx.Done():
	}
}

// attempt connects, checks and follows until something ends it. The error says what.
func (s *Slave) attempt() error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.mu.Lock()
	s.drop = cancel
	s.mu.Unlock()

	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	local := addrPort(conn.LocalAddr())

	first, position, err := s.check(ctx)
	if err != nil {
		s.tellRefusal(ctx, local, err)
		return err
	}
	if err := s.hello(ctx, conn); err != nil {
		return err
	}
	s.update(func(status *SlaveStatus) { status.Sessions++ })
	if !s.doubtful {
		s.setState(Transfer)
		s.told = ""
	}
	s.log.Info("following the master", zap.Stringer("addr", conn.RemoteAddr()), zap.Int64("reported", first))
	err = s.follow(ctx, conn, first, position)
	s.doubtful = s.doubtful || errors.Is(err, errRefused)
	s.tellRefusal(ctx, local, err)
	return err
}

// follow takes the connection over and what comes on it, until something ends it.
func (s *Slave) follow(ctx context.Context, conn *net.TCPConn, first int64, at rules.Position) error {
	socket, err := takeOver(conn, s.o.readTimeout(), s.o.Housekeeping)
	if err != nil {
		return err
	}
	defer socket.close()
	defer context.AfterFunc(ctx, socket.hangUp)()
	stream := newStream(ctx, s, socket, first, at)
	defer stream.close()
	return stream.follow()
}

// tellRefusal lets the master know, once for each reason, that this slave does not follow it.
func (s *Slave) tellRefusal(ctx context.Context, local netip.AddrPort, err error) {
	if !errors.Is(err, errRefused) || err.Error() == s.told {
		return
	}
	call, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	if s.o.Peer.Refuse(call, local, err.Error()) == nil {
		s.told = err.Error()
	}
}

func (s *Slave) connect(ctx context.Context) (*net.TCPConn, error) {
	if s.o.Peer == nil {
		return nil, ErrNoMaster
	}
	call, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	addr, err := s.o.Peer.HAAddr(call)
	if err != nil {
		return nil, err
	}
	s.update(func(status *SlaveStatus) {
		status.MasterAddr = addr
		if status.State != Refused {
			status.State = Connecting
		}
	})
	dialer := net.Dialer{Timeout: s.o.DialTimeout, KeepAlive: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("master's HA address %s: %w", addr, err)
	}
	return conn.(*net.TCPConn), nil
}

// hello says whose connection this is, before the first report makes it count.
func (s *Slave) hello(ctx context.Context, conn *net.TCPConn) error {
	call, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	err := s.o.Peer.Hello(call, addrPort(conn.LocalAddr()))
	if errors.Is(err, ErrNotSupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("telling the master who this slave is: %w", err)
	}
	return nil
}

// note shows why an attempt ended, and logs it when that is news, or once a minute.
func (s *Slave) note(err error) {
	state := Connecting
	switch {
	case errors.Is(err, ErrNoMaster):
		state = Waiting
	case errors.Is(err, errRefused):
		state = Refused
	}
	s.update(func(status *SlaveStatus) {
		status.State = state
		status.LastError = err.Error()
		status.LastErrorMs = s.o.Now()
		if state == Waiting {
			status.MasterAddr = ""
		}
	})
	news := state != s.lastLine
	s.lastLine = state
	if !s.lines.Allow() && !news {
		return
	}
	switch {
	case state == Waiting && news:
		s.log.Info("no master known; waiting for one")
	case state == Refused:
		s.log.Error("this store does not fit the master; nothing is written", zap.Error(err))
	case state == Connecting:
		s.log.Warn("not following the master; trying again", zap.Error(err))
	}
}
