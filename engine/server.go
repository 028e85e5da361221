package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// Server listens on its addresses and serves the connections on its loops.
type Server struct {
	o        Options
	h        Handler
	start    time.Time
	totalOut int // per loop

	poller    *gnet.Client
	loops     []*Loop
	listeners []*net.TCPListener
	addrs     []netip.AddrPort
	acceptors sync.WaitGroup
	acceptEnd chan struct{} // closed when the server stops accepting

	spareMu sync.Mutex
	spare   *os.File // a descriptor given up for a moment to refuse a connection when none is left

	lastID   atomic.Uint64
	conns    atomic.Int64
	draining atomic.Bool
	mute     atomic.Bool // draining, and all owed answers are given: what comes now is not even refused
	stats    counters

	houseStop chan struct{}
	houseDone chan struct{}

	stopOnce sync.Once
	stopErr  error
}

type counters struct {
	accepted, refused, busy, stalled, overflowed, idle, panics, badFrames, droppedOneway atomic.Uint64

	badFrameLog, overflowLog, refuseLog rate.Sometimes
}

// Stats are counts since the server's start, except where noted.
type Stats struct {
	Conns         int64  // open now
	InFlight      int64  // answers owed now, at most a second old
	QueuedOut     int64  // bytes of output that wait for sockets now, at most a second old
	Accepted      uint64 // connections served
	RefusedConns  uint64 // connections closed at once for lack of room or of descriptors
	BusyAnswers   uint64 // requests answered SYSTEM_BUSY by the engine
	DroppedOneway uint64 // one-way requests dropped under the same circumstances
	Stalled       uint64 // connections closed for ErrStalled
	Overflowed    uint64 // for ErrOutputLimit
	Idle          uint64 // for ErrIdle
	BadFrames     uint64 // for ErrBadFrame
	Panics        uint64 // panics of the handler
}

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	st := Stats{
		Conns:         s.conns.Load(),
		Accepted:      s.stats.accepted.Load(),
		RefusedConns:  s.stats.refused.Load(),
		BusyAnswers:   s.stats.busy.Load(),
		DroppedOneway: s.stats.droppedOneway.Load(),
		Stalled:       s.stats.stalled.Load(),
		Overflowed:    s.stats.overflowed.Load(),
		Idle:          s.stats.idle.Load(),
		BadFrames:     s.stats.badFrames.Load(),
		Panics:        s.stats.panics.Load(),
	}
	for _, l := range s.loops {
		st.InFlight += l.shared.inflight.Load()
		st.QueuedOut += l.shared.queued.Load()
	}
	return st
}

// Listen starts a server. It raises the process's soft limit of descriptors to the hard one. A taken port is an error that
// names the address and is ErrAddrInUse.
func Listen(o Options, h Handler) (*Server, error) {
	o = o.withDefaults()
	if len(o.Addrs) == 0 {
		return nil, errors.New("engine: no address to listen on: set Options.Addrs")
	}
	return start(o, h)
}

func start(o Options, h Handler) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	limit := raiseDescriptorLimit(o.Logger)
	if o.MaxConns == 0 {
		o.MaxConns = limit - limit/8
	}
	s := &Server{
		o: o, h: h, start: time.Now(), totalOut: o.TotalOut / o.Loops,
		acceptEnd: make(chan struct{}), houseStop: make(chan struct{}), houseDone: make(chan struct{}),
	}
	for _, limiter := range []*rate.Sometimes{&s.stats.badFrameLog, &s.stats.overflowLog, &s.stats.refuseLog} {
		limiter.Interval = time.Second
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	if err := s.startLoops(); err != nil {
		s.closeListeners()
		return nil, fmt.Errorf("engine: starting the event loops: %w", err)
	}
	s.openSpare()
	go s.keepHouse()
	for _, ln := range s.listeners {
		s.acceptors.Go(func() { s.accept(ln) })
	}
	if len(s.addrs) == 0 {
		return s, nil
	}
	o.Logger.Info("listening", zap.String("server", o.Name), zap.Stringers("addrs", s.addrs),
		zap.Int("loops", o.Loops), zap.Int("maxConns", o.MaxConns))
	return s, nil
}

// Addrs are the addresses listened on, in the order of Options.Addrs, with the ports that the system chose.
func (s *Server) Addrs() []netip.AddrPort { return s.addrs }

// Loops are the server's loops, by index.
func (s *Server) Loops() []*Loop { return s.loops }

// Each calls f for every connection, on the connection's loop: it posts that work and returns. f must not block and may be
// called from several loops at once. Any goroutine.
func (s *Server) Each(f func(Conn)) {
	for _, l := range s.loops {
		l.Post(visit(f))
	}
}

type visit func(Conn)

func (f visit) RunOnLoop(l *Loop) {
	for i := len(l.conns) - 1; i >= 0; i-- { // backwards: a failing write takes its connection out
		if c := l.conns[i]; !c.Closed() {
			f(c)
		}
	}
}

func (s *Server) badFrame(c *conn, err error) {
	s.stats.badFrames.Add(1)
	s.stats.badFrameLog.Do(func() {
		s.o.Logger.Warn("connection closed: what it sent is not this protocol", zap.String("server", s.o.Name),
			zap.Stringer("peer", c.remote), zap.Error(err), zap.Uint64("total", s.stats.badFrames.Load()))
	})
}

func (s *Server) stalled(c *conn, pending int) {
	s.stats.stalled.Add(1)
	s.o.Logger.Warn("connection closed: the peer takes no output", zap.String("server", s.o.Name), zap.Stringer("peer", c.remote),
		zap.Int("waitingBytes", pending), zap.Duration("for", s.o.StallTimeout))
}

func (s *Server) overflowed(c *conn, pending int) {
	s.stats.overflowed.Add(1)
	s.stats.overflowLog.Do(func() {
		s.o.Logger.Warn("connection closed: too much output waits for it", zap.String("server", s.o.Name),
			zap.Stringer("peer", c.remote), zap.Int("waitingBytes", pending), zap.Int("limit", s.o.HardOut))
	})
}
