package engine

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
)

// Options of a Server. The zero value of a field means its default; Addrs must be given.
type Options struct {
	// Addrs are the addresses to listen on, "host:port" each; port 0 lets the system choose (see Server.Addrs). All share the
	// loops and the handler; Conn.LocalAddr tells them apart.
	Addrs []string
	// Loops is the number of event loops; default 1. Each can keep a processor busy: stay below GOMAXPROCS.
	Loops int
	// MaxFrame is the largest accepted value of a frame's length field, in bytes; default codec.MaxFrameSize. A peer that
	// announces more is disconnected before any of it is buffered.
	MaxFrame int
	// MaxConns bounds the connections of the server; more are closed as soon as they are accepted. The default is
	// seven eighths of the process's descriptor limit.
	MaxConns int
	// MaxInFlight bounds, per connection, the requests that wait for a deferred answer (Conn.Begin); default 8192. More are
	// answered SYSTEM_BUSY.
	MaxInFlight int
	// SoftOut is the number of queued output bytes per connection above which new requests are answered SYSTEM_BUSY instead of
	// being handed in; default 1 MiB.
	SoftOut int
	// HardOut is the number of queued output bytes per connection above which it is closed; default 64 MiB.
	HardOut int
	// TotalOut bounds the queued output bytes of all connections together: above it every connection with queued output counts
	// as above SoftOut; default 512 MiB.
	TotalOut int
	// StallTimeout is how long a peer may take no byte while output waits for it, before it is closed; default 30 s. A slow
	// peer that takes some is kept.
	StallTimeout time.Duration
	// IdleTimeout is how long a connection may be silent in both directions before it is closed; default 120 s, as RocketMQ
	// has it, whether or not it is owed an answer. Negative: for ever.
	IdleTimeout time.Duration
	// Name stands in the log lines, for example "remoting".
	Name string
	// Logger; nil logs nothing.
	Logger *zap.Logger
}

const (
	defaultMaxInFlight  = 8192
	defaultSoftOut      = 1 << 20
	defaultHardOut      = 64 << 20
	defaultTotalOut     = 512 << 20
	defaultStallTimeout = 30 * time.Second
	defaultIdleTimeout  = 120 * time.Second
)

func (o Options) withDefaults() Options {
	orInt(&o.Loops, 1)
	orInt(&o.MaxFrame, codec.MaxFrameSize)
	orInt(&o.MaxInFlight, defaultMaxInFlight)
	orInt(&o.SoftOut, defaultSoftOut)
	orInt(&o.HardOut, max(defaultHardOut, 2*o.SoftOut))
	orInt(&o.TotalOut, defaultTotalOut)
	if o.StallTimeout == 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.Name == "" {
		o.Name = "server"
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

func orInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func (o Options) validate() error {
	for _, c := range []struct {
		name string
		v    int
	}{
		{"Loops", o.Loops}, {"MaxFrame", o.MaxFrame}, {"MaxConns", o.MaxConns}, {"MaxInFlight", o.MaxInFlight},
		{"SoftOut", o.SoftOut}, {"HardOut", o.HardOut}, {"TotalOut", o.TotalOut}, {"StallTimeout", int(o.StallTimeout)},
	} {
		if c.v < 0 {
			return fmt.Errorf("engine: Options.%s is %d, must not be negative", c.name, c.v)
		}
	}
	if o.MaxFrame > codec.MaxFrameSize {
		return fmt.Errorf("engine: Options.MaxFrame is %d, the protocol's limit is %d", o.MaxFrame, codec.MaxFrameSize)
	}
	if o.HardOut < o.SoftOut {
		return fmt.Errorf("engine: Options.HardOut is %d, less than SoftOut, %d", o.HardOut, o.SoftOut)
	}
	return nil
}
