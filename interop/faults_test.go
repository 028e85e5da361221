package interop

import (
	"fmt"
	"sync"
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
	unwaited := book.send(s.wire, master.addr, message{Topic: topic, ID: "unwaited", Body: []byte("x"), NoWait: true})
	require.NoError(t, unwaited.Err)
	require.Equal(t, codec.Success, unwaited.Code, "WAIT=false asks for no slave: %v", unwaited)
	require.Less(t, unwaited.Took, slaveTimeout/2, "and waits for none")
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

// TestNeededSlavesAreCounted asks for three copies of two slaves.
func TestNeededSlavesAreCounted(t *testing.T) {
	s := newSite(t, ours())
	master := s.master(ours(), "SYNC_MASTER", defaultTimeout(), cluster.Conf{"inSyncReplicas": "3", "totalReplicas": "3"})
	s.wire.createTopic(t, master.addr, topic, queues)
	first := s.slave(ours(), 1)
	book := newLedger()
	one := book.send(s.wire, master.addr, message{Topic: topic, ID: "one-slave", Body: []byte("x")})
	require.NoError(t, one.Err)
	require.NotEqual(t, codec.Success, one.Code, "three copies, one slave: %v", one)

	second := s.slave(ours(), 2)
	s.joined(book, master, topic)
	for _, stopped := range []*node{first, second} {
		stopped.pause()
		requireTimedOut(t, book.send(s.wire, master.addr, message{Topic: topic, ID: "without-" + stopped.name, Body: []byte("x")}))
		stopped.resume()
		s.joined(book, master, topic)
	}
	second.kill()
	eventually(t, patience, func() bool {
		got := book.send(s.wire, master.addr, message{Topic: topic, ID: fmt.Sprintf("killed-%d", time.Now().UnixNano()), Body: []byte("x")})
		return got.Code == codec.SlaveNotAvailable
	}, "fewer slaves than needed is answered at once")
}

// TestOneCopyIsEnoughOnlyByName switches the waiting off, which only inSyncReplicas=1 does.
func TestOneCopyIsEnoughOnlyByName(t *testing.T) {
	s := newSite(t, ours())
	master := s.master(ours(), "SYNC_MASTER", cluster.Conf{"inSyncReplicas": "1"})
	got := s.wire.send(master.addr, message{Topic: topic, ID: "alone", Body: []byte("x")})
	require.NoError(t, got.Err)
	require.Equal(t, codec.Success, got.Code, "%v", got)
	if standIn() == "" {
		require.Contains(t, master.proc.LogTail(100), "WARN", "the start warns of it")
		require.Contains(t, master.proc.LogTail(100), "inSyncReplicas")
	}
}

// TestNothingIsDeliveredBeforeItsSendIsAnswered watches a queue's end while the slave stands still. Three messages go there: one that
// waits, one that does not (its dispatch must not show the first), and one that waits longer (the first one's answer must not show it).
func TestNothingIsDeliveredBeforeItsSendIsAnswered(t *testing.T) {
	s, master, slave, book := pair(t)
	const queue = 2
	end, err := s.wire.offset(master.addr, codec.ReqGetMaxOffset, topic, queue)
	require.NoError(t, err)
	slave.pause()

	delivered, counted := make(chan sightings, 1), make(chan sightings, 1)
	reader, counter := newWire(t), newWire(t) // connections of their own: a held pull must not share the sender's
	go func() { delivered <- watchDeliveries(reader, master.addr, queue, end, 3) }()
	go func() { counted <- watchCount(counter, master.addr, queue, end, 3) }()

	var senders sync.WaitGroup
	results, answered := make([]sent, 3), make([]time.Time, 3)
	for i, m := range []message{{ID: "first"}, {ID: "unwaited", NoWait: true}, {ID: "last"}} {
		m.Topic, m.Queue, m.Body = topic, queue, []byte(m.ID)
		before := s.wire.logEnd(master.addr)
		senders.Go(func() {
			results[i] = book.send(s.wire, master.addr, m)
			answered[i] = time.Now()
		})
		eventually(t, patience, func() bool { return s.wire.logEnd(master.addr) > before }, "the message is in the log")
		time.Sleep(slaveTimeout / 4) // so that the answers are due at different times
	}
	senders.Wait()
	requireTimedOut(t, results[0])
	require.Equal(t, codec.Success, results[1].Code, "WAIT=false: %v", results[1])
	requireTimedOut(t, results[2])
	for what, seen := range map[string]sightings{"delivered": <-delivered, "counted in GET_MAX_OFFSET": <-counted} {
		require.NoError(t, seen.err)
		require.Len(t, seen.at, 3)
		for i, at := range seen.at {
			require.False(t, at.Before(answered[i].Add(-raceAllowance)), "message %d was %s %v before its send was answered", i, what, answered[i].Sub(at))
		}
	}
	slave.resume()
	s.joined(book, master, topic)
}

// raceAllowance is for an answer that has left the broker but has not been seen by the sender's goroutine yet.
const raceAllowance = 200 * time.Millisecond

// sightings are the times at which the messages from an offset on were first seen.
type sightings struct {
	at  []time.Time
	err error
}

// watchDeliveries pulls, held and not held in turns, until n messages came.
func watchDeliveries(w *wire, addr string, queue int, from int64, n int) (seen sightings) {
	for deadline, turn := time.Now().Add(patience), 0; len(seen.at) < n && time.Now().Before(deadline); turn++ {
		p, err := w.pull(addr, "early-reader", topic, queue, from+int64(len(seen.at)), time.Duration(turn%2)*time.Second)
		if err != nil {
			return sightings{err: err}
		}
		for range p.Messages {
			seen.at = append(seen.at, time.Now())
		}
		time.Sleep(time.Millisecond)
	}
	return seen
}

// watchCount asks for the queue's end until n messages are counted in.
func watchCount(w *wire, addr string, queue int, from int64, n int) (seen sightings) {
	for deadline := time.Now().Add(patience); len(seen.at) < n && time.Now().Before(deadline); {
		now, err := w.offset(addr, codec.ReqGetMaxOffset, topic, queue)
		if err != nil {
			return sightings{err: err}
		}
		for int64(len(seen.at)) < now-from {
			seen.at = append(seen.at, time.Now())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return seen
}
