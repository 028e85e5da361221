package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func TestAnswersComeInTheOrderOfPipelinedRequests(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	p := dialServer(t, s)
	const n = 5000
	go func() {
		var b []byte
		for i := range int32(n) {
			b = append(b, request(codeEcho, i, pattern(i, int(i)%300))...)
		}
		_, _ = p.Write(b)
	}()
	for i := range int32(n) {
		got := p.next()
		require.Equal(t, i, got.Opaque)
		require.True(t, got.IsResponse())
		require.Equal(t, pattern(i, int(i)%300), got.Body)
	}
}

func TestOutputOfATurnIsOneWrite(t *testing.T) {
	var before, after, frames int
	var c0 *conn
	h := &testHandler{}
	h.onFrame = func(c Conn, v *codec.View) bool {
		if frames == 0 {
			c0 = c.(*conn)
			before = segmentsOut(c0)
		}
		frames++
		return false
	}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	var b []byte
	for i := range int32(100) {
		b = append(b, request(codeEcho, i, nil)...)
	}
	p.send(b)
	for i := range int32(100) {
		require.Equal(t, i, p.next().Opaque)
	}
	onLoop(s.Loops()[0], func() { after = segmentsOut(c0) })
	require.Equal(t, 100, frames)
	// TCP_NODELAY is on and the answers are smaller than a loopback segment, so that a write is a segment.
	require.Equal(t, 1, after-before, "segments sent")
}

func TestDeferredAnswersOfABatchAreOneWrite(t *testing.T) {
	var holds inbox[*held]
	h := &testHandler{onHold: holds.put}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	const n = 200
	for i := range int32(n) {
		p.send(request(codeHold, i, nil))
	}
	eventually(t, func() bool { return holds.len() == n }, "all requests held")
	c := holds.get()[0].c.(*conn)
	var before, after int
	onLoop(s.Loops()[0], func() { before = segmentsOut(c) })
	var tasks []Task
	for _, w := range holds.get() {
		tasks = append(tasks, w)
	}
	s.Loops()[0].Post(tasks...)
	for i := range int32(n) {
		require.Equal(t, i, p.next().Opaque)
	}
	onLoop(s.Loops()[0], func() { after = segmentsOut(c) })
	require.Equal(t, 1, after-before, "segments sent")
}

func TestEachDeferredAnswerFromManyGoroutinesArrivesOnce(t *testing.T) {
	var pending sync.WaitGroup
	h := &testHandler{onHold: func(w *held) {
		pending.Go(func() { w.c.Loop().Post(w) })
	}}
	s := serve(t, h, Options{Loops: 2})
	const peers, n = 4, 500
	var wg sync.WaitGroup
	for range peers {
		p := dialServer(t, s)
		wg.Go(func() {
			for i := range int32(n) {
				if _, err := p.Write(request(codeHold, i, nil)); err != nil {
					return
				}
			}
		})
		wg.Go(func() {
			seen := map[int32]bool{}
			for range n {
				cmd, err := p.tryNext()
				if err != nil || seen[cmd.Opaque] {
					t.Errorf("answer %d: %v, seen before: %v", cmd.Opaque, err, seen[cmd.Opaque])
					return
				}
				seen[cmd.Opaque] = true
			}
		})
	}
	wg.Wait()
	pending.Wait()
	for _, l := range s.Loops() {
		onLoop(l, func() { assert.Zero(t, l.inflight) })
	}
}

func TestTasksForADeadConnectionStillRunOnce(t *testing.T) {
	var holds inbox[*held]
	h := &testHandler{onHold: holds.put}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	for i := range int32(100) {
		p.send(request(codeHold, i, nil))
	}
	eventually(t, func() bool { return holds.len() == 100 }, "all requests held")
	require.NoError(t, p.Close())
	eventually(t, func() bool { return h.closes.Load() == 1 }, "close seen")
	for _, w := range holds.get() {
		s.Loops()[0].Post(w)
	}
	onLoop(s.Loops()[0], func() { assert.Zero(t, s.Loops()[0].inflight) })
	for _, w := range holds.get() {
		require.EqualValues(t, 1, w.runs.Load())
		require.True(t, w.closed)
	}
}

