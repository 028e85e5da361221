package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/transfer"
)

// startSlave starts a slave of b, found by its configured address.
func startSlave(t *testing.T, b *testBroker, id string, conf map[string]string) *testBroker {
	t.Helper()
	all := map[string]string{"brokerRole": "SLAVE", "brokerId": id, "haMasterAddress": b.master.Load().Addr().String(), "masterAddr": b.addr}
	for k, v := range conf {
		all[k] = v
	}
	return startBroker(t, all)
}

func (b *testBroker) awaitEnd(of *testBroker) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.store.End() == of.store.End() }, 20*time.Second, time.Millisecond, "the slave has not got all")
}

func (b *testBroker) awaitUsable(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.master.Load().Status().Usable == n }, 20*time.Second, time.Millisecond)
}

func TestASlaveHasWhatASyncSendWasAnsweredFor(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER"})
	s := startSlave(t, m, "1", nil)
	m.awaitUsable(1)
	for i := range 200 {
		resp := m.send("T", i%4, "", fmt.Sprintf("%0500d", i))
		require.Equal(t, codec.Success, resp.Code, resp.Remark)
		_, offset, err := codec.ParseMessageID(resp.Ext["msgId"])
		require.NoError(t, err)
		require.Greater(t, s.store.End(), offset, "the send was answered before the slave had it")
	}
	s.awaitEnd(m)
	require.Eventually(t, func() bool { _, known := s.topics.Get("T"); return known }, 10*time.Second, time.Millisecond)
	require.Len(t, s.consumed("T", 0, 50), 50)
}

func TestWithoutASlaveASyncSendIsStoredAndSaysSoAtOnce(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER"})
	begin := time.Now()
	require.Equal(t, codec.CodeName(codec.SlaveNotAvailable), codec.CodeName(m.send("T", 0, "", "x").Code))
	require.Less(t, time.Since(begin), time.Second)
	require.Equal(t, []string{"x"}, m.consumed("T", 0, 1))
	require.Equal(t, codec.Success, m.send("T", 0, "WAIT\x01false\x02", "y").Code, "a message that does not want to wait does not")
}

func TestInSyncReplicasOneWaitsForNobody(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"})
	require.Equal(t, codec.Success, m.send("T", 0, "", "x").Code)
}

// stuckSlave is a slave that connected, reported once and says no more.
func stuckSlave(t *testing.T, m *testBroker) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", m.master.Load().Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write(make([]byte, codec.HAReportSize))
	require.NoError(t, err)
	m.awaitUsable(1)
	return c
}

func TestASlowSlaveCostsEachSendItsOwnTimeAndNoMore(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER", "slaveTimeout": "500"})
	require.Equal(t, codec.SlaveNotAvailable, m.send("T", 0, "", "first").Code)
	stuckSlave(t, m)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			begin := time.Now()
			resp := m.send("T", 0, "", fmt.Sprint(i))
			took := time.Since(begin)
			if resp.Code != codec.FlushSlaveTimeout || took < 490*time.Millisecond || took > 5*time.Second {
				t.Errorf("answered %s after %v", codec.CodeName(resp.Code), took)
			}
		})
	}
	wg.Wait()
	require.Len(t, m.consumed("T", 0, 201), 201, "all are stored, and visible once answered")
}

func TestNoConsumerSeesAMessageBeforeItsSendIsAnswered(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER", "slaveTimeout": "800"})
	require.Equal(t, codec.SlaveNotAvailable, m.send("T", 0, "", "first").Code)
	require.Len(t, m.consumed("T", 0, 1), 1)
	stuckSlave(t, m)
	// On one connection, so that the order of the answers is the broker's own.
	c, err := net.Dial("tcp", m.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	write := func(opaque int32, code codec.RequestCode, ext map[string]string, body string) {
		cmd := codec.NewRequest(code, ext, []byte(body))
		cmd.Opaque = opaque
		_, err := c.Write(codec.AppendFrame(nil, cmd))
		require.NoError(t, err)
	}
	write(1, codec.ReqPullMessage, pullHeader("CG", "T", 0, 1, "*", 15*time.Second), "")
	require.Eventually(t, func() bool { return m.holds.n.Load() == 1 }, 5*time.Second, time.Millisecond)
	write(2, codec.ReqSendMessageV2, sendHeader("T", 0, ""), "second")
	require.Eventually(t, func() bool { return m.master.Load().Status().Waiting == 1 }, 5*time.Second, time.Millisecond)
	require.EqualValues(t, 1, m.queueBound(codec.ReqGetMaxOffset, "T", 0))
	first, second := readFrame(t, c), readFrame(t, c)
	require.EqualValues(t, 2, first.Opaque, "the message was delivered before its send was answered")
	require.Equal(t, codec.FlushSlaveTimeout, first.Code)
	require.EqualValues(t, 1, second.Opaque)
	require.Equal(t, []string{"second"}, bodies(t, &second))
	require.EqualValues(t, 2, m.queueBound(codec.ReqGetMaxOffset, "T", 0))
}

func readFrame(t *testing.T, c net.Conn) codec.Command {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	head := make([]byte, 4)
	_, err := io.ReadFull(c, head)
	require.NoError(t, err)
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	_, err = io.ReadFull(c, frame[4:])
	require.NoError(t, err)
	cmd, err := codec.DecodeFrame(frame)
	require.NoError(t, err)
	return cmd
}

func TestASlaveRefusesWritesAndServesReads(t *testing.T) {
	m := startBroker(t, nil)
	s := startSlave(t, m, "1", nil)
	require.Equal(t, codec.Success, m.send("T", 0, "", "x").Code)
	s.awaitEnd(m)
	resp := s.send("T", 0, "", "y")
	require.Equal(t, codec.ServiceNotAvailable, resp.Code)
	require.Contains(t, resp.Remark, "slave")
	require.Eventually(t, func() bool { _, known := s.topics.Get("T"); return known }, 10*time.Second, time.Millisecond)
	require.Equal(t, []string{"x"}, s.consumed("T", 0, 1))
	require.Equal(t, codec.PullNotFound, s.pull("T", 0, 100, "*", 0).Code, "a slave that lags corrects no consumer")
	require.Equal(t, codec.SystemError, s.call(codec.ReqDeleteTopicInBroker, map[string]string{"topic": "T"}, nil).Code)
}

func TestASlaveTakesOverTheMastersTables(t *testing.T) {
	m := startBroker(t, nil)
	s := startSlave(t, m, "1", nil)
	require.Equal(t, codec.Success, m.send("T", 0, "", "x").Code)
	m.ask(codec.ReqUpdateConsumerOffset, map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}, nil)
	group, err := codec.Marshal(codec.NewSubscriptionGroup("G2"))
	require.NoError(t, err)
	m.ask(codec.ReqUpdateAndCreateGroup, nil, group)
	require.Eventually(t, func() bool {
		_, topic := s.topics.Get("T")
		_, group := s.groups.Get("G2")
		offset, progress := s.offsets.Query("G", "T", 0)
		return topic && group && progress && offset == 1
	}, 10*time.Second, 5*time.Millisecond)
	m.ask(codec.ReqDeleteTopicInBroker, map[string]string{"topic": "T"}, nil)
	require.Eventually(t, func() bool { _, topic := s.topics.Get("T"); return !topic }, 10*time.Second, 5*time.Millisecond)
}

