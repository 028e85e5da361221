package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func newTestClient(t testing.TB, o ClientOptions) *Client {
	c := NewClient(o)
	t.Cleanup(c.Close)
	return c
}

// muteServer accepts and reads (or not), and never answers.
func muteServer(t testing.TB, reads bool) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	var conns inbox[net.Conn]
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.put(c)
			if reads {
				wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
			}
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		for _, c := range conns.get() {
			_ = c.Close()
		}
		wg.Wait()
	})
	return ln.Addr().String()
}

func TestCallsArePipelinedAndMatched(t *testing.T) {
	var holds inbox[*held]
	h := &testHandler{onHold: holds.put}
	s := serve(t, h, Options{})
	c := newTestClient(t, ClientOptions{CallTimeout: patience})
	addr := s.Addrs()[0].String()
	var wg sync.WaitGroup
	for i := range int32(200) {
		wg.Go(func() {
			body := pattern(i, 100)
			resp, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, body))
			if err != nil || string(resp.Body) != string(body) {
				t.Errorf("call %d: %v", i, err)
			}
		})
		wg.Go(func() {
			if _, err := c.Call(context.Background(), addr, codec.NewRequest(codeHold, nil, nil)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool { return holds.len() == 200 }, "all in flight at once")
	all := holds.get()
	for i := range all { // in reverse
		s.Loops()[0].Post(all[len(all)-1-i])
	}
	wg.Wait()
	require.EqualValues(t, 1, h.opens.Load(), "one connection")
}

func TestCallsTimeOutByContextAndByOption(t *testing.T) {
	addr := muteServer(t, true)
	c := newTestClient(t, ClientOptions{CallTimeout: 30 * time.Millisecond})
	_, err := c.Call(context.Background(), addr, codec.NewRequest(11, nil, nil))
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, addr)
	require.ErrorContains(t, err, "request 11")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Call(ctx, addr, codec.NewRequest(11, nil, nil))
	require.ErrorIs(t, err, ErrTimeout)

	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	_, err = c.Call(ctx, addr, codec.NewRequest(11, nil, nil))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrTimeout)
}

func TestALateAnswerHarmsNobody(t *testing.T) {
	var holds inbox[*held]
	s := serve(t, &testHandler{onHold: holds.put}, Options{})
	c := newTestClient(t, ClientOptions{CallTimeout: patience})
	addr := s.Addrs()[0].String()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, addr, codec.NewRequest(codeHold, nil, nil))
	require.ErrorIs(t, err, ErrTimeout)
	s.Loops()[0].Post(holds.get()[0])
	resp, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, []byte("x")))
	require.NoError(t, err)
	require.Equal(t, "x", string(resp.Body))
}

func TestAHangingPeerDelaysOnlyItsOwnCalls(t *testing.T) {
	for _, reads := range []bool{true, false} {
		mute := muteServer(t, reads)
		s := serve(t, &testHandler{}, Options{})
		c := newTestClient(t, ClientOptions{CallTimeout: time.Hour})
		var wg sync.WaitGroup
		var ended atomic.Int64
		for range 8 { // more than the sockets hold, so that writes hang, too
			wg.Go(func() {
				_, err := c.Call(context.Background(), mute, codec.NewRequest(1, nil, make([]byte, 4<<20)))
				assert.ErrorIs(t, err, ErrConnClosed)
				ended.Add(1)
			})
		}
		for range 50 {
			_, err := c.Call(context.Background(), s.Addrs()[0].String(), codec.NewRequest(codeEcho, nil, nil))
			require.NoError(t, err)
		}
		require.Zero(t, ended.Load())
		eventually(t, func() bool { return hasLink(c, mute) }, "the calls that hang have begun")
		for ended.Load() < 8 { // those that come later dial anew
			c.CloseAddr(mute)
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
	}
}

func TestCallsToAPeerThatDoesNotReadTimeOut(t *testing.T) {
	mute := muteServer(t, false)
	c := newTestClient(t, ClientOptions{CallTimeout: 200 * time.Millisecond})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := c.Call(context.Background(), mute, codec.NewRequest(1, nil, make([]byte, 4<<20)))
			if !errors.Is(err, ErrTimeout) { // or its frame was cut, or followed one that was
				assert.ErrorIs(t, err, ErrConnClosed)
			}
		})
	}
	wg.Wait()
}

func TestABrokenConnectionIsDialledAgain(t *testing.T) {
	h := &testHandler{}
	var conns inbox[Conn]
	h.onOpen = conns.put
	s := serve(t, h, Options{})
	addr := s.Addrs()[0].String()
	c := newTestClient(t, ClientOptions{})
	for i := range 20 {
		_, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, nil))
		require.NoError(t, err, i)
		conns.get()[i].Close()
		eventually(t, func() bool { return !hasLink(c, addr) }, "the client saw the end")
	}
	require.EqualValues(t, 20, h.opens.Load())

	stop(s)
	_, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, nil))
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, addr)
	again, err := Listen(Options{Addrs: []string{addr}}, &testHandler{})
	require.NoError(t, err)
	defer stop(again)
	_, err = c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, nil))
	require.NoError(t, err)
}

func hasLink(c *Client, addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links[addr] != nil
}

