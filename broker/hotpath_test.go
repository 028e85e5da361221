package broker

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
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
	return &sendRig{st: newLoopState(b, nil), conn: &memoryConn{remote: netip.MustParseAddrPort("127.0.0.1:40000")}, frame: codec.AppendFrame(nil, cmd)}
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

func TestSendsThatFindNoPlaceInTheRingAreRefusedAndTheOthersStored(t *testing.T) {
	b := startBroker(t, map[string]string{"flushDiskType": "SYNC_FLUSH", "haRingSize": "64"})
	r := newSendRig(t, b.Broker, codec.JSON, 128)
	ring := b.master.Load().Ring()
	require.True(t, ring.Reserve(61)) // others wait
	r.turn(8)
	require.EqualValues(t, 3, b.counters.put.Load())
	var busy int
	for rest := r.conn.out; len(rest) > 0; busy++ {
		size := 4 + binary.BigEndian.Uint32(rest)
		resp, err := codec.DecodeFrame(rest[:size])
		require.NoError(t, err)
		require.Equal(t, codec.SystemBusy, resp.Code)
		require.Contains(t, resp.Remark, "OVERLOAD")
		rest = rest[size:]
	}
	require.Equal(t, 5, busy, "the others are answered when they are on disk")
	require.Eventually(t, func() bool { return ring.Waiting() == 0 }, 10*time.Second, time.Millisecond)
	require.False(t, ring.Reserve(4), "61 are held")
	require.True(t, ring.Reserve(3), "and what was refused holds nothing")
	ring.Cancel(64)
}

func TestAMessageStaysHiddenFromItsVerdictUntilItsAnswerIsWritten(t *testing.T) {
	b := startBroker(t, map[string]string{"flushDiskType": "SYNC_FLUSH"})
	require.Equal(t, codec.Success, b.send("T", 0, "", "x").Code)
	end := b.store.End()
	require.Eventually(t, func() bool { return b.visible() == end }, 10*time.Second, time.Millisecond)
	st := newLoopState(b.Broker, nil)
	st.posted = true // there is no loop to post to
	all := append(slices.Clone(*b.states.Load()), st)
	b.states.Store(&all)

	first, second := &send{st: st}, &send{st: st}
	first.append.Offset, second.append.Offset = 50, 80
	first.Done(codec.Success)
	second.Done(codec.Success)
	require.EqualValues(t, 50, b.visible(), "the drain still runs")
	b.answerDrained()
	require.EqualValues(t, noneUnwritten, st.ending.Load())
	require.Empty(t, st.ended)
	require.Equal(t, []*send{first, second}, st.done)
	require.EqualValues(t, 50, b.visible(), "the loop has not answered yet")
	st.done = nil
	st.unwritten.Store(noneUnwritten)
	require.Equal(t, end, b.visible())
}

// A pooled send starts anew, and so does a turn.
func TestATurnLeavesNothingToTheNext(t *testing.T) {
	b := startBroker(t, nil)
	r := newSendRig(t, b.Broker, codec.JSON, 128)
	r.turn(8)
	require.Zero(t, r.st.tickets)
	require.Empty(t, r.st.turn)
	require.Empty(t, r.st.appends)
	require.Empty(t, r.st.arena)
	for _, s := range r.st.idle {
		require.Equal(t, send{st: r.st, rows: s.rows[:0], uniqueKey: s.uniqueKey}, *s)
	}
}

func TestARecordHasTheClientsPropertiesAndTheClusterBehindThem(t *testing.T) {
	b := startBroker(t, nil)
	most := strings.Repeat("v", 32767-len("K\x01\x02"))
	for props, want := range map[string]string{
		"":                      "CLUSTER\x01C\x02",
		"a\x011\x02":            "a\x011\x02CLUSTER\x01C\x02",
		"a\x011":                "a\x011\x02CLUSTER\x01C\x02",
		"K\x01" + most + "\x02": "K\x01" + most + "\x02", // no room
	} {
		resp := b.send("T", 0, props, "x")
		require.Equal(t, codec.Success, resp.Code, resp.Remark)
		_, offset, err := codec.ParseMessageID(resp.Ext["msgId"])
		require.NoError(t, err)
		view := b.ask(codec.ReqViewMessageByID, map[string]string{"offset": strconv.FormatInt(offset, 10)}, nil)
		var r codec.Record
		_, err = r.Decode(view.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(r.Properties))
	}
}

func TestATopicThatChangedIsLookedUpAgain(t *testing.T) {
	b := startBroker(t, nil)
	r := newSendRig(t, b.Broker, codec.JSON, 128)
	first := r.st.topic([]byte("T"))
	require.Same(t, first, r.st.topic([]byte("T")))
	require.Nil(t, r.st.topic([]byte("U")))
	require.Same(t, first, r.st.topic([]byte("T")))
	b.topics.Put(ownTopic("T", 9))
	b.topicsChanged()
	require.EqualValues(t, 9, r.st.topic([]byte("T")).cfg.WriteQueueNums)
	b.topics.Delete("T")
	b.topicsChanged()
	require.Nil(t, r.st.topic([]byte("T")))
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