func TestTasksPostedWhileTheServerStopsRunOnce(t *testing.T) {
	h := &testHandler{}
	s := serve(t, h, Options{Loops: 2})
	var posted, ran atomic.Int64
	var wg sync.WaitGroup
	end := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				posted.Add(1)
				s.Loops()[g%2].Post(taskFunc(func(*Loop) { ran.Add(1) }))
			}
		})
	}
	eventually(t, func() bool { return ran.Load() > 1000 }, "tasks run")
	require.NoError(t, s.Shutdown(context.Background()))
	at := posted.Load()
	eventually(t, func() bool { return posted.Load() > at+1000 }, "posts go on behind the end")
	close(end)
	wg.Wait()
	eventually(t, func() bool { return ran.Load() == posted.Load() }, "every task ran, and once")
}

func TestATaskMayPostAnother(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	l := s.Loops()[0]
	done := make(chan int)
	var step func(n int) taskFunc
	step = func(n int) taskFunc {
		return func(l *Loop) {
			if n == 100 {
				close(done)
				return
			}
			l.Post(step(n + 1))
		}
	}
	l.Post(step(0))
	<-done
	stop(s)
	done = make(chan int)
	l.Post(step(0))
	<-done
}

func TestAConnectionKeepsItsIdentity(t *testing.T) {
	var conns inbox[Conn]
	h := &testHandler{onOpen: conns.put}
	s := serve(t, h, Options{Addrs: []string{"127.0.0.1:0", "[::1]:0"}, Loops: 2})
	require.Len(t, s.Addrs(), 2)
	a, b := dialAddr(t, s.Addrs()[0].String()), dialAddr(t, s.Addrs()[1].String())
	a.call(1)
	b.call(2)
	eventually(t, func() bool { return conns.len() == 2 }, "both open")
	ids := map[uint64]bool{}
	for _, c := range conns.get() {
		p, at := a, 0
		if c.RemoteAddr().Addr().Is6() {
			p, at = b, 1
		}
		ids[c.ID()] = true
		require.Equal(t, s.Addrs()[at], c.LocalAddr())
		require.Equal(t, netip.MustParseAddrPort(p.LocalAddr().String()), c.RemoteAddr())
	}
	require.Len(t, ids, 2)
}

func TestConnectionsSpreadOverTheLoops(t *testing.T) {
	var conns inbox[Conn]
	h := &testHandler{onOpen: conns.put}
	s := serve(t, h, Options{Addrs: []string{"127.0.0.1:0"}, Loops: 2})
	const most = 16 // the first ones go by what is left of the loops' start
	used := map[int]bool{}
	for n := 1; len(used) < 2 && n <= most; n++ {
		dialAddr(t, s.Addrs()[0].String()).call(1)
		eventually(t, func() bool { return conns.len() == n }, "open")
		used[conns.get()[n-1].Loop().Index()] = true
	}
	require.Len(t, used, 2)
}

func TestAnIPv4PeerOfAWildcardListenerHasAnIPv4Address(t *testing.T) {
	var conns inbox[Conn]
	s := serve(t, &testHandler{onOpen: conns.put}, Options{Addrs: []string{":0"}})
	dialAddr(t, fmt.Sprintf("127.0.0.1:%d", s.Addrs()[0].Port())).call(1)
	c := conns.get()[0]
	require.True(t, c.LocalAddr().Addr().Is4(), c.LocalAddr())
	require.True(t, c.RemoteAddr().Addr().Is4(), c.RemoteAddr())
}

func TestPostFromAnyGoroutineReachesThePeer(t *testing.T) {
	var conns inbox[Conn]
	s := serve(t, &testHandler{onOpen: conns.put}, Options{})
	p := dialServer(t, s)
	p.call(1)
	c := conns.get()[0]
	c.Post(request(40, 77, []byte("changed")))
	got := p.next()
	require.EqualValues(t, 40, got.Code)
	require.False(t, got.IsResponse())
	c.Close()
	p.ended()
	c.Post(request(40, 78, nil))
	c.Close()
}

