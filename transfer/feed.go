package transfer

import (
	"math"
	"sync/atomic"
	"time"
)

// Where there are more slaves than a write waits for, what is appended goes at once to as many of them as it waits for, one if for none: to
// those that lack most, so that they take turns. The others get it together with a later turn's bytes, or a little later.
// So a slave more costs the bytes it is sent, and not a wake-up and a report for each turn of the loop. What comes so rarely that nothing could be
// joined goes to all at once.
//
// Only quick slaves take turns: a producer must not wait for a distant one, or one that hangs, because another one was asked before.

// slowBy parts, with FeedSlack, the quick slaves from the slow ones. A loaded machine's slaves differ by a few times.
const slowBy = 4

// pulse knows how long a slave takes from a frame to its report. The sending side begins, the event loop ends, anybody asks.
type pulse struct {
	upTo  atomic.Int64 // the report that is timed; 0: none is
	since atomic.Int64 // when its frame began, ns of the ring's clock
	took  atomic.Int64 // ns, smoothed; 0: not known yet
}

// begin is called when a frame that ends at end leaves.
func (p *pulse) begin(end, now int64) {
	if p.upTo.Load() == 0 {
		p.since.Store(now)
		p.upTo.Store(end)
	}
}

// reported is called with each report.
func (p *pulse) reported(offset, now int64) {
	upTo := p.upTo.Load()
	if upTo == 0 || offset < upTo {
		return
	}
	took := max(now-p.since.Load(), 1)
	if was := p.took.Load(); was > 0 {
		took = (3*was + took) / 4
	}
	p.took.Store(took)
	p.upTo.Store(0)
}

// delay is how long a report takes, or has taken already.
func (p *pulse) delay(now int64) int64 {
	took := p.took.Load()
	if p.upTo.Load() != 0 {
		took = max(took, now-p.since.Load())
	}
	return took
}

// feed sends what is new to as many quick slaves as writes wait for, and sees to it that the others get it soon. It never blocks: who finds
// it running leaves a note. false: there are no more slaves than that, each gets all at once, and nothing was done.
func (m *Master) feed(sessions []*session) bool {
	need := max(m.rules.Need, 1)
	if len(sessions) <= need {
		return false
	}
	m.feedAsked.Store(true)
	for m.feedAsked.Load() && m.feeding.TryLock() {
		m.feedAsked.Store(false)
		m.feedQuick(sessions, need)
		m.feeding.Unlock()
	}
	return true
}

// feedQuick needs feeding.
func (m *Master) feedQuick(sessions []*session, need int) {
	end, now := m.store.End(), m.ring.now()
	if m.isAlone(end, now) {
		offerLacking(sessions, end)
		return
	}
	limit := quick(sessions, need, now, m.o.FeedSlack)
	have := 0
	for _, s := range sessions {
		if s.promised.Load() >= end && s.pulse.delay(now) <= limit {
			have++
		}
	}
	for ; have < need; have++ {
		s := mostLacking(sessions, end, now, limit)
		if s == nil {
			break // the next report is the occasion
		}
		s.offer()
		if s.promised.Load() < end {
			break // its writer has it now
		}
	}
	if m.content.Load() && anyLacks(sessions, end) {
		select {
		case m.lacking <- struct{}{}:
		default:
		}
	}
}

// isAlone tells whether nothing was appended for so long before what is new that the others' share could not be joined to a later turn's.
// It needs feeding.
func (m *Master) isAlone(end, now int64) bool {
	if end <= m.fedEnd {
		return false
	}
	alone := now-m.fedAt > int64(m.o.FeedPace)
	m.fedEnd, m.fedAt = end, now
	return alone
}

// quick is the delay, in ns, up to which a slave is not slow, by the slowest one of the need quickest, for which a write has to wait anyway.
func quick(sessions []*session, need int, now int64, slack time.Duration) int64 {
	slowest, at := int64(0), -1
	for range need {
		next, nextAt := int64(math.MaxInt64), -1
		for i, s := range sessions {
			d := s.pulse.delay(now)
			if d > 0 && s.follows.Load() && d < next && (d > slowest || d == slowest && i > at) {
				next, nextAt = d, i
			}
		}
		if nextAt < 0 { // not so many are known
			return next
		}
		slowest, at = next, nextAt
	}
	return slowBy*slowest + int64(slack)
}

// mostLacking is the quick slave that lacks most and can be sent it, nil if there is none.
func mostLacking(sessions []*session, end, now, limit int64) (most *session) {
	for _, s := range sessions {
		if !s.lacks(end) || s.pulse.delay(now) > limit {
			continue
		}
		if most == nil || s.promised.Load() < most.promised.Load() {
			most = s
		}
	}
	return most
}

func anyLacks(sessions []*session, end int64) bool {
	for _, s := range sessions {
		if s.lacks(end) {
			return true
		}
	}
	return false
}

func offerLacking(sessions []*session, end int64) {
	for _, s := range sessions {
		if s.lacks(end) {
			s.offer()
		}
	}
}

// lacks tells whether the slave lacks bytes of a log that ends at end, and may be sent them. What one far behind lacks is its writer's
// business alone, and what gathers is that of the next report.
func (s *session) lacks(end int64) bool {
	return s.promised.Load() < end && s.level.Load() && s.follows.Load() && !s.gathers()
}

// feedOthers is the goroutine that brings slaves what they have lacked for a while. It sleeps while none lacks anything.
func (m *Master) feedOthers() {
	timer := time.NewTimer(m.o.FeedPace)
	defer timer.Stop()
	for m.await(timer) {
		end := m.store.End()
		for _, s := range *m.sessions.Load() {
			if promised := s.promised.Load(); promised != s.seen {
				s.seen = promised // it has had its turn since
			} else if s.lacks(end) {
				s.offer()
			}
		}
	}
}

// await waits until a slave lacks bytes, and then for FeedPace. false: the master ends.
func (m *Master) await(timer *time.Timer) bool {
	m.content.Store(true) // before the look: who appends looks the other way round
	if !anyLacks(*m.sessions.Load(), m.store.End()) {
		select {
		case <-m.lacking:
		case <-m.ctx.Done():
			return false
		}
	}
	m.content.Store(false)
	timer.Reset(m.o.FeedPace)
	select {
	case <-timer.C:
		return true
	case <-m.ctx.Done():
		return false
	}
}
