package engine

import (
	"time"

	"go.uber.org/zap"
)

// The housekeeper is a goroutine of the server that posts a tick to each loop now and then. All that depends on time happens
// there, so that a message costs no look at the clock.

const (
	shortestTick  = 5 * time.Millisecond
	longestTick   = time.Second
	ticksPerLimit = 10 // how often a time limit is looked at before it passes
)

func (s *Server) tickInterval() time.Duration {
	d := s.o.StallTimeout
	if s.o.IdleTimeout > 0 {
		d = min(d, s.o.IdleTimeout)
	}
	return min(max(d/ticksPerLimit, shortestTick), longestTick)
}

func (s *Server) keepHouse() {
	defer close(s.houseDone)
	t := time.NewTicker(s.tickInterval())
	defer t.Stop()
	for {
		select {
		case <-s.houseStop:
			return
		case <-t.C:
		}
		for _, l := range s.loops {
			if l.ticking.CompareAndSwap(false, true) {
				l.Post((*ticker)(l))
			}
		}
	}
}

// ticker is the task form of a loop's tick.
type ticker Loop

func (t *ticker) RunOnLoop(l *Loop) {
	l.ticking.Store(false)
	l.now = l.clock()
	l.shared.inflight.Store(int64(l.inflight))
	l.shared.queued.Store(int64(l.queued))
	l.trimBuffers()
	l.checkBacklog()
	if limit := int64(l.srv.o.IdleTimeout); limit > 0 && l.now >= l.idleScan {
		l.idleScan = l.now + limit/ticksPerLimit
		l.checkIdle(limit)
	}
}

// checkBacklog closes connections whose peers take nothing, and the closing ones that have taken all.
func (l *Loop) checkBacklog() {
	for i := len(l.backlog) - 1; i >= 0; i-- {
		c := l.backlog[i]
		if c.failed {
			continue
		}
		n := c.gc.OutboundBuffered()
		l.queued += n - c.queued
		c.queued = n
		if n == 0 {
			l.leaveBacklog(c)
			c.closeIfDrained()
			continue
		}
		if taken := c.taken(n); taken > c.acked {
			c.acked, c.moved, c.active = taken, l.now, l.now
			continue
		}
		if l.now-c.moved > int64(l.srv.o.StallTimeout) {
			l.srv.stalled(c, n)
			c.fail(ErrStalled)
		}
	}
}

func (l *Loop) checkIdle(limit int64) {
	for _, c := range l.conns {
		if !c.Closed() && !c.backlogged && l.now-c.active > limit {
			l.srv.stats.idle.Add(1)
			l.srv.o.Logger.Debug("idle connection closed", zap.String("server", l.srv.o.Name), zap.Stringer("peer", c.remote))
			c.fail(ErrIdle)
		}
	}
}