func TestEachVisitsEveryOpenConnection(t *testing.T) {
	s := serve(t, &testHandler{}, Options{Loops: 2})
	for i := range int32(10) {
		dialServer(t, s).call(i)
	}
	var seen inbox[uint64]
	s.Each(func(c Conn) { seen.put(c.ID()) })
	for _, l := range s.Loops() {
		onLoop(l, func() {})
	}
	require.Len(t, seen.get(), 10)
}

func TestContextAndLocalBelongToTheHandler(t *testing.T) {
	var got atomic.Value
	h := &testHandler{onOpen: func(c Conn) { c.SetContext("mine"); c.Loop().SetLocal(c.ID()) }}
	h.onFrame = func(c Conn, _ *codec.View) bool {
		got.Store(fmt.Sprint(c.Context(), c.Loop().Local(), c.Loop().Index()))
		return false
	}
	dialServer(t, serve(t, h, Options{})).call(1)
	require.Equal(t, "mine1 0", got.Load())
}

func TestATakenPortIsNamed(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	addr := s.Addrs()[0].String()
	_, err := Listen(Options{Addrs: []string{"127.0.0.1:0", addr}}, &testHandler{})
	require.ErrorIs(t, err, ErrAddrInUse)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, addr)
}

func TestBadOptionsAreNamed(t *testing.T) {
	for name, o := range map[string]Options{
		"no address":  {},
		"MaxFrame":    {Addrs: []string{":0"}, MaxFrame: codec.MaxFrameSize + 1},
		"MaxInFlight": {Addrs: []string{":0"}, MaxInFlight: -1},
		"HardOut":     {Addrs: []string{":0"}, HardOut: 1},
		"99999":       {Addrs: []string{"127.0.0.1:99999"}},
	} {
		_, err := Listen(o, &testHandler{})
		require.ErrorContains(t, err, name)
	}
}

func TestAPanicCostsOneConnection(t *testing.T) {
	log, logs := logged()
	var reason inbox[error]
	h := &testHandler{onClose: func(_ Conn, err error) { reason.put(err) }}
	s := serve(t, h, Options{Logger: log})
	other, p := dialServer(t, s), dialServer(t, s)
	other.call(1)
	p.send(request(codeBoom, 1, nil), request(codeEcho, 2, nil))
	_, err := p.tryNext()
	require.Error(t, err, "neither half a frame nor a later answer")
	p.ended()
	other.call(2)
	require.ErrorIs(t, reason.get()[0], ErrPanic)
	require.EqualValues(t, 1, s.Stats().Panics)
	require.Len(t, logs.FilterMessage("handler panicked").All(), 1)
}

func TestAPanicInAnyCallbackIsContained(t *testing.T) {
	var where atomic.Value
	where.Store("")
	boom := func(at string) {
		if where.Load() == at {
			where.Store("")
			panic(at)
		}
	}
	h := &testHandler{
		onOpen:  func(Conn) { boom("open") },
		onTurn:  func(*Loop) { boom("turn") },
		onClose: func(Conn, error) { boom("close") },
	}
	s := serve(t, h, Options{})
	other := dialServer(t, s)
	other.call(1)

	where.Store("open")
	dialServer(t, s).ended()

	p := dialServer(t, s)
	p.call(1)
	where.Store("turn")
	p.send(request(codeEcho, 2, nil))
	p.ended()

	where.Store("close")
	p = dialServer(t, s)
	p.call(1)
	require.NoError(t, p.Close())
	eventually(t, func() bool { return s.Stats().Panics == 3 }, "three panics")

	p = dialServer(t, s)
	p.call(1)
	ran := make(chan bool)
	s.Loops()[0].Post(
		taskFunc(func(*Loop) { panic("task") }),
		taskFunc(func(*Loop) { close(ran) }))
	<-ran
	p.call(2)
	other.call(2)
	require.EqualValues(t, 4, s.Stats().Panics)
}

