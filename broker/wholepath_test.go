package broker

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// window is a producer that sends the same message so many times in one write and reads the answers, without allocating.
type window struct {
	conn   net.Conn
	frames []byte
	buf    []byte
	depth  int
}

func newWindow(t *testing.T, addr string, form codec.Serialize, depth int) *window {
	cmd := codec.NewRequest(codec.ReqSendMessageV2, sendHeader("T", 1, "UNIQ_KEY\x01AC10010119183F7F000000000001\x02WAIT\x01true\x02"), make([]byte, 128))
	cmd.Serialize = form
	w := &window{depth: depth, buf: make([]byte, 64<<10)}
	for range depth {
		w.frames = codec.AppendFrame(w.frames, cmd)
	}
	var err error
	w.conn, err = net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { w.conn.Close() })
	return w
}

// round sends the window and returns the last answer.
func (w *window) round() (last []byte, err error) {
	if _, err := w.conn.Write(w.frames); err != nil {
		return nil, err
	}
	for range w.depth {
		if _, err := io.ReadFull(w.conn, w.buf[:4]); err != nil {
			return nil, err
		}
		last = w.buf[:4+binary.BigEndian.Uint32(w.buf)]
		if _, err := io.ReadFull(w.conn, last[4:]); err != nil {
			return nil, err
		}
	}
	return last, nil
}

func TestASynchronousSendAllocatesNothingOnItsWholeWay(t *testing.T) {
	const depth, rounds = 64, 200
	conf := map[string]string{"mappedFileSizeCommitLog": "268435456", "mappedFileSizeConsumeQueue": "6000000", "slaveSyncMetadataInterval": "60000"}
	m := startBroker(t, with(conf, "brokerRole", "SYNC_MASTER"))
	startSlave(t, m, "1", conf)
	m.awaitUsable(1)
	for name, form := range map[string]codec.Serialize{"JSON": codec.JSON, "ROCKETMQ": codec.Binary} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(t, m.Addr().String(), form, depth)
			measure := func() uint64 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range rounds {
					if _, err := w.round(); err != nil {
						t.Fatal(err)
					}
				}
				runtime.ReadMemStats(&after)
				return after.Mallocs - before.Mallocs
			}
			for range 10 { // what is pooled comes into being
				last, err := w.round()
				require.NoError(t, err)
				resp, err := codec.DecodeFrame(last)
				require.NoError(t, err)
				require.Equal(t, codec.Success, resp.Code, resp.Remark)
			}
			// Both brokers, their network and their stores are in this process, and what they do by the clock allocates now and then: the best
			// of a few counts must be far below one for each message, and below one for each round.
			least := measure()
			for i := 0; i < 9 && least >= rounds; i++ {
				least = min(least, measure())
			}
			t.Logf("%d allocations for %d messages", least, depth*rounds)
			require.Less(t, least, uint64(rounds), "allocations for %d messages in %d rounds", depth*rounds, rounds)
		})
	}
}
