package engine

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Shutdown stops the server: it accepts no connection and takes no request any more (they are answered SYSTEM_BUSY), waits
// until every owed answer was given and taken by the sockets, or ctx ends, closes the connections and ends the loops. Tasks
// posted before it returns have run. It returns an error if ctx ended first. Calls after the first wait for it and return its result.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

func (s *Server) stop(ctx context.Context) error {
	s.draining.Store(true)
	close(s.acceptEnd)
	s.closeListeners()
	s.acceptors.Wait()

	left, err := s.drained(ctx)

	close(s.houseStop)
	<-s.houseDone
	for _, l := range s.loops {
		done := make(chan struct{})
		l.Post(&finish{done})
		<-done
		l.awaitQuiet()
	}
	stopErr := s.poller.Stop()
	if s.spare != nil {
		_ = s.spare.Close()
	}
	s.o.Logger.Info("stopped", zap.String("server", s.o.Name), zap.Int("unanswered", left.inflight), zap.Int("unsentBytes", left.unsent))
	if err != nil {
		return fmt.Errorf("engine: %s stopped with %d requests unanswered and %d bytes unsent: %w", s.o.Name, left.inflight, left.unsent, err)
	}
	if stopErr != nil {
		return fmt.Errorf("engine: stopping the event loops of %s: %w", s.o.Name, stopErr)
	}
	return nil
}

// work is what a loop still has to do.
type work struct{ inflight, unsent int }

// drained waits until no loop has work left.
func (s *Server) drained(ctx context.Context) (work, error) {
	const shortest, longest = time.Millisecond, 20 * time.Millisecond
	for wait := shortest; ; wait = min(2*wait, longest) {
		var left work
		for _, l := range s.loops {
			q := &survey{answer: make(chan work, 1)}
			l.Post(q)
			w := <-q.answer
			left.inflight += w.inflight
			left.unsent += w.unsent
		}
		if left == (work{}) {
			return left, nil
		}
		if left.inflight == 0 {
			s.mute.Store(true) // or clients that try again at once would keep the output from ever being taken
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return left, ctx.Err()
		case <-t.C:
		}
	}
}

// survey asks a loop for its work.
type survey struct{ answer chan work }

func (q *survey) RunOnLoop(l *Loop) {
	w := work{inflight: l.inflight}
	for _, c := range l.conns {
		if !c.Closed() {
			w.unsent += len(c.out) + c.gc.OutboundBuffered() + c.unacked()
		}
	}
	q.answer <- w
}

// finish closes a loop's connections and makes the running drain its last.
type finish struct{ done chan struct{} }

func (f *finish) RunOnLoop(l *Loop) {
	l.ending = true
	for i := len(l.conns) - 1; i >= 0; i-- { // backwards: a failing flush takes its connection out
		c := l.conns[i]
		c.flush()
		c.fail(ErrServerClosed)
	}
	l.onEnd = f.done
}

// awaitQuiet waits until no Post is in the poller any more.
func (l *Loop) awaitQuiet() {
	l.mu.Lock()
	for l.waking > 0 {
		l.quiet.Wait()
	}
	l.mu.Unlock()
}
