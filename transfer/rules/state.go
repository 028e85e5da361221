package rules

import (
	"math"
	"slices"
)

// Unlimited is the watermark of a master that needs no slave: everything counts as replicated.
const Unlimited = int64(math.MaxInt64)

// Config holds what a State goes by.
type Config struct {
	// Need is how many different slaves must acknowledge a write; 0 waits for nobody. See [Need].
	Need int
	// MaxGap is the lag in bytes from which on a slave is not usable.
	MaxGap int64
	// Housekeeping is the time in milliseconds without a valid report after which a session is dead.
	Housekeeping int64
}

// SessionID names a session. The caller never uses one twice.
type SessionID uint64

// Session is what the rules know of one connection. Copies are handed out.
type Session struct {
	ID SessionID
	// Identity is the slave's own name, empty for one that cannot say.
	Identity string
	// Opened is when the session began, Heard when it last gave a valid report (or began).
	Opened, Heard int64
	// Reported says that there was a first report.
	Reported bool
	// Start is the first offset to send, valid once Reported.
	Start int64
	// Acked is the highest offset reported.
	Acked int64
	// CaughtUp is the latest moment at which the slave held all that had been written.
	CaughtUp int64

	heardEnd int64 // the log's end at Heard
}

// Lag is how far the session is behind the log's end, never negative.
func (s *Session) Lag(end int64) int64 {
	if !s.Reported {
		return max(end, 0)
	}
	return max(end-s.Acked, 0)
}

// LagMs is for how long the slave has not held everything, 0 while it does.
func (s *Session) LagMs(end, now int64) int64 {
	if s.Reported && s.Acked >= end {
		return 0
	}
	return max(now-s.CaughtUp, 0)
}

// State is what a master knows of its slaves. The zero value is of no use; see [New].
type State struct {
	config    Config
	sessions  map[SessionID]*Session
	watermark int64
	scratch   []slave
}

// slave is one that counts once: an identity, or a session without one.
type slave struct {
	identity string
	acked    int64
}

// New makes a State without sessions.
func New(c Config) *State {
	return &State{config: c, sessions: make(map[SessionID]*Session), watermark: -1}
}

// SetNeed changes how many slaves a write needs.
func (s *State) SetNeed(need int) { s.config.Need = need }

// Open notes a new session. It counts for nothing before its first report.
func (s *State) Open(id SessionID, now int64) {
	s.sessions[id] = &Session{ID: id, Opened: now, Heard: now, CaughtUp: now}
}

// Close forgets a session. It is no error if there is none.
func (s *State) Close(id SessionID) { delete(s.sessions, id) }

// Identify says whose session it is. The last word counts.
func (s *State) Identify(id SessionID, identity string) {
	if session, ok := s.sessions[id]; ok {
		session.Identity = identity
	}
}

// Session gives a copy of one session.
func (s *State) Session(id SessionID) (Session, bool) {
	session, ok := s.sessions[id]
	if !ok {
		return Session{}, false
	}
	return *session, true
}

// Sessions gives copies of all sessions, oldest first.
func (s *State) Sessions() []Session {
	all := make([]Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		all = append(all, *session)
	}
	slices.SortFunc(all, func(a, b Session) int { return int(int64(a.ID) - int64(b.ID)) })
	return all
}

// Dead appends the sessions whose slave gave no valid report for longer than the housekeeping time.
func (s *State) Dead(dst []SessionID, now int64) []SessionID {
	for id, session := range s.sessions {
		if !s.alive(session, now) {
			dst = append(dst, id)
		}
	}
	slices.Sort(dst)
	return dst
}

func (s *State) alive(session *Session, now int64) bool {
	return now-session.Heard <= s.config.Housekeeping
}

// Watermark is how far the needed number of slaves has acknowledged the log: -1 before the first time, [Unlimited] if
// none is needed. It never falls.
func (s *State) Watermark() int64 {
	if s.config.Need <= 0 {
		return Unlimited
	}
	slaves := s.distinct(func(*Session) bool { return true })
	s.watermark = max(s.watermark, highest(slaves, s.config.Need))
	return s.watermark
}

// Floor is the Need-th highest acknowledged offset over the slaves that are alive now: as long as the log's end is less
// than MaxGap above it, enough slaves are usable. -1 if too few are alive, [Unlimited] if none is needed.
func (s *State) Floor(now int64) int64 {
	if s.config.Need <= 0 {
		return Unlimited
	}
	return highest(s.distinct(func(session *Session) bool { return s.alive(session, now) }), s.config.Need)
}

// Enough says whether a floor allows waiting for slaves at this end of the log.
func (c Config) Enough(floor, end int64) bool {
	return floor == Unlimited || floor >= 0 && end-floor < c.MaxGap
}

// Usable counts the slaves that could acknowledge a write now: connected, heard in time, and not too far behind.
func (s *State) Usable(end, now int64) int {
	return len(s.distinct(func(session *Session) bool { return s.usable(session, end, now) }))
}

// InSync says whether a session's slave is usable.
func (s *State) InSync(id SessionID, end, now int64) bool {
	session, ok := s.sessions[id]
	return ok && session.Reported && s.usable(session, end, now)
}

func (s *State) usable(session *Session, end, now int64) bool {
	return s.alive(session, now) && end-session.Acked < s.config.MaxGap
}

// Admit says whether enough slaves are usable for a write to wait for them.
func (s *State) Admit(end, now int64) bool {
	return s.config.Need <= 0 || s.Usable(end, now) >= s.config.Need
}

// distinct lists the slaves that have reported over an accepted session, each once, with the highest offset of its
// sessions. The result is valid until the next call.
func (s *State) distinct(accept func(*Session) bool) []slave {
	slaves := s.scratch[:0]
	for _, session := range s.sessions {
		if session.Reported && accept(session) {
			slaves = join(slaves, session)
		}
	}
	s.scratch = slaves
	return slaves
}

func join(slaves []slave, session *Session) []slave {
	if session.Identity != "" {
		for i := range slaves {
			if slaves[i].identity == session.Identity {
				slaves[i].acked = max(slaves[i].acked, session.Acked)
				return slaves
			}
		}
	}
	return append(slaves, slave{session.Identity, session.Acked})
}

// highest gives the k-th highest acknowledged offset, -1 if there are fewer slaves.
func highest(slaves []slave, k int) int64 {
	if len(slaves) < k {
		return -1
	}
	slices.SortFunc(slaves, func(a, b slave) int {
		switch {
		case a.acked > b.acked:
			return -1
		case a.acked < b.acked:
			return 1
		}
		return 0
	})
	return slaves[k-1].acked
}
