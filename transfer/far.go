package transfer

import (
	"time"

	"tandem/transfer/rules"
)

const (
	// farBehind is from how many bytes on a slave counts as far behind: what is less is sent in no time. No frame is that long.
	farBehind = 16 << 20
	// farLook is the time between two looks at how a slave far behind gets on.
	farLook = 200 * time.Millisecond
)

// far is what a session's writer knows while its slave is far behind. It belongs to the writer, or to the thread apart that
// the writer waits for.
type far struct {
	patience rules.Patience

	// At the last look; since is zero before the first one of a thread.
	since   time.Time
	next    int64         // position
	end     int64         // end of the log
	delayed time.Duration // of this thread
}

// isNear tells, of a slave that lags by so many bytes, that it is served as ordinary work. It needs mu.
func (s *session) isNear(lag int64) bool {
	return lag <= farBehind || s.far.patience.Exhausted(time.Now())
}

// sendFar sends until the slave is near the end, or until it has shown that it gets too little here. It runs apart, and holds mu
// between frames, too: nobody ever waits for mu but the writer, which waits for sendFar anyway.
func (s *session) sendFar() error {
	s.far.since = time.Time{}
	_, err := s.send(s.goesOnFar)
	return err
}

// goesOnFar tells whether to begin another frame for a slave that lags by so many bytes. It needs mu.
func (s *session) goesOnFar(lag int64) bool {
	f, now := &s.far, time.Now()
	if now.Sub(f.since) >= farLook {
		f.look(now, s.next, s.next+lag)
	}
	return lag > s.m.whole && !f.patience.Exhausted(now)
}

// look notes how it went since the last one.
func (f *far) look(now time.Time, next, end int64) {
	delay, known := delayed()
	if !f.since.IsZero() {
		took := now.Sub(f.since)
		waited := delay - f.delayed
		if !known {
			waited = took
		}
		f.patience.Look(now, took, waited, next-f.next, end-f.end)
	}
	f.since, f.next, f.end, f.delayed = now, next, end, delay
}
