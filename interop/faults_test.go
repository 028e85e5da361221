package interop

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
	"tandem/codec"
)

// These tests measure answer times, so they do not run beside others.

// slaveTimeout is the default: chosen so that the answer comes before the clients' own 3 s are over.
const slaveTimeout = 2 * time.Second

// latest is when an answer with FLUSH_SLAVE_TIMEOUT is due: a fifth above the time-out.
const latest = slaveTimeout + slaveTimeout/5

// pair is a sync master with its only slave, the topic made and the slave joined.
func pair(t testing.TB) (s *site, master, slave *node, book *ledger) {
	t.Helper()
	s = newSite(t, ours())
	master = s.master(ours(), "SYNC_MASTER", defaultTimeout())
	s.wire.createTopic(t, master.addr, topic, queues)
	slave = s.slave(ours(), 1)
	book = newLedger()
	s.joined(book, master, topic)
	return s, master, slave, book
}

// defaultTimeout leaves slaveTimeout out of the settings; a stand-in has another default and is told.
func defaultTimeout() cluster.Conf {
	if standIn() != "" {
		return cluster.Conf{"slaveTimeout": "2000"}
	}
	return cluster.Conf{"slaveTimeout": ""}
}

func TestStoppedSlaveAnswersInTime(t *testing.T) {
	s, master, slave, book := pair(t)
	slave.pause()
	for i := range 3 {
		requireTimedOut(t, book.send(s.wire, master.addr, message{Topic: topic, ID: fmt.Sprintf("one-%d", i), Body: []byte("one")}))
	}
	for _, got := range sendAtOnce(s.wire, book, master, 200) {
		requireTimedOut(t, got)
	}
	slave.resume()
	s.joined(book, master, topic)
	for _, got := range sendAtOnce(s.wire, book, master, 200) {
		require.NoError(t, got.Err)
		require.Equal(t, codec.Success, got.Code, "slave back: %v", got)
	}
	s.caughtUp(master, slave)
	requireDrained(t, s.wire, book, master.addr, topic, queues)
	requireDrained(t, s.wire, book, slave.addr, topic, queues)
	requireStoredOnce(t, s.wire, book, slave.addr)
}

// requireStoredOnce waits until the broker delivers every message that was tried, whatever was answered, and none twice.
func requireStoredOnce(t testing.TB, w *wire, book *ledger, addr string) {
	t.Helper()
	eventually(t, patience, func() bool {
		all, err := drain(w, addr, topic, queues)
		require.NoError(t, err)
		require.NoError(t, book.check(all))
		return len(all) == len(book.tried)
	}, "%s delivers all %d messages", addr, len(book.tried))
}

func requireTimedOut(t testing.TB, got sent) {
	t.Helper()
	require.NoError(t, got.Err)
	require.Equal(t, codec.FlushSlaveTimeout, got.Code, "slave stopped: %v", got)
	require.LessOrEqual(t, got.Took, latest, "answered in time")
	require.GreaterOrEqual(t, got.Took, slaveTimeout*9/10, "not given up early")
	require.NotEmpty(t, got.MsgID, "the answer tells where the message is stored")
}

// sendAtOnce sends n messages, none waiting for another.
func sendAtOnce(w *wire, book *ledger, master *node, n int) []sent {
	all := make([]sent, n)
	var senders sync.WaitGroup
	for i := range n {
		senders.Go(func() {
			m := message{Topic: topic, Queue: i % queues, ID: fmt.Sprintf("crowd-%d-%d", i, time.Now().UnixNano()), Body: []byte("crowd")}
			all[i] = book.send(w, master.addr, m)
		})
	}
	senders.Wait()
	return all
}

func TestNoSlaveIsAnsweredAtOnce(t *testing.T) {
	s := newSite(t, ours())
	master := s.master(ours(), "SYNC_MASTER", defaultTimeout())
	s.wire.createTopic(t, master.addr, topic, queues)
	book := newLedger()
	for i := range 20 {
		got := book.send(s.wire, master.addr, message{Topic: topic, Queue: i % queues, ID: fmt.Sprintf("alone-%d", i), Body: []byte("alone")})
		requireNoSlave(t, got)
	}
	requireStoredOnce(t, s.wire, book, master.addr)

	slave := s.slave(ours(), 1)
	s.joined(book, master, topic)
	slave.kill()
	eventually(t, patience, func() bool {
		got := book.send(s.wire, master.addr, message{Topic: topic, ID: fmt.Sprintf("gone-%d", time.Now().UnixNano()), Body: []byte("gone")})
		return got.Code == codec.SlaveNotAvailable && got.Took < slaveTimeout/2
	}, "a killed slave no longer counts")
}

func requireNoSlave(t testing.TB, got sent) {
	t.Helper()
	require.NoError(t, got.Err)
	require.Equal(t, codec.SlaveNotAvailable, got.Code, "no slave: %v", got)
	require.Less(t, got.Took, slaveTimeout/2, "answered at once")
	require.NotEmpty(t, got.MsgID, "the answer tells where the message is stored")
}

// TestNothingIsDeliveredBeforeItsSendIsAnswered holds a consumer at the queue's end while the slave stands still.
func TestNothingIsDeliveredBeforeItsSendIsAnswered(t *testing.T) {
	s, master, slave, book := pair(t)
	queue := 2
	end, err := s.wire.offset(master.addr, codec.ReqGetMaxOffset, topic, queue)
	require.NoError(t, err)
	slave.pause()

	var answered atomic.Bool
	reader := newWire(t) // its own connection: a held pull must not share the sender's
	early := make(chan error, 2)
	go func() { early <- deliveredEarly(reader, master.addr, queue, end, &answered) }()
	go func() { early <- countedEarly(newWire(t), master.addr, queue, end, &answered) }()
	got := book.send(s.wire, master.addr, message{Topic: topic, Queue: queue, ID: "hidden", Body: []byte("hidden")})
	answered.Store(true)
	requireTimedOut(t, got)
	require.NoError(t, <-early)
	require.NoError(t, <-early)
	slave.resume()
	s.joined(book, master, topic)
}

// raceAllowance is for an answer that has left the broker but has not been seen by the sender's goroutine yet.
const raceAllowance = 200 * time.Millisecond

// deliveredEarly pulls, held and not held in turns, until the message comes.
func deliveredEarly(w *wire, addr string, queue int, end int64, answered *atomic.Bool) error {
	for deadline, turn := time.Now().Add(patience), 0; time.Now().Before(deadline); turn++ {
		p, err := w.pull(addr, "early-reader", topic, queue, end, time.Duration(turn%2)*time.Second)
		if err != nil {
			return err
		}
		if len(p.Messages) > 0 {
			return tooEarly("delivered", answered)
		}
	}
	return fmt.Errorf("the message was never delivered")
}

// countedEarly asks for the queue's end until the message is counted in.
func countedEarly(w *wire, addr string, queue int, end int64, answered *atomic.Bool) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		now, err := w.offset(addr, codec.ReqGetMaxOffset, topic, queue)
		if err != nil {
			return err
		}
		if now > end {
			return tooEarly("counted in GET_MAX_OFFSET", answered)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("the message was never counted")
}

func tooEarly(what string, answered *atomic.Bool) error {
	for deadline := time.Now().Add(raceAllowance); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if answered.Load() {
			return nil
		}
	}
	return fmt.Errorf("%s before its send was answered", what)
}