func TestASlaveOfAnotherHistoryIsRefusedAndKeepsItsFiles(t *testing.T) {
	m := startBroker(t, nil)
	s := startSlave(t, m, "1", nil)
	for i := range 20 {
		require.Equal(t, codec.Success, m.send("T", 0, "", fmt.Sprint("one", i)).Code)
	}
	s.awaitEnd(m)
	require.Eventually(t, func() bool { _, known := s.topics.Get("T"); return known }, 10*time.Second, time.Millisecond)
	end := s.store.End()
	require.NoError(t, s.Close(testContext(t)))

	other := startBroker(t, nil)
	for i := range 40 {
		require.Equal(t, codec.Success, other.send("T", 0, "", fmt.Sprint("another", i)).Code)
	}
	conf := with(with(s.conf, "haMasterAddress", other.master.Load().Addr().String()), "masterAddr", other.addr)
	again := runBroker(t, conf)
	require.Eventually(t, func() bool { return again.slave.Load().Status().State == transfer.Refused }, 10*time.Second, 5*time.Millisecond)
	require.NotEmpty(t, again.slave.Load().Status().LastError)
	require.Eventually(t, func() bool { return other.master.Load().Status().Refused > 0 }, 10*time.Second, 5*time.Millisecond, "the master shows it too")
	refusal := other.master.Load().Status().Refusals[0]
	require.Equal(t, "C/b1/1", refusal.ID)
	require.Contains(t, refusal.Reason, "does not follow")
	require.Equal(t, end, again.store.End())
	require.Len(t, again.consumed("T", 0, 20), 20)
}

func TestTwoConnectionsOfOneSlaveCountOnce(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "slaveTimeout": "300"})
	startSlave(t, m, "1", nil)
	m.awaitUsable(1)
	second := stuckConn(t, m)
	m.ask(codec.ReqTandemHello, map[string]string{"identity": "C/b1/1", "haLocal": second.LocalAddr().String()}, nil)
	_, err := second.Write(make([]byte, codec.HAReportSize))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n := 0
		for _, s := range m.master.Load().Status().Slaves {
			if s.Reported && s.ID == "C/b1/1" {
				n++
			}
		}
		return n == 2 || m.master.Load().Status().Refused > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, codec.CodeName(codec.SlaveNotAvailable), codec.CodeName(m.send("T", 0, "", "x").Code))
}

func stuckConn(t *testing.T, m *testBroker) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", m.master.Load().Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSyncFlushAnswersWhenTheDiskHasIt(t *testing.T) {
	m := startBroker(t, map[string]string{"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "60000"})
	for i := range 20 {
		resp := m.send("T", 0, "", fmt.Sprint(i))
		require.Equal(t, codec.Success, resp.Code, resp.Remark)
		_, offset, err := codec.ParseMessageID(resp.Ext["msgId"])
		require.NoError(t, err)
		require.Greater(t, m.store.Flushed(), offset)
	}
}

func TestASlaveNamesWhatItsMasterMustShareWithIt(t *testing.T) {
	m := startBroker(t, nil)
	for key, value := range map[string]string{"brokerName": "other", "mappedFileSizeCommitLog": "2097152"} {
		s := startSlave(t, m, "1", map[string]string{key: value})
		require.Eventually(t, func() bool { return strings.Contains(s.slave.Load().Status().LastError, key+"=") }, 10*time.Second, 5*time.Millisecond)
		require.Zero(t, s.store.End())
	}
}

func TestAStopEndsWhileSlavesKeepConnecting(t *testing.T) {
	m := startBroker(t, map[string]string{"brokerRole": "SYNC_MASTER"})
	addr := m.master.Load().Addr().String()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if c, err := net.Dial("tcp", addr); err == nil {
					_ = c.Close()
				}
			}
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Broker.Close(testContext(t)) }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the broker does not stop")
	}
	close(done)
	wg.Wait()
}