func TestACallOnABreakingConnectionEndsAtOnce(t *testing.T) {
	var holds inbox[*held]
	s := serve(t, &testHandler{onHold: holds.put}, Options{})
	c := newTestClient(t, ClientOptions{CallTimeout: time.Hour})
	addr := s.Addrs()[0].String()
	errs := make(chan error, 2)
	call := func() {
		_, err := c.Call(context.Background(), addr, codec.NewRequest(codeHold, nil, nil))
		errs <- err
	}
	go call()
	eventually(t, func() bool { return holds.len() == 1 }, "held")
	holds.get()[0].c.Close()
	require.ErrorIs(t, <-errs, ErrConnClosed)

	go call()
	eventually(t, func() bool { return holds.len() == 2 }, "held")
	c.CloseAddr(addr)
	require.ErrorIs(t, <-errs, ErrConnClosed)
	c.CloseAddr("nowhere:1")

	go call()
	eventually(t, func() bool { return holds.len() == 3 }, "held")
	c.Close()
	require.ErrorIs(t, <-errs, ErrClientClosed)
	_, err := c.Call(context.Background(), addr, codec.NewRequest(codeHold, nil, nil))
	require.ErrorIs(t, err, ErrClientClosed)
	require.ErrorIs(t, c.Oneway(context.Background(), addr, codec.NewRequest(1, nil, nil)), ErrClientClosed)
}

func TestASilentClientConnectionIsClosedAndCallsStillWork(t *testing.T) {
	h := &testHandler{}
	s := serve(t, h, Options{})
	c := newTestClient(t, ClientOptions{IdleTimeout: 30 * time.Millisecond})
	addr := s.Addrs()[0].String()
	for i := range int64(3) {
		_, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, nil))
		require.NoError(t, err)
		eventually(t, func() bool { return h.closes.Load() == i+1 }, "closed")
	}
}

func TestAnIdleLimitDoesNotCutALongCall(t *testing.T) {
	var holds inbox[*held]
	s := serve(t, &testHandler{onHold: holds.put}, Options{})
	c := newTestClient(t, ClientOptions{IdleTimeout: 10 * time.Millisecond, CallTimeout: patience})
	errs := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), s.Addrs()[0].String(), codec.NewRequest(codeHold, nil, nil))
		errs <- err
	}()
	eventually(t, func() bool { return holds.len() == 1 }, "held")
	time.AfterFunc(100*time.Millisecond, func() { s.Loops()[0].Post(holds.get()[0]) })
	require.NoError(t, <-errs)
}

func TestOnewayRequestsArrive(t *testing.T) {
	got := make(chan string, 1)
	s := serve(t, &testHandler{onFrame: func(_ Conn, v *codec.View) bool {
		if v.IsOneway() {
			got <- string(v.Body)
		}
		return true
	}}, Options{})
	req := codec.NewRequest(15, nil, []byte("x"))
	require.NoError(t, newTestClient(t, ClientOptions{}).Oneway(context.Background(), s.Addrs()[0].String(), req))
	require.Equal(t, "x", <-got)
	require.False(t, req.IsOneway(), "the caller's request is as it was")
}

func TestRequestsOfTheOtherSideAreAnswered(t *testing.T) {
	got := make(chan codec.Command, 1)
	var conns inbox[Conn]
	s := serve(t, &testHandler{onOpen: conns.put, onFrame: func(_ Conn, v *codec.View) bool {
		if !v.IsResponse() {
			return false
		}
		got <- codec.Command{Code: v.Code, Opaque: v.Opaque, Remark: v.Remark(), Body: append([]byte(nil), v.Body...)}
		return true
	}}, Options{})
	addr := s.Addrs()[0].String()
	ask := func(c *Client, n int) {
		_, err := c.Call(context.Background(), addr, codec.NewRequest(codeEcho, nil, nil))
		require.NoError(t, err)
		conns.get()[n].Post(oneway(40, nil)) // not answered
		conns.get()[n].Post(request(220, 77, []byte("q")))
	}
	ask(newTestClient(t, ClientOptions{}), 0)
	resp := <-got
	require.EqualValues(t, 77, resp.Opaque)
	require.EqualValues(t, codec.RequestCodeNotSupported, resp.Code)

	ask(newTestClient(t, ClientOptions{OnRequest: func(from string, req *codec.Command) *codec.Command {
		if from != addr {
			return nil
		}
		return codec.NewRequest(codec.Success, nil, append(req.Body, 'a'))
	}}), 1)
	resp = <-got
	require.EqualValues(t, codec.Success, resp.Code)
	require.Equal(t, "qa", string(resp.Body))
}

func TestAnAnswerThatIsNoFrameBreaksTheConnection(t *testing.T) {
	for _, b := range [][]byte{
		[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		{0, 0, 0, 2, 0, 0},
		{0, 0, 0, 6, 0, 0, 0, 2, '{', '{'},
		{0, 0, 0, 9, 0, 0, 0, 2, '{'},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var length [4]byte
			_, _ = io.ReadFull(c, length[:])
			_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(length[:])))
			_, _ = c.Write(b)
			_ = c.Close()
		})
		c := newTestClient(t, ClientOptions{CallTimeout: patience})
		_, err = c.Call(context.Background(), ln.Addr().String(), codec.NewRequest(1, nil, nil))
		require.ErrorIs(t, err, ErrConnClosed)
		_ = ln.Close()
		wg.Wait()
	}
}

func TestCloseEndsADialThatHangs(t *testing.T) {
	c := NewClient(ClientOptions{DialTimeout: time.Hour, CallTimeout: time.Hour})
	addr := fullListener(t)
	errs := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), addr, codec.NewRequest(1, nil, nil))
		errs <- err
	}()
	eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.links) == 1
	}, "dialling")
	c.Close()
	require.ErrorIs(t, <-errs, ErrClientClosed)
}
