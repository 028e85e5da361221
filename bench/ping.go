package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"tandem/bench/part"
	"tandem/codec"
)

// Sizes are what one message is on the wire and in the log.
type Sizes struct {
	Request int `json:"request"` // frame of the send
	Answer  int `json:"answer"`  // frame of its answer
	Record  int `json:"record"`  // in the log
}

// SizesOf are those of the messages that Send makes, with bodies of size bytes.
func SizesOf(topic string, size int) (Sizes, error) {
	m := message{topic: topic, nums: 4, wait: true, body: payload(size)}
	f, err := newFrame(m)
	if err != nil {
		return Sizes{}, err
	}
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	answer := codec.AppendSendResponse(nil, codec.JSON, opaqueBase, codec.Success, &codec.SendResponse{
		StoreHost: host, PhysicalOffset: 1 << 33, QueueOffset: 1_234_567,
	})
	record := codec.Record{BornHost: host, StoreHost: host, Topic: []byte(topic), Properties: m.properties(), Body: m.body}
	return Sizes{Request: f.size(), Answer: len(answer), Record: record.Size()}, nil
}

// PingOptions say how a bare exchange of bytes is measured.
type PingOptions struct {
	Addr             string // answers each Request bytes with Answer bytes
	Label            string
	Request, Answer  int
	Warmup, Duration time.Duration
	Watch            []Watched
}

// Ping exchanges bytes with a peer, one request in flight, by Go's network and nothing else, and reports it as Send does.
func Ping(ctx context.Context, o PingOptions) (SendReport, error) {
	out, in := make([]byte, o.Request), make([]byte, o.Answer)
	return exchange(ctx, exchangeOptions{addr: o.Addr, label: o.Label, size: o.Request, warmup: o.Warmup, duration: o.Duration, watch: o.Watch},
		func(c net.Conn) error { return part.RoundTrip(c, out, in) })
}

// exchangeOptions say how round trips are measured.
type exchangeOptions struct {
	addr, label      string
	size             int
	warmup, duration time.Duration
	watch            []Watched
}

// exchange makes one round trip after the other over one connection.
func exchange(ctx context.Context, o exchangeOptions, roundTrip func(net.Conn) error) (SendReport, error) {
	r := &run{SendOptions: SendOptions{Addr: o.addr}, window: window{int64(o.warmup), int64(o.warmup + o.duration)}}
	rec := newRecorder(r.window, nil)
	cpu, watch := selfCPU(), StartWatch(o.watch, nil)
	err := r.exchange(ctx, rec, roundTrip)
	n := r.answered.Load()
	rep := SendReport{
		Label: o.label, Size: o.size, Conns: 1, Depth: 1, Seconds: o.duration.Seconds(), Sent: rec.acked, Acked: rec.acked,
		Throughput: float64(rec.inTime) / o.duration.Seconds(), RoundTrip: latencyOf(rec.trips), Curve: curveOf(rec.trips),
		Errors: map[string]int64{}, Processes: watch.Stop(n),
	}
	if n > 0 {
		rep.GeneratorNs = float64(selfCPU()-cpu) / float64(n)
	}
	return rep, err
}

func (r *run) exchange(ctx context.Context, rec *recorder, roundTrip func(net.Conn) error) error {
	r.start, r.Drain = time.Now(), dialTimeout
	c, release, err := (&link{run: r, addr: r.Addr}).connect(ctx)
	if err != nil {
		return err
	}
	defer release()
	r.start = time.Now() // connected
	for sent := r.now(); sent < r.to; {
		if err := roundTrip(c); err != nil {
			return fmt.Errorf("exchange with %s: %w", r.Addr, errors.Join(ctx.Err(), err))
		}
		now := r.now()
		rec.success(sent, now)
		r.answered.Add(1)
		sent = now
	}
	return nil
}
