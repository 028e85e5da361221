package engine

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	var holds inbox[*held]
	var reasons inbox[error]
	h := &testHandler{onHold: holds.put, onClose: func(_ Conn, err error) { reasons.put(err) }}
	s := serve(t, h, Options{Loops: 2})
	var ps []*peer
	for range 4 {
		p := dialServer(t, s)
		for i := range int32(50) {
			p.send(request(codeHold, i, nil))
		}
		ps = append(ps, p)
	}
	eventually(t, func() bool { return holds.len() == 200 }, "all held")

	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	eventually(t, func() bool { return s.draining.Load() && refused(s) }, "no more connections")
	ps[0].send(request(codeEcho, 1000, nil))
	got := ps[0].next()
	require.EqualValues(t, 1000, got.Opaque)
	require.EqualValues(t, codec.SystemBusy, got.Code)
	require.Regexp(t, `^\[OVERLOAD\]`, got.Remark)
	select {
	case <-done:
		require.Fail(t, "stopped while answers were owed")
	default:
	}

	for _, w := range holds.get() {
		w.c.Loop().Post(w)
	}
	for _, p := range ps {
		for i := range int32(50) {
			require.Equal(t, i, p.next().Opaque)
		}
		p.ended()
	}
	require.NoError(t, <-done)
	require.NoError(t, s.Shutdown(context.Background()))
	require.Len(t, reasons.get(), 4)
	for _, err := range reasons.get() {
		require.ErrorIs(t, err, ErrServerClosed)
	}
	require.Zero(t, s.Stats().Conns)
}

func refused(s *Server) bool {
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		return true
	}
	_ = c.Close()
	return false
}

func TestShutdownWaitsForASlowReader(t *testing.T) {
	s := serve(t, &testHandler{onOpen: smallSockets}, Options{})
	p := dialServer(t, s)
	const n = 4 << 20
	p.send(request(codeSize, 1, nil, "n", fmt.Sprint(n)))
	eventually(t, func() bool { return s.Stats().Accepted == 1 }, "accepted")
	var one [4]byte
	_, err := p.r.Read(one[:])
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	eventually(t, func() bool { return s.draining.Load() }, "stopping")
	got := make([]byte, len(answer(1, nil))+n-len(one))
	read := 0
	for read < len(got) {
		m, err := p.r.Read(got[read:])
		require.NoError(t, err)
		read += m
	}
	require.Equal(t, answer(1, pattern(1, n)), append(one[:], got...))
	require.NoError(t, <-done)
}

func TestShutdownGivesUpWhenItsContextEnds(t *testing.T) {
	var holds inbox[*held]
	s := serve(t, &testHandler{onHold: holds.put}, Options{})
	p := dialServer(t, s)
	p.send(request(codeHold, 1, nil))
	eventually(t, func() bool { return holds.len() == 1 }, "held")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := s.Shutdown(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 requests unanswered")
	p.ended()

	w := holds.get()[0] // its answer comes too late, and still runs
	w.c.Loop().Post(w)
	eventually(t, func() bool { return w.runs.Load() == 1 }, "run")
	w.c.Post(answer(1, nil))
	w.c.Close()
}

func TestTwoServersStopApart(t *testing.T) {
	a, b := serve(t, &testHandler{}, Options{}), serve(t, &testHandler{}, Options{})
	p := dialServer(t, b)
	p.call(1)
	require.NoError(t, a.Shutdown(context.Background()))
	p.call(2)
	again, err := Listen(Options{Addrs: []string{a.Addrs()[0].String()}}, &testHandler{})
	require.NoError(t, err, "the port is free again")
	stop(again)
	p.call(3)
}

func TestShutdownUnderLoadAnswersEachRequestOnceOrNotAtAll(t *testing.T) {
	var pending sync.WaitGroup
	h := &testHandler{onHold: func(w *held) { pending.Go(func() { w.c.Loop().Post(w) }) }}
	s := serve(t, h, Options{Loops: 2})
	var wg sync.WaitGroup
	for range 4 {
		p := dialServer(t, s)
		p.call(1)
		wg.Go(func() {
			for i := int32(0); ; i++ {
				if _, err := p.Write(request(codeHold, i, nil)); err != nil {
					return
				}
			}
		})
		wg.Go(func() {
			seen := map[int32]bool{}
			for {
				cmd, err := p.tryNext()
				if err != nil {
					return
				}
				if seen[cmd.Opaque] {
					t.Errorf("answer %d came twice", cmd.Opaque)
				}
				seen[cmd.Opaque] = true
			}
		})
	}
	eventually(t, func() bool { return h.frames.Load() > 2000 }, "load")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = s.Shutdown(ctx) // the peers never stop asking, so it may end either way
	wg.Wait()
	pending.Wait()
}

// A refusal is output too: clients that try again at once would keep a shutdown from ever finding all output taken. So once nothing
// is owed any more, new requests are not even refused.
func TestClientsThatTryAgainAtOnceDoNotHoldUpAShutdown(t *testing.T) {
	h := &testHandler{}
	h.onFrame = func(c Conn, v *codec.View) bool {
		*c.Out() = append(*c.Out(), answer(v.Opaque, make([]byte, 8<<20))...) // more than the sockets take unread
		return true
	}
	s := serve(t, h, Options{HardOut: 64 << 20})
	slow, eager := dialServer(t, s), dialServer(t, s)
	slow.send(request(codeEcho, 1, nil))
	eventually(t, func() bool { return s.Stats().Accepted == 2 && s.Stats().QueuedOut > 0 }, "output that waits")
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	eventually(t, s.mute.Load, "nothing is owed")
	eager.send(request(codeEcho, 2, nil), request(codeEcho, 3, nil))
	require.EqualValues(t, 1, slow.next().Opaque)
	require.NoError(t, <-done)
	eager.ended()
	require.Zero(t, s.Stats().BusyAnswers)
}
