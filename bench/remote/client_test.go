package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/codec"
)

func TestMain(m *testing.M) {
	// The network library starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// server answers requests by the function until the test ends.
func server(t *testing.T, answer func(req codec.Command) codec.Command) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c, answer)
		}
	}()
	return ln.Addr().String()
}

// serve answers one connection; the tests' clients have one each.
func serve(c net.Conn, answer func(req codec.Command) codec.Command) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		head, err := in.Peek(4)
		if err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		req, err := codec.DecodeFrame(frame)
		if err != nil {
			return
		}
		resp := answer(req)
		resp.Opaque = req.Opaque
		resp.MarkResponse()
		if _, err := c.Write(codec.AppendFrame(nil, &resp)); err != nil {
			return
		}
	}
}

func newClient(t *testing.T) *Client {
	c := New(5*time.Second, nil)
	t.Cleanup(c.Close)
	return c
}

func always(resp codec.Command) func(codec.Command) codec.Command {
	return func(codec.Command) codec.Command { return resp }
}

func TestASentMessageTellsItsPlace(t *testing.T) {
	var got codec.Command
	place := map[string]string{"queueId": "2", "queueOffset": "77", "msgId": "x"}
	addr := server(t, func(req codec.Command) codec.Command {
		got = req
		return codec.Command{Code: codec.FlushSlaveTimeout, Ext: place}
	})
	sent, err := newClient(t).Send(t.Context(), addr, Message{Topic: "T", Queue: 2, Body: []byte("hello")})
	require.NoError(t, err, "the message is stored")
	require.Equal(t, Sent{Code: codec.FlushSlaveTimeout, Place: Place{2, 77}}, sent)
	require.Equal(t, "hello", string(got.Body))
	require.Equal(t, "T", got.Ext["b"])
	require.Equal(t, "2", got.Ext["e"])
	require.Contains(t, got.Ext["i"], "WAIT\x01true")
}

func TestARefusalNamesCodeAndAddress(t *testing.T) {
	addr := server(t, always(codec.Command{Code: codec.TopicNotExist, Remark: "no such topic"}))
	_, err := newClient(t).Send(t.Context(), addr, Message{Topic: "T", Body: []byte("x")})
	var refused *CodeError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, codec.TopicNotExist, refused.Code)
	for _, part := range []string{addr, "TOPIC_NOT_EXIST", "17", "no such topic"} {
		require.ErrorContains(t, err, part)
	}
}

func TestAnAnswerWithoutItsFieldsIsAnError(t *testing.T) {
	addr := server(t, always(codec.Command{Code: codec.Success}))
	c := newClient(t)
	_, err := c.Send(t.Context(), addr, Message{Topic: "T", Body: []byte("x")})
	require.ErrorContains(t, err, addr)
	_, err = c.Pull(t.Context(), addr, Pull{Group: "g", Topic: "T"})
	require.ErrorContains(t, err, "nextBeginOffset")
	_, err = c.LogRange(t.Context(), addr)
	require.ErrorContains(t, err, addr)
}

