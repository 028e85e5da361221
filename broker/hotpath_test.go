package broker

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/commitlog"
	"tandem/engine"
)

// memoryConn is a connection that keeps what is written to it.
type memoryConn struct {
	out    []byte
	ctx    any
	remote netip.AddrPort
}

func (c *memoryConn) ID() uint64                          { return 1 }
func (c *memoryConn) RemoteAddr() netip.AddrPort          { return c.remote }
func (c *memoryConn) LocalAddr() netip.AddrPort           { return netip.MustParseAddrPort("127.0.0.1:10911") }
func (c *memoryConn) Loop() *engine.Loop                  { return nil }
func (c *memoryConn) Context() any                        { return c.ctx }
func (c *memoryConn) SetContext(v any)                    { c.ctx = v }
func (c *memoryConn) Out() *[]byte                        { return &c.out }
func (c *memoryConn) WriteVec(head []byte, body [][]byte) { c.out = append(c.out, head...) }
func (c *memoryConn) Closed() bool                        { return false }
func (c *memoryConn) Begin()                              {}
func (c *memoryConn) End()                                {}
func (c *memoryConn) Post(frame []byte)                   {}
func (c *memoryConn) Close()                              {}

// sendRig is the send path of one loop, without the network.
type sendRig struct {
	st    *loopState
	conn  *memoryConn
	frame []byte
	view  codec.View
}

func newSendRig(tb testing.TB, b *Broker, form codec.Serialize, size int) *sendRig {
	cmd := codec.NewRequest(codec.ReqSendMessageV2, sendHeader("T", 1, "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01AC10010119183F7F000000000001\x02"), make([]byte, size))
	cmd.Serialize = form
	b.topics.Ensure(ownTopic("T", 4)) // made by a send it would need a loop
	st := &loopState{b: b, topics: map[string]*topicEntry{}, units: make([]commitlog.Unit, 256)}
	st.answer.st = st
	st.unwritten.Store(noneUnwritten)
	return &sendRig{st: st, conn: &memoryConn{remote: netip.MustParseAddrPort("127.0.0.1:40000")}, frame: codec.AppendFrame(nil, cmd)}
}

// turn takes n sends as one read event would bring them.
func (r *sendRig) turn(n int) {
	r.conn.out = r.conn.out[:0]
	for range n {
		if err := r.view.Parse(r.frame); err != nil {
			panic(err)
		}
		r.st.onSend(r.conn, &r.view)
	}
	r.st.appendTurn()
}

func TestAnAsyncSendAllocatesNothing(t *testing.T) {
	b := startBroker(t, map[string]string{"mappedFileSizeCommitLog": "268435456", "mappedFileSizeConsumeQueue": "6000000"})
	for name, form := range map[string]codec.Serialize{"JSON": codec.JSON, "ROCKETMQ": codec.Binary} {
		t.Run(name, func(t *testing.T) {
			r := newSendRig(t, b.Broker, form, 128)
			r.turn(64)
			resp, err := codec.DecodeFrame(r.conn.out[:4+int(uint32(r.conn.out[2])<<8|uint32(r.conn.out[3]))])
			require.NoError(t, err)
			require.Equal(t, codec.Success, resp.Code, resp.Remark)
			// The store's own goroutines allocate now and then, so the best of a few counts is the path's own.
			least := testing.AllocsPerRun(200, func() { r.turn(64) })
			for i := 0; i < 4 && least > 0; i++ {
				least = min(least, testing.AllocsPerRun(200, func() { r.turn(64) }))
			}
			require.Zero(t, least, "allocations for 64 messages")
		})
	}
}

func BenchmarkSendPath(bench *testing.B) {
	for name, form := range map[string]codec.Serialize{"JSON": codec.JSON, "ROCKETMQ": codec.Binary} {
		for _, depth := range []int{1, 64} {
			bench.Run(name+"/"+map[int]string{1: "depth=1", 64: "depth=64"}[depth], func(bench *testing.B) {
				b := startBroker(bench, map[string]string{"mappedFileSizeCommitLog": "1073741824", "mappedFileSizeConsumeQueue": "6000000"})
				r := newSendRig(bench, b.Broker, form, 128)
				r.turn(depth)
				bench.ReportAllocs()
				bench.ResetTimer()
				for n := 0; n < bench.N; n += depth {
					r.turn(depth)
				}
			})
		}
	}
}
