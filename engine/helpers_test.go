package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tandem/codec"
)

const (
	patience = 20 * time.Second // for conditions that must come true
	codeEcho = 1001             // answered in the turn with the request's body
	codeHold = 1002             // answered when the test says so
	codeBoom = 1003             // panics
	codeSize = 1004             // answered with as many bytes as the ext field n says
	codeVec  = 1005             // the same by WriteVec, in slices of the ext field piece
	codeBye  = 1006             // answered, then closed
)

// testHandler serves the codes above; its hooks are optional.
type testHandler struct {
	onOpen  func(Conn)
	onFrame func(Conn, *codec.View) bool // true: served
	onTurn  func(*Loop)
	onClose func(Conn, error)
	onHold  func(*held)

	opens, closes, frames, turns atomic.Int64
}

func (h *testHandler) OnOpen(c Conn) {
	h.opens.Add(1)
	if h.onOpen != nil {
		h.onOpen(c)
	}
}

func (h *testHandler) OnTurn(l *Loop) {
	h.turns.Add(1)
	if h.onTurn != nil {
		h.onTurn(l)
	}
}

func (h *testHandler) OnClose(c Conn, err error) {
	h.closes.Add(1)
	if h.onClose != nil {
		h.onClose(c, err)
	}
}

func (h *testHandler) OnFrame(c Conn, v *codec.View) {
	h.frames.Add(1)
	if h.onFrame != nil && h.onFrame(c, v) {
		return
	}
	switch v.Code {
	case codeEcho:
		appendAnswer(c, v.Opaque, v.Body)
	case codeHold:
		c.Begin()
		h.onHold(&held{c: c, opaque: v.Opaque})
	case codeBoom:
		out := c.Out()
		*out = append(*out, "half a fra"...)
		panic("boom")
	case codeSize:
		appendAnswer(c, v.Opaque, pattern(v.Opaque, extInt(v, "n")))
	case codeVec:
		body := pattern(v.Opaque, extInt(v, "n"))
		frame := answer(v.Opaque, body)
		head := frame[:len(frame)-len(body)]
		slices := cut(body, extInt(v, "piece"))
		c.WriteVec(head, slices)
		clear(body) // the engine must be done with it
		clear(frame)
	case codeBye:
		appendAnswer(c, v.Opaque, pattern(v.Opaque, extInt(v, "n")))
		c.Close()
	}
}

// held is a deferred answer and a task.
type held struct {
	c      Conn
	opaque int32
	runs   atomic.Int32
	closed bool
}

func (h *held) RunOnLoop(l *Loop) {
	h.runs.Add(1)
	h.closed = h.c.Closed()
	appendAnswer(h.c, h.opaque, nil)
	h.c.End()
}

func extInt(v *codec.View, name string) int {
	n, _ := strconv.Atoi(v.Ext()[name])
	return n
}

func cut(b []byte, piece int) (slices [][]byte) {
	for len(b) > piece {
		slices = append(slices, b[:piece])
		b = b[piece:]
	}
	return append(slices, b)
}

// pattern is a body that tells which answer it belongs to and whether a byte is out of place.
func pattern(seed int32, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		if i%4 == 0 {
			x = x*1664525 + 1013904223
		}
		b[i] = byte(x >> (8 * (i % 4)))
	}
	return b
}

func answer(opaque int32, body []byte) []byte {
	cmd := codec.Command{Code: codec.Success, Opaque: opaque, Body: body}
	cmd.MarkResponse()
	return codec.AppendFrame(nil, &cmd)
}

func appendAnswer(c Conn, opaque int32, body []byte) {
	out := c.Out()
	*out = append(*out, answer(opaque, body)...)
}

func request(code, opaque int32, body []byte, ext ...string) []byte {
	cmd := codec.NewRequest(code, nil, body)
	cmd.Opaque = opaque
	if len(ext) > 0 {
		cmd.Ext = map[string]string{}
		for i := 0; i < len(ext); i += 2 {
			cmd.Ext[ext[i]] = ext[i+1]
		}
	}
	return codec.AppendFrame(nil, cmd)
}

func oneway(code int32, body []byte) []byte {
	cmd := codec.NewRequest(code, nil, body)
	cmd.MarkOneway()
	return codec.AppendFrame(nil, cmd)
}

// serve starts a server that the test's end shuts down.
func serve(t testing.TB, h Handler, o Options) *Server {
	t.Helper()
	if len(o.Addrs) == 0 {
		o.Addrs = []string{"127.0.0.1:0"}
	}
	s, err := Listen(o, h)
	require.NoError(t, err)
	t.Cleanup(func() { stop(s) })
	return s
}

// stop ends a server without patience for what is in flight.
func stop(s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
}

// peer is a raw connection to a server.
type peer struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialServer(t testing.TB, s *Server) *peer {
	t.Helper()
	return dialAddr(t, s.Addrs()[0].String())
}

func dialAddr(t testing.TB, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
	return &peer{t: t, Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
}

func (p *peer) send(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		_, err := p.Write(f)
		require.NoError(p.t, err)
	}
}

func (p *peer) tryNext() (codec.Command, error) {
	var length [4]byte
	if _, err := io.ReadFull(p.r, length[:]); err != nil {
		return codec.Command{}, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(length[:]))
	copy(frame, length[:])
	if _, err := io.ReadFull(p.r, frame[4:]); err != nil {
		return codec.Command{}, err
	}
	return codec.DecodeFrame(frame)
}

func (p *peer) next() codec.Command {
	p.t.Helper()
	cmd, err := p.tryNext()
	require.NoError(p.t, err)
	return cmd
}

// call sends an echo and checks that it is answered.
func (p *peer) call(opaque int32) {
	p.t.Helper()
	p.send(request(codeEcho, opaque, []byte("hello")))
	got := p.next()
	require.Equal(p.t, opaque, got.Opaque)
	require.Equal(p.t, "hello", string(got.Body))
}

// ended waits for the server's end of the connection, orderly or by a reset.
func (p *peer) ended() {
	p.t.Helper()
	_, err := io.Copy(io.Discard, p.r)
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

func eventually(t testing.TB, f func() bool, msg string) {
	t.Helper()
	require.Eventually(t, f, patience, 2*time.Millisecond, msg)
}

// onLoop runs f on a loop and waits for it. f must assert, not require: that would end the loop's goroutine.
func onLoop(l *Loop, f func()) {
	done := make(chan struct{})
	l.Post(taskFunc(func(*Loop) { f(); close(done) }))
	<-done
}

type taskFunc func(*Loop)

func (f taskFunc) RunOnLoop(l *Loop) { f(l) }

// logged is a logger that remembers.
func logged() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	return zap.New(core), logs
}

// inbox collects what loops hand to a test.
type inbox[T any] struct {
	mu  sync.Mutex
	all []T
}

func (b *inbox[T]) put(v T) {
	b.mu.Lock()
	b.all = append(b.all, v)
	b.mu.Unlock()
}

func (b *inbox[T]) get() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]T(nil), b.all...)
}

func (b *inbox[T]) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}