func TestPulledRecordsAreChecked(t *testing.T) {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	var body []byte
	for i := range 3 {
		r := codec.Record{QueueOffset: int64(i), BornHost: host, StoreHost: host, Topic: []byte("T"), Body: []byte{byte(i), 1, 2}}
		body = r.Append(body)
	}
	ext := map[string]string{"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "9", "suggestWhichBrokerId": "0"}
	addr := server(t, func(req codec.Command) codec.Command {
		b := append([]byte{}, body...)
		if req.Ext["queueOffset"] == "1" {
			b[len(b)-4]++ // in the last record's topic or body
			b[90]++
		}
		return codec.Command{Code: codec.Success, Ext: ext, Body: b}
	})
	c := newClient(t)
	p, err := c.Pull(t.Context(), addr, Pull{Group: "g", Topic: "T"})
	require.NoError(t, err)
	require.Len(t, p.Records, 3)
	require.Equal(t, []byte{2, 1, 2}, p.Records[2].Body)
	require.Equal(t, []int64{3, 0, 9}, []int64{p.Next, p.Min, p.Max})
	_, err = c.Pull(t.Context(), addr, Pull{Group: "g", Topic: "T", Offset: 1})
	require.ErrorIs(t, err, codec.ErrRecordCorrupt)
}

func TestAnEmptyPullIsNoError(t *testing.T) {
	ext := map[string]string{"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"}
	addr := server(t, always(codec.Command{Code: codec.PullNotFound, Ext: ext}))
	p, err := newClient(t).Pull(t.Context(), addr, Pull{Group: "g", Topic: "T", Offset: 5})
	require.NoError(t, err)
	require.Equal(t, Pulled{Code: codec.PullNotFound, Next: 5, Max: 5}, p)
}

func TestMastersAreThoseWithIDZero(t *testing.T) {
	body := `{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:2",1:"h:3"},"brokerName":"b"},"a":{"brokerAddrs":{0:"h:1"},"brokerName":"a"}},"clusterAddrTable":{}}`
	addr := server(t, always(codec.Command{Code: codec.Success, Body: []byte(body)}))
	masters, err := newClient(t).Masters(t.Context(), addr)
	require.NoError(t, err)
	require.Equal(t, []string{"h:1", "h:2"}, masters)
}

func TestANameServerWithoutMastersIsAnError(t *testing.T) {
	addr := server(t, always(codec.Command{Code: codec.Success, Body: []byte(`{"brokerAddrTable":{},"clusterAddrTable":{}}`)}))
	_, err := newClient(t).Masters(t.Context(), addr)
	require.ErrorIs(t, err, ErrNoMaster)
}

func TestWaitLevelWaitsUntilBothLogsEndAlike(t *testing.T) {
	info := func(end string) codec.Command {
		return codec.Command{Code: codec.Success, Body: []byte(`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"` + end + `"}}`)}
	}
	leader := server(t, always(info("300")))
	asked := 0
	follower := server(t, func(codec.Command) codec.Command {
		asked++
		return info([]string{"100", "200", "300"}[min(asked, 3)-1])
	})
	require.NoError(t, newClient(t).WaitLevel(t.Context(), leader, follower))
	require.Equal(t, 3, asked)
}

func TestPollTellsWhatWasMissingWhenItsTimeIsUp(t *testing.T) {
	missing := errors.New("not yet level")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := Poll(ctx, time.Millisecond, func() (bool, error) { return false, missing })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, missing)
}

func TestReplicationIsHowFarEachSlaveIs(t *testing.T) {
	body := `{"version":1,"role":"SYNC_MASTER","maxOffset":7,"master":{"maxOffset":900,"slaves":[{"id":"a","acked":800,"reported":true,"inSync":true},{"acked":0}]}}`
	addr := server(t, always(codec.Command{Code: codec.Success, Body: []byte(body)}))
	r, err := newClient(t).Replication(t.Context(), addr)
	require.NoError(t, err)
	require.Equal(t, Replication{End: 900, Slaves: []Acknowledged{{Offset: 800, Reported: true, InSync: true}, {}}}, r)

	slave := server(t, always(codec.Command{Code: codec.Success, Body: []byte(`{"role":"SLAVE","slave":{"maxOffset":1}}`)}))
	_, err = newClient(t).Replication(t.Context(), slave)
	require.ErrorContains(t, err, "no master")
}

func TestAppendTimesAreThoseOfTheStatusOrUnknown(t *testing.T) {
	body := `{"appendTimes":{"count":9,"p50Ns":1,"p99Ns":2,"p999Ns":3,"p9999Ns":4,"maxNs":5},"master":{}}`
	addr := server(t, always(codec.Command{Code: codec.Success, Body: []byte(body)}))
	got, err := newClient(t).AppendTimes(t.Context(), addr)
	require.NoError(t, err)
	require.Equal(t, &AppendTimes{Count: 9, P50Ns: 1, P99Ns: 2, P999Ns: 3, P9999Ns: 4, MaxNs: 5}, got)

	older := server(t, always(codec.Command{Code: codec.Success, Body: []byte(`{"master":{}}`)}))
	got, err = newClient(t).AppendTimes(t.Context(), older)
	require.NoError(t, err)
	require.Nil(t, got)
}
