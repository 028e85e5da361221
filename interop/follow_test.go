package interop

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
	"tandem/codec"
)

const (
	topic  = "Orders"
	group  = "order-readers"
	queues = 4
)

// metadataPatience covers a 5.5.0 slave, which fetches metadata first a minute after its start.
const metadataPatience = 3 * time.Minute

// seed makes what a slave has to take over besides the log: a topic, a group and its offset.
func seed(t testing.TB, w *wire, master *node) {
	t.Helper()
	w.createTopic(t, master.addr, topic, queues)
	w.heartbeat(t, master.addr, group, topic)
	w.commitOffset(t, master.addr, group, topic, 1, 7)
}

// requireMetadata waits until the slave's files know what seed made.
func requireMetadata(t testing.TB, slave *node) {
	t.Helper()
	eventually(t, metadataPatience, func() bool {
		return strings.Contains(slave.config("topics.json"), `"`+topic+`"`) &&
			strings.Contains(slave.config("subscriptionGroup.json"), `"`+group+`"`) &&
			offsetIn(slave.config("consumerOffset.json"), topic+"@"+group, 1) == 7
	}, "topic, group and offset in %s", filepath.Join(slave.store, "config"))
}

// offsetIn looks up an offset in the text of a consumerOffset.json, -1 if it is not there.
func offsetIn(text, key string, queue int32) int64 {
	var offsets codec.ConsumerOffsets
	if codec.Unmarshal([]byte(text), &offsets) != nil {
		return -1
	}
	if at, ok := offsets.OffsetTable[key][queue]; ok {
		return at
	}
	return -1
}

func TestApacheSlaveFollowsOurSyncMaster(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			needApache(t)
			s := newSite(t, ours())
			master := s.master(ours(), "SYNC_MASTER")
			seed(t, s.wire, master)
			slave := s.slave(maker(version), 1)
			book := newLedger()
			s.joined(book, master, topic)

			fill(t, s.wire, book, master.addr, topic, queues, 1300, 64<<10)
			for _, size := range []int{33 << 10, 161 << 10, 1 << 20, 4_000_000} {
				got := book.send(s.wire, master.addr, message{Topic: topic, ID: "large-" + strconv.Itoa(size), Body: body(newRand(1), size)})
				require.NoError(t, got.Err)
				require.Equal(t, codec.Success, got.Code, "%d bytes: %v", size, got)
			}
			requireSlaveCounts(t, s, book, master, slave)
			fill(t, s.wire, book, master.addr, topic, queues, 100, 64<<10)

			s.caughtUp(master, slave)
			requireMetadata(t, slave)
			requireDrained(t, s.wire, book, slave.addr, topic, queues)
			requireDrained(t, s.wire, book, master.addr, topic, queues)
			slave.stop()
			master.stop()
			requireSeveralSegments(t, master)
			requireSameLogs(t, master.store, slave.store, logFirst(t, slave.store))
		})
	}
}

// requireSlaveCounts shows that an acknowledgement is the slave's: none comes while it stands still.
func requireSlaveCounts(t testing.TB, s *site, book *ledger, master, slave *node) {
	t.Helper()
	slave.pause()
	for _, got := range sendAtOnce(s.wire, book, master, 5) {
		require.NoError(t, got.Err)
		require.Equal(t, codec.FlushSlaveTimeout, got.Code, "slave stopped: %v", got)
	}
	slave.resume()
	s.joined(book, master, topic)
}

func requireSeveralSegments(t testing.TB, n *node) {
	t.Helper()
	l, err := openLog(n.store)
	require.NoError(t, err)
	_, end, err := l.span()
	require.NoError(t, err)
	require.Greater(t, end, 2*l.size, "%s: the log crosses segment borders", n.name)
}

// joinFrom is the setting that only our slave has.
func joinFrom(m maker, where string) cluster.Conf {
	if m.apache() != "" {
		return nil
	}
	return cluster.Conf{"haJoinFrom": where}
}

func TestOurSlaveFollowsApacheMaster(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			needApache(t)
			testOurSlaveFollows(t, maker(version), maker(version)) // our slaves are the only thing of ours in that cluster
		})
	}
}

func TestOurSlaveFollowsOurMaster(t *testing.T) {
	t.Parallel()
	testOurSlaveFollows(t, ours(), ours())
}

// testOurSlaveFollows is the life of two of our slaves at one master: one joins its newest segment, the other asks for all of it;
// then each side is restarted, in an orderly way and not, while the log grows over segment borders.
func testOurSlaveFollows(t *testing.T, masterMaker, namesrv maker) {
	s := newSite(t, namesrv)
	master := s.master(masterMaker, "SYNC_MASTER")
	seed(t, s.wire, master)
	book := newLedger()
	fillUnreplicated(t, s.wire, book, master, 1300)

	last := s.slave(ours(), 1, joinFrom(ours(), "last"))
	s.joined(book, master, topic)
	oldest := s.slave(ours(), 2, joinFrom(ours(), "oldest"))
	s.caughtUp(master, last, oldest)
	if ours() == tandemMade {
		require.Positive(t, logFirst(t, last.store), "joining at the newest segment leaves the older ones out")
		require.Zero(t, logFirst(t, oldest.store), "joining at the oldest segment brings the whole log")
	}

	oldest.stop()
	fill(t, s.wire, book, master.addr, topic, queues, 600, 64<<10)
	oldest.start() // joins with a prefix
	s.caughtUp(master, last, oldest)

	oldest.kill()
	fill(t, s.wire, book, master.addr, topic, queues, 300, 64<<10)
	oldest.start()
	s.caughtUp(master, last, oldest)

	master.stop()
	master.start()
	s.joined(book, master, topic)
	fill(t, s.wire, book, master.addr, topic, queues, 300, 64<<10)
	s.caughtUp(master, last, oldest)

	master.kill()
	master.start()
	s.joined(book, master, topic)
	fill(t, s.wire, book, master.addr, topic, queues, 100, 64<<10)
	s.caughtUp(master, last, oldest)

	requireMetadata(t, last)
	requireMetadata(t, oldest)
	if ours() == tandemMade {
		requireDrained(t, s.wire, book, oldest.addr, topic, queues)
	}
	last.stop()
	oldest.stop()
	master.stop()
	requireSeveralSegments(t, master)
	requireSameLogs(t, master.store, last.store, logFirst(t, last.store))
	requireSameLogs(t, master.store, oldest.store, logFirst(t, oldest.store))
}

// fillUnreplicated sends messages that wait for no slave.
func fillUnreplicated(t testing.TB, w *wire, book *ledger, master *node, count int) {
	t.Helper()
	r := newRand(int64(count))
	for i := range count {
		m := message{Topic: topic, Queue: i % queues, ID: "alone-" + strconv.Itoa(i), Body: body(r, 1+r.Intn(64<<10)), NoWait: true}
		got := book.send(w, master.addr, m)
		require.NoError(t, got.Err)
		require.Equal(t, codec.Success, got.Code, "WAIT=false: %v", got)
	}
}
