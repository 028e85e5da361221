package transfer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"tandem/transfer/rules"
)

// linger is how long the expirer stays awake after the last ticket, so that a lone sender does not wake it each time.
const linger = 100 * time.Millisecond

// expiryStep is the pause between two looks while tickets run out.
const expiryStep = 5 * time.Millisecond

// expireTickets is the goroutine that ends waits by their clocks. It sleeps until the oldest ticket's clock runs out, and
// without limit while there is none: time-outs cost nothing while nothing times out.
func (m *Master) expireTickets() {
	shortest := min(m.o.SlaveTimeout, m.o.SyncFlushTimeout)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for m.ctx.Err() == nil {
		wait := min(linger, shortest)
		if put, waiting := m.ring.oldest(); waiting {
			now := m.ring.now()
			wait = shortest - time.Duration(now-put)
			if wait <= 0 {
				m.ring.expireAt(now)
			}
			wait = max(wait, expiryStep)
		} else if m.sleep() {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-m.ctx.Done():
		}
	}
}

// sleep waits for a ticket or the end. true says to look again at once, false that the first ticket came just now.
func (m *Master) sleep() bool {
	m.asleep.Store(true)
	defer m.asleep.Store(false)
	if m.ring.Waiting() > 0 {
		return true
	}
	select {
	case <-m.ticket:
		return false
	case <-m.ctx.Done():
		return true
	}
}

// longestRound bounds the time between two looks at the sessions.
const longestRound = time.Second

// keepHouse is the goroutine that ends sessions of dead slaves.
func (m *Master) keepHouse() {
	ticker := time.NewTicker(max(min(longestRound, m.o.Housekeeping/8), time.Millisecond))
	defer ticker.Stop()
	then := m.nowMs()
	for {
		select {
		case <-ticker.C:
		case <-m.ctx.Done():
			return
		}
		now := m.nowMs()
		m.endDead(now)
		m.endStuck(now, now-then)
		then = now
	}
}

var (
	errSilent = errors.New("no valid report for too long")
	errStuck  = errors.New("no byte taken for too long")
)

func (m *Master) endDead(now int64) {
	m.mu.Lock()
	dead := m.state.Dead(nil, now)
	for addr, p := range m.pending {
		if p.until < now {
			delete(m.pending, addr)
		}
	}
	m.moved()
	m.mu.Unlock()
	for _, s := range *m.sessions.Load() {
		for _, id := range dead {
			if s.id == id {
				m.refuse(s, fmt.Errorf("%w: longer than %v", errSilent, m.o.Housekeeping))
				s.kick()
			}
		}
	}
}

func (m *Master) endStuck(now, elapsed int64) {
	for _, s := range *m.sessions.Load() {
		if s.judge(now, elapsed, m.rules.Housekeeping) {
			m.refuse(s, fmt.Errorf("%w: longer than %v while output waited", errStuck, m.o.Housekeeping))
			s.kick()
		}
	}
}

// refuse notes why a session is ended from this side.
func (m *Master) refuse(s *session, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	session, _ := m.state.Session(s.id)
	m.state.Close(s.id)
	m.moved()
	m.history.refused(session.Identity, s.remote, err, m.o.Now())
}

func (m *Master) refuseAddr(addr netip.AddrPort, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.refused("", addr, err, m.o.Now())
}

// history keeps what went wrong lately. Its owner serializes calls.
type history struct {
	log      *zap.Logger
	limit    *rate.Limiter
	silenced int64
	latest   []Refusal
	count    int64
	lastErr  map[string]string // by identity, or address without port
}

const (
	keptRefusals = 16
	keptErrors   = 256
	logBurst     = 10
)

func newHistory(log *zap.Logger) history {
	return history{log: log, limit: rate.NewLimiter(rate.Every(time.Second), logBurst), lastErr: make(map[string]string)}
}

func (h *history) refused(id string, addr netip.AddrPort, err error, nowMs int64) {
	h.count++
	if len(h.latest) == keptRefusals {
		h.latest = append(h.latest[:0], h.latest[1:]...)
	}
	h.latest = append(h.latest, Refusal{ID: id, Addr: addr.String(), Reason: err.Error(), WhenMs: nowMs})
	h.remember(id, addr, err)
	h.warn("slave refused", err, zap.Stringer("addr", addr), zap.String("id", id))
}

func (h *history) left(id string, addr netip.AddrPort, err error) {
	if err != nil && !isHangUp(err) && !errors.Is(err, net.ErrClosed) {
		h.remember(id, addr, err)
	}
}

func (h *history) remember(id string, addr netip.AddrPort, err error) {
	if len(h.lastErr) < keptErrors {
		h.lastErr[errorKey(id, addr)] = err.Error()
	}
}

func (h *history) problem(what string, err error) { h.warn(what, err) }

// warn writes a line, unless there were many: then it counts.
func (h *history) warn(what string, err error, fields ...zap.Field) {
	if !h.limit.Allow() {
		h.silenced++
		return
	}
	fields = append(fields, zap.Error(err))
	if h.silenced > 0 {
		fields = append(fields, zap.Int64("similarLinesLeftOut", h.silenced))
		h.silenced = 0
	}
	h.log.Warn(what, fields...)
}

func errorKey(id string, addr netip.AddrPort) string {
	if id != "" {
		return id
	}
	return addr.Addr().String()
}

// Status describes the master and its slaves as they are now.
func (m *Master) Status() MasterStatus {
	now := m.nowMs()
	m.mu.Lock()
	sessions := m.state.Sessions()
	end := m.store.End() // after the reports, so that no lag is negative
	status := MasterStatus{
		Addr:   m.addr.String(),
		Rule:   rules.Text(m.o.Sync, m.o.InSyncReplicas, m.o.MinInSyncReplicas),
		Need:   m.rules.Need,
		Usable: m.state.Usable(end, now), MaxOffset: end,
		Replicated: min(max(m.replicated.Load(), 0), end),
		Refusals:   append([]Refusal{}, m.history.latest...),
		Refused:    m.history.count,
		Slaves:     []SlaveInfo{},
	}
	for _, s := range *m.sessions.Load() {
		for i := range sessions {
			if sessions[i].ID == s.id {
				status.Slaves = append(status.Slaves, m.describe(s, &sessions[i], end, now))
			}
		}
	}
	m.mu.Unlock()
	status.Waiting = m.ring.Waiting()
	if put, waiting := m.ring.oldest(); waiting {
		status.OldestWaitMs = max(now-put/int64(time.Millisecond), 0)
	}
	status.SyncWait = m.ring.waits.stats()
	return status
}

// describe needs mu.
func (m *Master) describe(s *session, r *rules.Session, end, now int64) SlaveInfo {
	toWall := m.o.Now() - now
	info := SlaveInfo{
		ID: r.Identity, Addr: s.remote.String(), State: "Connected",
		Acked: r.Acked, Reported: r.Reported, LagBytes: r.Lag(end), LagMs: r.LagMs(end, now),
		SentFrom: s.sentFrom.Load(), Sent: s.promised.Load(), BytesPerSec: s.rate.Load(),
		LastError: m.history.lastErr[errorKey(r.Identity, s.remote)],
		InSync:    m.state.InSync(s.id, end, now), ConnectedMs: r.Opened + toWall,
	}
	if r.Reported {
		info.State = "CatchingUp"
		info.LastReportMs = r.Heard + toWall
	}
	if info.InSync {
		info.State = "InSync"
	}
	return info
}
