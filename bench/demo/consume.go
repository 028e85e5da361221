package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/bench/ledger"
	"tandem/bench/remote"
	"tandem/cluster"
	"tandem/codec"
)

const pullPause = 20 * time.Millisecond

// consumer is a consumer group with one member: it has a position in each queue, pulls in turn and books what it gets.
type consumer struct {
	client *remote.Client
	book   *ledger.Ledger
	next   [queues]int64
}

func newConsumer(client *remote.Client, book *ledger.Ledger) *consumer {
	return &consumer{client: client, book: book}
}

// round pulls once from each queue and tells how many messages came.
func (c *consumer) round(ctx context.Context, addr string) (got int, err error) {
	for q := range queues {
		p, err := c.client.Pull(ctx, addr, remote.Pull{Group: group, Topic: topic, Queue: q, Offset: c.next[q]})
		if err != nil {
			return got, err
		}
		if p.Code == codec.PullOffsetMoved {
			return got, fmt.Errorf("%s says that queue %d begins at %d and ends at %d, the group is at %d", addr, q, p.Min, p.Max, c.next[q])
		}
		for _, r := range p.Records {
			c.book.Consumed(ledger.Place{Broker: brokerName, Queue: q, Offset: r.QueueOffset}, r.Body)
		}
		if p.Code == codec.Success {
			c.next[q] = p.Next
		}
		got += len(p.Records)
	}
	return got, nil
}

// until pulls until enough says so.
func (c *consumer) until(ctx context.Context, addr string, enough func(ledger.Count) bool) error {
	return remote.Poll(ctx, pullPause, func() (bool, error) {
		for {
			if enough(c.book.Count()) {
				return true, nil
			}
			got, err := c.round(ctx, addr)
			if err != nil || got == 0 {
				return false, err
			}
		}
	})
}

// commit tells the broker the group's positions.
func (c *consumer) commit(ctx context.Context, addr string) error {
	var errs []error
	for q, next := range c.next {
		errs = append(errs, c.client.Commit(ctx, addr, group, topic, q, next))
	}
	return errors.Join(errs...)
}

func (t *tour) consumeHalf(ctx context.Context) error {
	half := t.book.Count().Acked / 2
	err := t.reader.until(ctx, t.master().Addr(), func(c ledger.Count) bool { return c.Consumed >= half })
	if err == nil {
		err = t.reader.commit(ctx, t.master().Addr())
	}
	t.check(err, "%d messages were consumed and their offsets committed", t.book.Count().Consumed)
	return ctx.Err()
}

// consumeFromSlave shows that the slave has every message that anyone heard "stored" for, while the master is dead.
func (t *tour) consumeFromSlave(ctx context.Context) error {
	before := t.book.Count().Consumed
	err := t.consumeAll(ctx, t.slave())
	c := t.book.Count()
	t.check(err, "the slave gave %d messages more; of %d acknowledged ones %d are missing", c.Consumed-before, c.Acked, c.Missing)
	return ctx.Err()
}

func (t *tour) consumeRest(ctx context.Context) error {
	before := t.book.Count().Consumed
	err := t.consumeAll(ctx, t.master())
	if err == nil {
		err = t.reader.commit(ctx, t.master().Addr())
	}
	t.check(err, "the master gave %d messages more", t.book.Count().Consumed-before)
	return ctx.Err()
}

// consumeAll pulls until nothing acknowledged is missing, for at most a quarter of a step's time.
func (t *tour) consumeAll(ctx context.Context, from *cluster.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout/4, fmt.Errorf("not all came from %s", from.Name))
	defer cancel()
	return t.reader.until(ctx, from.Addr(), func(c ledger.Count) bool { return c.Missing == 0 })
}

func indent(text string) string { return "   " + strings.ReplaceAll(text, "\n", "\n   ") }
