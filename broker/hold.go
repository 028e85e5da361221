package broker

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"

	"tandem/commitlog"
)

// holds keeps the pulls that wait for their queue to grow. Any goroutine may call it; a pull that leaves is posted to its loop, once.
type holds struct {
	n      atomic.Int64 // pulls held: the dispatcher's quick look
	mu     sync.Mutex
	queues map[*commitlog.Queue][]*pull
	conns  map[uint64]map[*pull]bool // by connection
	due    deadlines
	closed bool
}

func newHolds() *holds {
	return &holds{queues: map[*commitlog.Queue][]*pull{}, conns: map[uint64]map[*pull]bool{}}
}

// add holds p; once closed it lets it go at once, as over.
func (h *holds) add(p *pull) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		p.expired = true
		p.st.loop.Post(p)
		return
	}
	h.queues[p.queue] = append(h.queues[p.queue], p)
	heap.Push(&h.due, p)
	id := p.conn.ID()
	if h.conns[id] == nil {
		h.conns[id] = map[*pull]bool{}
	}
	h.conns[id][p] = true
	h.n.Add(1)
	h.mu.Unlock()
}

// wake lets the pulls of a queue that has grown look again.
func (h *holds) wake(q *commitlog.Queue) {
	if h.n.Load() == 0 {
		return
	}
	h.mu.Lock()
	woken := h.queues[q]
	delete(h.queues, q)
	for _, p := range woken {
		heap.Remove(&h.due, p.index)
		h.forget(p)
	}
	h.n.Add(-int64(len(woken)))
	h.mu.Unlock()
	post(woken)
}

// wakeTopic lets the pulls of a deleted topic's queues look again.
func (h *holds) wakeTopic(topic string) {
	var queues []*commitlog.Queue
	h.mu.Lock()
	for q := range h.queues {
		if q.Topic() == topic {
			queues = append(queues, q)
		}
	}
	h.mu.Unlock()
	for _, q := range queues {
		h.wake(q)
	}
}

// expire ends the holds whose time is over; now is in ms since 1970.
func (h *holds) expire(now int64) {
	var over []*pull
	h.mu.Lock()
	for len(h.due) > 0 && h.due[0].deadline <= now {
		p := h.due[0]
		p.expired = true
		h.leave(p)
		over = append(over, p)
	}
	h.mu.Unlock()
	post(over)
}

// close ends all holds, those to come included.
func (h *holds) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.expire(math.MaxInt64)
}

// drop lets go of a closed connection's pulls.
func (h *holds) drop(conn uint64) {
	if h.n.Load() == 0 {
		return
	}
	var over []*pull
	h.mu.Lock()
	for p := range h.conns[conn] {
		h.leave(p)
		over = append(over, p)
	}
	h.mu.Unlock()
	post(over)
}

// leave takes one pull out. Needs mu.
func (h *holds) leave(p *pull) {
	heap.Remove(&h.due, p.index)
	h.forget(p)
	h.unqueue(p)
	h.n.Add(-1)
}

// forget needs mu.
func (h *holds) forget(p *pull) {
	id := p.conn.ID()
	if delete(h.conns[id], p); len(h.conns[id]) == 0 {
		delete(h.conns, id)
	}
}

// unqueue needs mu.
func (h *holds) unqueue(p *pull) {
	waiting := h.queues[p.queue]
	for i, w := range waiting {
		if w == p {
			waiting[i] = waiting[len(waiting)-1]
			waiting[len(waiting)-1] = nil
			h.queues[p.queue] = waiting[:len(waiting)-1]
			break
		}
	}
	if len(h.queues[p.queue]) == 0 {
		delete(h.queues, p.queue)
	}
}

func post(pulls []*pull) {
	for _, p := range pulls {
		p.st.loop.Post(p)
	}
}

// deadlines is a heap of held pulls by deadline.
type deadlines []*pull

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline < d[j].deadline }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *deadlines) Push(x any) {
	p := x.(*pull)
	p.index = len(*d)
	*d = append(*d, p)
}
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	p := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return p
}
