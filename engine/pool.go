package engine

import (
	"runtime/debug"
	"sync"
)

// Pool runs work that may block, such as disk reads and index queries, on a fixed number of goroutines with a bounded queue.
// A job's result goes back to its connection by Loop.Post or Conn.Post.
type Pool struct {
	// OnPanic is told of jobs that panicked, on the worker. Set it before the first Try; nil drops the news.
	OnPanic func(value any, stack []byte)

	mu      sync.RWMutex
	closed  bool
	jobs    chan func()
	workers sync.WaitGroup
}

// NewPool starts a pool of that many goroutines with room for queue waiting jobs; both at least 1.
func NewPool(workers, queue int) *Pool {
	p := &Pool{jobs: make(chan func(), max(queue, 1))}
	for range max(workers, 1) {
		p.workers.Go(p.work)
	}
	return p
}

// Try queues a job, or returns false if the queue is full or the pool closed: answer SYSTEM_BUSY then. Never blocks; any goroutine.
func (p *Pool) Try(job func()) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	select {
	case p.jobs <- job:
		return true
	default:
		return false
	}
}

// Close runs what is queued and ends the goroutines. Not from a job.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.jobs)
	}
	p.mu.Unlock()
	p.workers.Wait()
}

func (p *Pool) work() {
	for job := range p.jobs {
		p.run(job)
	}
}

func (p *Pool) run(job func()) {
	defer func() {
		if v := recover(); v != nil && p.OnPanic != nil {
			p.OnPanic(v, debug.Stack())
		}
	}()
	job()
}
