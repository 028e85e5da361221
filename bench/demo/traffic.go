package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sync/errgroup"

	"tandem/bench"
	"tandem/bench/ledger"
	"tandem/bench/remote"
	"tandem/codec"
)

const (
	senders     = 16 // messages in flight
	largeEvery  = 100
	smallBody   = 4 << 10
	largeBody   = 256 << 10
	killAfter   = 700 * time.Millisecond // of traffic
	compareRuns = 3
)

func (t *tour) sendMany(ctx context.Context) error {
	begin := time.Now()
	if err := t.send(ctx, t.Messages); err != nil {
		return err
	}
	t.say("   %.0f messages a second, bodies of up to %d KiB, every %dth up to %d KiB",
		float64(t.Messages)/time.Since(begin).Seconds(), smallBody>>10, largeEvery, largeBody>>10)
	return nil
}

// send sends n messages, all of which must be acknowledged.
func (t *tour) send(ctx context.Context, n int) error {
	before := t.book.Count().Acked
	var begun atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	for worker := range senders {
		g.Go(func() error {
			for begun.Add(1) <= int64(n) {
				if err := t.sendOne(gctx, worker%queues); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	t.check(err, "%d of %d messages were acknowledged", t.book.Count().Acked-before, n)
	return ctx.Err()
}

// sendOne sends a message of any size and books what the broker says.
func (t *tour) sendOne(ctx context.Context, queue int) error {
	size := rand.IntN(smallBody)
	if rand.IntN(largeEvery) == 0 {
		size = rand.IntN(largeBody)
	}
	id, body := t.book.Begin(size)
	sent, err := t.client.Send(ctx, t.master().Addr(), remote.Message{Topic: topic, Queue: queue, Queues: queues, Body: body})
	if err != nil {
		return fmt.Errorf("message %d: %w", id, err)
	}
	if sent.Code != codec.Success {
		return fmt.Errorf("message %d: the master answered %s", id, codec.CodeName(sent.Code))
	}
	t.book.Acked(id, ledger.Place{Broker: brokerName, Queue: sent.Queue, Offset: sent.Offset})
	return nil
}

// killMaster lets traffic flow, kills the master in the midst of it, and counts who heard "stored" until then.
func (t *tour) killMaster(ctx context.Context) error {
	before := t.book.Count()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.sendUntilCut(ctx)
	}()
	wait := time.NewTimer(killAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ended:
	}
	err := t.master().Kill()
	<-ended
	after := t.book.Count()
	acked := after.Acked - before.Acked
	t.say("   %d messages were acknowledged before it died; %d senders were cut off and know nothing", acked, after.Sent-before.Sent-acked)
	return errors.Join(err, ctx.Err())
}

// sendUntilCut sends from several goroutines until each has met an error, as all do when the master dies.
func (t *tour) sendUntilCut(ctx context.Context) {
	var g errgroup.Group
	for worker := range senders {
		g.Go(func() error {
			for {
				if err := t.sendOne(ctx, worker%queues); err != nil {
					return nil // the end that was waited for
				}
			}
		})
	}
	_ = g.Wait() // no goroutine returns an error
}

// compare measures the same master with messages that wait for the slave and with messages that do not, in turns.
func (t *tour) compare(ctx context.Context) error {
	rows := []*timing{{name: "async: stored on the master"}, {name: "sync: stored on both", wait: true}}
	for range compareRuns {
		for _, r := range rows {
			if err := r.measure(ctx, t.master().Addr()); err != nil {
				return err
			}
		}
	}
	w := table.NewWriter()
	w.SetStyle(table.StyleLight)
	w.Style().Format.Header = 0
	w.AppendHeader(table.Row{"128-byte messages", "p50", "p99", "p99.9", "messages/s, 256 in flight"})
	for _, r := range rows {
		l := r.best.RoundTrip
		w.AppendRow(table.Row{r.name, bench.Micros(l.P50), bench.Micros(l.P99), bench.Micros(l.P999), fmt.Sprintf("%.0f", r.throughput)})
	}
	t.say("%s", indent(w.Render()))
	t.say("   round trips with one message in flight; best of %d runs in turns, a taste and no benchmark", compareRuns)
	return nil
}

// timing is one row of the comparison.
type timing struct {
	name       string
	wait       bool
	best       bench.SendReport // the run with the lowest median
	throughput float64          // the highest
}

func (r *timing) measure(ctx context.Context, addr string) error {
	o := bench.SendOptions{Addr: addr, Topic: "DemoTiming", NoWait: !r.wait, Conns: 1, Depth: 1, Duration: 700 * time.Millisecond}
	one, err := bench.Send(ctx, o)
	if err = errors.Join(err, one.Err(), ctx.Err()); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	o.Conns, o.Depth, o.Duration, o.Messages = 4, 64, 5*time.Second, 40_000
	many, err := bench.Send(ctx, o)
	if err = errors.Join(err, many.Err(), ctx.Err()); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if r.best.Acked == 0 || one.RoundTrip.P50 < r.best.RoundTrip.P50 {
		r.best = one
	}
	r.throughput = max(r.throughput, many.Throughput)
	return nil
}