func TestAPanickingTaskCostsTheConnectionItWroteTo(t *testing.T) {
	var conns inbox[Conn]
	s := serve(t, &testHandler{onOpen: conns.put}, Options{})
	p, q := dialServer(t, s), dialServer(t, s)
	p.call(1)
	q.call(1)
	for _, c := range conns.get() {
		if c.RemoteAddr().Port() == netip.MustParseAddrPort(p.LocalAddr().String()).Port() {
			s.Loops()[0].Post(taskFunc(func(*Loop) {
				*c.Out() = append(*c.Out(), "half"...)
				panic("boom")
			}))
		}
	}
	_, err := p.tryNext()
	require.Error(t, err)
	q.call(2)
}

func TestMoreConnectionsThanAllowedAreClosedAtOnce(t *testing.T) {
	s := serve(t, &testHandler{}, Options{MaxConns: 3})
	var ps []*peer
	for i := range int32(3) {
		p := dialServer(t, s)
		p.call(i)
		ps = append(ps, p)
	}
	for range 5 {
		dialServer(t, s).ended()
	}
	for i, p := range ps {
		p.call(int32(i))
	}
	require.EqualValues(t, 5, s.Stats().RefusedConns)
	require.NoError(t, ps[0].Close())
	eventually(t, func() bool { return s.Stats().Conns == 2 }, "one left")
	dialServer(t, s).call(9)
}

func TestASilentConnectionIsClosed(t *testing.T) {
	var reason inbox[error]
	h := &testHandler{onClose: func(_ Conn, err error) { reason.put(err) }}
	s := serve(t, h, Options{IdleTimeout: 600 * time.Millisecond})
	quiet, lively := dialServer(t, s), dialServer(t, s)
	end := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := int32(0); ; i++ {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
				lively.call(i)
			}
		}
	}()
	quiet.ended()
	close(end)
	<-done
	lively.call(1)
	require.ErrorIs(t, reason.get()[0], ErrIdle)
	require.EqualValues(t, 1, s.Stats().Idle)
}

func TestConnectionsThatComeAndGoLeaveNothing(t *testing.T) {
	h := &testHandler{onOpen: smallSockets}
	s := serve(t, h, Options{Loops: 2})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range int32(50) {
				c, err := net.Dial("tcp", s.Addrs()[0].String())
				if err != nil {
					t.Error(err)
					return
				}
				b := request(codeSize, i, nil, "n", fmt.Sprint(rng.IntN(300_000)))
				_, _ = c.Write(b[:1+rng.IntN(len(b))])
				if rng.IntN(2) == 0 {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool {
		st := s.Stats()
		return st.Accepted+st.RefusedConns == 200 && st.Conns == 0 && h.opens.Load() == h.closes.Load()
	}, "all gone")
	for _, l := range s.Loops() {
		onLoop(l, func() {
			assert.Empty(t, l.conns)
			assert.Empty(t, l.backlog)
			assert.Zero(t, l.queued)
		})
	}
	require.Equal(t, s.Stats().Accepted, uint64(h.opens.Load()))
}

func TestTheHandlersAnswerIsCompleteBeforeItsClose(t *testing.T) {
	s := serve(t, &testHandler{}, Options{StallTimeout: time.Second})
	p := dialServer(t, s)
	require.NoError(t, p.Conn.(*net.TCPConn).SetReadBuffer(64<<10))
	const n = 8 << 20
	p.send(request(codeBye, 5, nil, "n", fmt.Sprint(n)))
	got := p.next()
	require.Equal(t, pattern(5, n), got.Body)
	p.ended()
}

func TestOnCloseGivesThePeersReason(t *testing.T) {
	var reason inbox[error]
	s := serve(t, &testHandler{onClose: func(_ Conn, err error) { reason.put(err) }}, Options{})
	p := dialServer(t, s)
	p.call(1)
	require.NoError(t, p.Conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, p.Close())
	eventually(t, func() bool { return reason.len() == 1 }, "closed")
	require.True(t, errors.Is(reason.get()[0], syscall.ECONNRESET), reason.get()[0])
}
