package bench

import (
	"errors"
	"fmt"
	"time"

	"tandem/codec"
)

// ErrOptions says that a measurement was asked for with values that make no sense; the text names the value.
var ErrOptions = errors.New("bad options")

// SendOptions say what load to make. Addr or Namesrv must be given; zero values of the others mean their defaults.
type SendOptions struct {
	Addr    string // broker's remoting address, "host:port"
	Namesrv string // or a name server's: the connections are spread over all masters that it knows

	Label string // names the report, nothing else
	Topic string // default "TandemBench"; made by the first message, or by the admin request if that is refused
	Size  int    // body bytes; default 128
	Conns int    // connections; default 4
	Depth int    // messages in flight per connection; default 64

	Rate float64       // messages per second over all connections; 0 is as fast as it goes
	Tick time.Duration // with a rate: messages due within one leave together, at its begin; default DefaultTick

	Duration time.Duration   // of the measured part; default 10 s
	Warmup   time.Duration   // sending that is not measured, before it; default none
	Messages int64           // stop after so many messages, warm-up included, if that is earlier; 0: no such limit
	Stop     <-chan struct{} // its closing ends the sending early, as the duration's end would; nil: nobody does
	Strict   bool            // the first message that is not acknowledged ends it too
	Drain    time.Duration   // how long answers are waited for after the sending; default 5 s

	NoWait bool            // messages say WAIT=false: the broker answers without waiting for disk or slaves
	Queues int             // default 4
	Form   codec.Serialize // of the request headers; default JSON, as the clients send

	NoTopic bool          // send at once, to Addr: the topic is there already, or the peer is no broker
	Every   time.Duration // also report the course of the run, in stretches of this length; 0: don't

	Watch    []Watched      // processes whose memory and processor time are reported
	Progress func(Progress) // called about five times a second, from one goroutine
}

// Progress is the state of a run.
type Progress struct {
	Elapsed, Total time.Duration
	Answered       int64 // since the start, warm-up included
}

func (o SendOptions) withDefaults() SendOptions {
	if o.Topic == "" {
		o.Topic = "TandemBench"
	}
	OrDefault(&o.Size, 128)
	OrDefault(&o.Conns, 4)
	OrDefault(&o.Depth, 64)
	OrDefault(&o.Queues, 4)
	OrDefault(&o.Duration, 10*time.Second)
	OrDefault(&o.Drain, 5*time.Second)
	OrDefault(&o.Tick, DefaultTick)
	return o
}

// OrDefault sets a value that is its type's zero to d.
func OrDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// MaxRate is the highest rate that may be asked for, in messages per second.
const MaxRate = 1e8

// Largest values that make sense on one machine.
const (
	maxConns  = 4096
	maxSize   = codec.MaxFrameSize - 64<<10
	maxQueues = 1024
)

func (o SendOptions) validate() error {
	if (o.Addr == "") == (o.Namesrv == "") {
		return fmt.Errorf("%w: give a broker's address or a name server's, one of the two", ErrOptions)
	}
	if o.NoTopic && o.Addr == "" {
		return fmt.Errorf("%w: only a broker's address goes with a topic that is there already", ErrOptions)
	}
	if !(o.Rate >= 0 && o.Rate <= MaxRate) { // nor is it NaN
		return fmt.Errorf("%w: rate %g, 0 to %g is expected", ErrOptions, o.Rate, float64(MaxRate))
	}
	for _, c := range []struct {
		name      string
		value     int64
		low, high int64
	}{
		{"size", int64(o.Size), 1, maxSize},
		{"conns", int64(o.Conns), 1, maxConns},
		{"depth", int64(o.Depth), 1, maxDepth},
		{"queues", int64(o.Queues), 1, maxQueues},
		{"messages", o.Messages, 0, 1 << 62},
		{"duration", int64(o.Duration), 1, 1 << 62},
		{"warm-up", int64(o.Warmup), 0, 1 << 62},
		{"drain", int64(o.Drain), 1, 1 << 62},
		{"tick", int64(o.Tick), 1, 1 << 62},
		{"length of a stretch", int64(o.Every), 0, 1 << 62},
	} {
		if c.value < c.low || c.value > c.high {
			return fmt.Errorf("%w: %s %d, %d to %d is expected", ErrOptions, c.name, c.value, c.low, c.high)
		}
	}
	return nil
}
