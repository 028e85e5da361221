package engine

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testGuest notes its life and answers through a connection of the server.
type testGuest struct {
	loop   *Loop
	answer Conn // gets what comes, as an answer, by a task posted from within OnData
	refuse error
	data   inbox[string]
	opened atomic.Bool
	closed chan error
	wakes  atomic.Int64 // posts that found the queue needing a wake-up
}

func newTestGuest() *testGuest { return &testGuest{closed: make(chan error, 1)} }

func (g *testGuest) OnOpen(Socket) error { g.opened.Store(true); return g.refuse }

func (g *testGuest) OnData(b []byte) error {
	switch text := string(b); text {
	case "panic":
		panic("a guest's own fault")
	case "bad":
		return errors.New("not what a guest says")
	default:
		g.data.put(text)
		if g.answer != nil {
			g.loop.Post(taskFunc(func(*Loop) { appendAnswer(g.answer, 7, []byte(text)) }))
			g.loop.mu.Lock()
			if g.loop.armed {
				g.wakes.Add(1)
			}
			g.loop.mu.Unlock()
		}
	}
	return nil
}

func (g *testGuest) OnClose(err error) { g.closed <- err }

// hostPair is a guest's connection, seen from outside.
func hostPair(t *testing.T, s *Server, g Guest) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	inner, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, s.Host(inner, g))
	return c
}

func TestWhatAGuestPostsRunsInTheSameTurnWithoutAWakeUp(t *testing.T) {
	var client atomic.Pointer[conn]
	h := &testHandler{}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	p.call(1)
	onLoop(s.Loops()[0], func() { client.Store(s.Loops()[0].conns[0]) })
	g := newTestGuest()
	g.loop, g.answer = s.Loops()[0], client.Load()
	c := hostPair(t, s, g)
	for range 100 {
		_, err := c.Write([]byte("report"))
		require.NoError(t, err)
		got := p.next()
		require.EqualValues(t, 7, got.Opaque)
		require.Equal(t, "report", string(got.Body))
	}
	require.Zero(t, g.wakes.Load())
	require.Len(t, g.data.get(), 100)
}

func TestAGuestsFaultCostsItsConnectionOnly(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	p := dialServer(t, s)
	for text, says := range map[string]string{"panic": ErrPanic.Error(), "bad": "not what a guest says"} {
		g := newTestGuest()
		c := hostPair(t, s, g)
		_, err := c.Write([]byte(text))
		require.NoError(t, err)
		require.ErrorContains(t, <-g.closed, says)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	g := newTestGuest()
	g.refuse = errors.New("no room")
	hostPair(t, s, g)
	require.ErrorContains(t, <-g.closed, "no room")
	p.call(2)
	require.EqualValues(t, 1, s.Stats().Panics)
}

func TestGuestsLiveUntilTheirHostEndsAndHearOfIt(t *testing.T) {
	s, err := NewHost(Options{})
	require.NoError(t, err)
	g := newTestGuest()
	c := hostPair(t, s, g)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	eventually(t, func() bool { return g.data.len() == 1 }, "the guest's data")
	stop(s)
	<-g.closed
	require.True(t, g.opened.Load())
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err)
}
