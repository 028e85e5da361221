package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// benchHandler answers in the turn, or holds requests and answers each batch by pooled tasks from another goroutine.
type benchHandler struct {
	deferred chan *benchTask // nil: in the turn
	batch    []*benchTask
	pool     sync.Pool
}

type benchTask struct {
	h      *benchHandler
	c      Conn
	s      codec.Serialize
	opaque int32
}

func (t *benchTask) RunOnLoop(*Loop) {
	out := t.c.Out()
	*out = codec.AppendResponse(*out, t.s, t.opaque, codec.Success, "")
	t.c.End()
	t.c = nil
	t.h.pool.Put(t)
}

func (h *benchHandler) OnOpen(Conn)         {}
func (h *benchHandler) OnClose(Conn, error) {}

func (h *benchHandler) OnFrame(c Conn, v *codec.View) {
	if h.deferred == nil {
		out := c.Out()
		*out = codec.AppendResponse(*out, v.Serialize, v.Opaque, codec.Success, "")
		return
	}
	t, _ := h.pool.Get().(*benchTask)
	if t == nil {
		t = &benchTask{h: h}
	}
	t.c, t.s, t.opaque = c, v.Serialize, v.Opaque
	c.Begin()
	h.batch = append(h.batch, t)
}

func (h *benchHandler) OnTurn(*Loop) {
	for _, t := range h.batch {
		h.deferred <- t
	}
	h.batch = h.batch[:0]
}

// complete answers what was held, as much as there is at a time.
func (h *benchHandler) complete() {
	var tasks []Task
	for t := range h.deferred {
		tasks = append(tasks[:0], t)
		for more := true; more; {
			select {
			case t, ok := <-h.deferred:
				if more = ok; ok {
					tasks = append(tasks, t)
				}
			default:
				more = false
			}
		}
		t.c.Loop().Post(tasks...)
	}
}

// BenchmarkRequests measures requests of 256 bytes on one connection, answered in their turn or later, at several depths.
func BenchmarkRequests(b *testing.B) {
	for _, deferred := range []bool{false, true} {
		for _, depth := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("deferred=%v/depth=%d", deferred, depth), func(b *testing.B) {
				h := &benchHandler{}
				if deferred {
					h.deferred = make(chan *benchTask, 1<<14)
					go h.complete()
					defer close(h.deferred)
				}
				s, err := Listen(Options{Addrs: []string{"127.0.0.1:0"}}, h)
				require.NoError(b, err)
				defer stop(s)
				benchPipeline(b, dialServer(b, s), depth)
			})
		}
	}
}

// benchPipeline sends depth requests at a time and reads their answers.
func benchPipeline(b *testing.B, p *peer, depth int) {
	cmd := codec.NewRequest(codeEcho, nil, make([]byte, 256))
	cmd.Serialize = codec.Binary
	var batch []byte
	for range depth {
		batch = codec.AppendFrame(batch, cmd)
	}
	one := len(batch) / depth
	var head [4]byte
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; {
		n := min(left, depth)
		if _, err := p.Write(batch[:n*one]); err != nil {
			b.Fatal(err)
		}
		for range n {
			if _, err := io.ReadFull(p.r, head[:]); err != nil {
				b.Fatal(err)
			}
			if _, err := p.r.Discard(int(binary.BigEndian.Uint32(head[:]))); err != nil {
				b.Fatal(err)
			}
		}
		left -= n
	}
}

// BenchmarkVectors measures answers of 64 KiB in 16 slices.
func BenchmarkVectors(b *testing.B) {
	body := cut(make([]byte, 64<<10), 4<<10)
	frame := answer(1, make([]byte, 64<<10))
	head := frame[:len(frame)-64<<10]
	h := &testHandler{onFrame: func(c Conn, _ *codec.View) bool { c.WriteVec(head, body); return true }}
	s, err := Listen(Options{Addrs: []string{"127.0.0.1:0"}}, h)
	require.NoError(b, err)
	defer stop(s)
	b.SetBytes(64 << 10)
	benchPipeline(b, dialServer(b, s), 8)
}

func BenchmarkClientCalls(b *testing.B) {
	s, err := Listen(Options{Addrs: []string{"127.0.0.1:0"}}, &benchHandler{})
	require.NoError(b, err)
	defer stop(s)
	c := NewClient(ClientOptions{})
	defer c.Close()
	addr := s.Addrs()[0].String()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := codec.NewRequest(codeEcho, nil, make([]byte, 256))
		for pb.Next() {
			if _, err := c.Call(context.Background(), addr, req); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// TestServingAllocatesNothingPerRequest holds the hot paths to a small fraction of an allocation per request.
func TestServingAllocatesNothingPerRequest(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		h := &benchHandler{}
		if deferred {
			h.deferred = make(chan *benchTask, 1<<14)
			go h.complete()
			defer close(h.deferred)
		}
		p := dialServer(t, serve(t, h, Options{}))
		const depth = 1000
		cmd := codec.NewRequest(codeEcho, nil, make([]byte, 256))
		cmd.Serialize = codec.Binary
		var batch []byte
		for range depth {
			batch = codec.AppendFrame(batch, cmd)
		}
		round := func() {
			go func() { _, _ = p.Write(batch) }()
			var head [4]byte
			for range depth {
				_, _ = io.ReadFull(p.r, head[:])
				_, _ = p.r.Discard(int(binary.BigEndian.Uint32(head[:])))
			}
		}
		round()
		perRound := testing.AllocsPerRun(20, round)
		// The race detector makes sync.Pool forget some.
		require.Less(t, perRound/depth, 0.5, "deferred %v", deferred)
	}
}
