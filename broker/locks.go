package broker

import (
	"sync"
	"time"

	"tandem/codec"
)

// queueLocks says which client of a group may consume a queue in order. A lock dies lockLife after it was last taken. Any goroutine.
type queueLocks struct {
	mu    sync.Mutex
	locks map[lockKey]queueLock
}

type lockKey struct {
	group string
	queue codec.MessageQueue
}

type queueLock struct {
	client string
	taken  time.Time
}

const lockLife = 60 * time.Second

func newQueueLocks() *queueLocks { return &queueLocks{locks: map[lockKey]queueLock{}} }

// take gives the client the queues that nobody else of its group holds and returns them.
func (l *queueLocks) take(group, client string, queues []codec.MessageQueue, now time.Time) []codec.MessageQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := []codec.MessageQueue{}
	for _, q := range queues {
		k := lockKey{group, q}
		if held, ok := l.locks[k]; ok && held.client != client && now.Sub(held.taken) < lockLife {
			continue
		}
		l.locks[k] = queueLock{client, now}
		got = append(got, q)
	}
	return got
}

func (l *queueLocks) drop(group, client string, queues []codec.MessageQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		if k := (lockKey{group, q}); l.locks[k].client == client {
			delete(l.locks, k)
		}
	}
}

func (b *Broker) lockQueues(r *request) answer {
	var body codec.LockBatchRequest
	if err := codec.Unmarshal(r.cmd.Body, &body); err != nil {
		return failed(codec.SystemError, "the request cannot be read: "+err.Error())
	}
	return okJSON(codec.LockBatchResponse{LockOKMQSet: b.locks.take(body.ConsumerGroup, body.ClientID, body.MQSet, time.Now())})
}

func (b *Broker) unlockQueues(r *request) answer {
	var body codec.LockBatchRequest
	if err := codec.Unmarshal(r.cmd.Body, &body); err != nil {
		return failed(codec.SystemError, "the request cannot be read: "+err.Error())
	}
	b.locks.drop(body.ConsumerGroup, body.ClientID, body.MQSet)
	return ok()
}
