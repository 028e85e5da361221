package nameserver

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
)

// Options of a name server. The zero value of each field but Addr means its
// default.
type Options struct {
	// Addr is the address to listen on, "host:port"; port 0 lets the system
	// choose (see Server.Addr).
	Addr string
	// Logger hears of brokers that come and go. Nil is silent.
	Logger *zap.Logger
	// ScanInterval is the time between two looks for silent brokers; default 5 s.
	ScanInterval time.Duration
	// Expiry is how long a broker that names no time of its own may be silent
	// before it is removed; default 120 s. A broker's heartbeat is its
	// registration, every 30 s.
	Expiry time.Duration
	// OrderMessageEnable adds a topic's order configuration to its route
	// (orderMessageEnable); default false.
	OrderMessageEnable bool
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const (
	defaultScanInterval = 5 * time.Second
	defaultExpiry       = 120 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.ScanInterval <= 0 {
		o.ScanInterval = defaultScanInterval
	}
	if o.Expiry <= 0 {
		o.Expiry = defaultExpiry
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Server is a running name server.
type Server struct {
	engine  *engine.Server
	handler *handler

	stop    chan struct{}
	stopped sync.Once
	ticker  sync.WaitGroup
}

// Start listens and serves until Shutdown. A port that is taken is an
// engine.ErrAddrInUse whose text names the address.
func Start(o Options) (*Server, error) {
	o = o.withDefaults()
	h := newHandler(o)
	e, err := engine.Listen(engine.Options{
		Addrs: []string{o.Addr}, Loops: 1, Name: "name server", Logger: o.Logger,
	}, h)
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	s := &Server{engine: e, handler: h, stop: make(chan struct{})}
	s.ticker.Go(func() { s.scan(o.ScanInterval) })
	return s, nil
}

// Addr is the address it listens on.
func (s *Server) Addr() netip.AddrPort { return s.engine.Addrs()[0] }

// Shutdown stops the server: no new connections, what is in flight is answered,
// as long as ctx allows. Further calls do nothing new.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopped.Do(func() { close(s.stop) })
	s.ticker.Wait()
	return s.engine.Shutdown(ctx)
}

// scan has the loop look for silent brokers at each tick.
func (s *Server) scan(interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()
	loop, look := s.engine.Loops()[0], &expireTask{s.handler}
	for {
		select {
		case <-t.C:
			loop.Post(look)
		case <-s.stop:
			return
		}
	}
}

type expireTask struct{ h *handler }

func (t *expireTask) RunOnLoop(*engine.Loop) { t.h.expire() }

// handler ties connections to the tables. All of it belongs to the one loop.
type handler struct {
	options Options
	log     *zap.Logger
	routes  *routes
	kv      kvTable
	conns   map[uint64]engine.Conn // those a broker registered by
}

func newHandler(o Options) *handler {
	return &handler{
		options: o, log: o.Logger, routes: newRoutes(o.Expiry), kv: kvTable{}, conns: map[uint64]engine.Conn{},
	}
}

// OnOpen is part of engine.Handler.
func (h *handler) OnOpen(engine.Conn) {}

// OnTurn is part of engine.Handler.
func (h *handler) OnTurn(*engine.Loop) {}

// OnFrame answers one request.
func (h *handler) OnFrame(c engine.Conn, v *codec.View) {
	if v.IsResponse() {
		return
	}
	a := h.serve(&request{View: v, conn: c, ext: v.Ext(), now: h.options.Now()})
	if v.IsOneway() {
		return
	}
	cmd := codec.Respond(v, a.code, a.remark)
	cmd.Ext, cmd.Body = a.ext, a.body
	out := c.Out()
	*out = codec.AppendFrame(*out, cmd)
}

// OnClose removes at once the brokers that registered by the connection: a
// process that died is noticed by this, not by its silence.
func (h *handler) OnClose(c engine.Conn, _ error) {
	delete(h.conns, c.ID())
	for _, addr := range h.routes.closed(c.ID()) {
		h.log.Info("broker removed: its connection was closed", zap.String("addr", addr))
	}
}

// expire removes silent brokers, and their connections with them.
func (h *handler) expire() {
	for addr, live := range h.routes.expired(h.options.Now()) {
		h.log.Warn("broker removed: it was silent for too long", zap.String("addr", addr),
			zap.String("brokerName", live.name), zap.Int64("brokerId", live.id), zap.Time("lastSeen", live.seen))
		if c := h.conns[live.conn]; c != nil {
			c.Close()
		}
	}
}
