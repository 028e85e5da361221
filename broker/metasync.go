package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"tandem/broker/tables"
	"tandem/codec"
	"tandem/transfer"
)

// syncMetadata brings a slave's tables to where the master's are: at once when its log is followed, then periodically. Each step stands
// alone: one that fails keeps the others going and changes nothing. A master whose log this slave cannot follow, an empty one that
// took another's place for example, is not listened to: its tables would take away what the slave's log still needs.
func (b *Broker) syncMetadata() {
	steps := []metaStep{
		{name: "topics", run: b.syncTopics},
		{name: "consumer offsets", run: b.syncOffsets},
		{name: "delay offsets", run: b.syncDelays},
		{name: "subscription groups", run: b.syncGroups},
	}
	for {
		if b.peer.checked() != "" && b.slave.Load().Status().State == transfer.Transfer {
			for i := range steps {
				b.syncStep(&steps[i])
			}
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(b.metaPause(steps)):
		}
	}
}

// metaStep is one table's synchronization, and whether it failed last time: a failure is logged when it begins, not each round.
type metaStep struct {
	name    string
	run     func(ctx context.Context) error
	failing bool
	done    bool
}

const (
	metaTimeout = 3 * time.Second
	metaRetry   = time.Second // until the first round has succeeded
)

func (b *Broker) metaPause(steps []metaStep) time.Duration {
	for _, s := range steps {
		if !s.done {
			return min(metaRetry, b.set.SlaveSyncMetadataInterval.Duration())
		}
	}
	return b.set.SlaveSyncMetadataInterval.Duration()
}

func (b *Broker) syncStep(s *metaStep) {
	ctx, cancel := context.WithTimeout(b.ctx, metaTimeout)
	defer cancel()
	err := s.run(ctx)
	switch {
	case b.ctx.Err() != nil:
		return
	case err != nil && !s.failing && !errors.Is(err, transfer.ErrNoMaster):
		b.log.Warn("the master's "+s.name+" were not fetched, what the slave has stays; the next round tries again", zap.Error(err))
	case err == nil && s.failing:
		b.log.Info("the master's " + s.name + " are fetched again")
	}
	s.failing, s.done = err != nil, s.done || err == nil
}

// fetch asks the master for one table.
func fetch[T any](ctx context.Context, p *masterPeer, code codec.RequestCode, ext map[string]string) (table T, err error) {
	addr := p.checked()
	if addr == "" {
		return table, transfer.ErrNoMaster
	}
	resp, err := p.callAt(ctx, addr, code, ext)
	if err != nil {
		return table, err
	}
	if err := codec.Unmarshal(resp.Body, &table); err != nil {
		return table, fmt.Errorf("the master's answer to request %d: %w", code, err)
	}
	return table, nil
}

func (b *Broker) syncTopics(ctx context.Context) error {
	all, err := fetch[codec.TopicConfigs](ctx, b.peer, codec.ReqGetAllTopicConfig, nil)
	if err != nil {
		return err
	}
	_, _, removed, dirty := b.topics.Replace(all)
	if !dirty {
		return nil
	}
	b.topicsChanged()
	err = b.topics.Persist()
	for _, topic := range removed {
		b.offsets.DeleteTopic(topic)
		err = errors.Join(err, b.store.DeleteTopic(topic))
		b.topicsChanged()
		b.holds.wakeTopic(topic)
	}
	return err
}

func (b *Broker) syncOffsets(ctx context.Context) error {
	all, err := fetch[codec.ConsumerOffsets](ctx, b.peer, codec.ReqGetAllConsumerOffset, nil)
	if err != nil {
		return err
	}
	b.offsets.Merge(all, tables.Follow)
	return b.offsets.Persist()
}

func (b *Broker) syncDelays(ctx context.Context) error {
	all, err := fetch[codec.DelayOffsets](ctx, b.peer, codec.ReqGetAllDelayOffset, nil)
	if r := (*refusal)(nil); errors.As(err, &r) && r.code == codec.SystemError {
		return nil // a master that never delivered a delayed message has none
	}
	if err != nil {
		return err
	}
	b.delays.Merge(all, tables.Follow)
	return b.delays.Persist()
}

func (b *Broker) syncGroups(ctx context.Context) error {
	all, err := fetch[codec.SubscriptionGroups](ctx, b.peer, codec.ReqGetAllSubscriptionGroupConfig, nil)
	if err != nil {
		return err
	}
	b.groups.Replace(all)
	return b.groups.Persist()
}
