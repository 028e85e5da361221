package interop

import (
	"math/rand"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// number reads a count from the environment.
func number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "%s=%s", name, text)
	return n
}

// TestKillsLoseNothingAcknowledged kills the master, the slave, or both, again and again under load, in small segments. In the end
// every acknowledged message is there, on both sides, and the logs are the same.
func TestKillsLoseNothingAcknowledged(t *testing.T) {
	kinds := []struct {
		name    string
		victims func(master, slave *node) []*node
		flush   string
	}{
		{"of the master", func(m, _ *node) []*node { return []*node{m} }, "ASYNC_FLUSH"},
		{"of the slave", func(_, s *node) []*node { return []*node{s} }, "ASYNC_FLUSH"},
		{"of both", func(m, s *node) []*node { return []*node{m, s} }, "ASYNC_FLUSH"},
		{"of both with SYNC_FLUSH", func(m, s *node) []*node { return []*node{m, s} }, "SYNC_FLUSH"},
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			testKills(t, kind.victims, kind.flush)
		})
	}
}

func testKills(t *testing.T, victims func(master, slave *node) []*node, flush string) {
	s := newSite(t, ours())
	small := map[string]string{"mappedFileSizeCommitLog": segment1M, "flushDiskType": flush}
	master := s.master(ours(), "SYNC_MASTER", small)
	s.wire.createTopic(t, master.addr, topic, queues)
	slave := s.slave(ours(), 1, small)
	book := newLedger()
	s.joined(book, master, topic)

	run := startLoad(s.wire, book, master.addr, topic, loadOptions{queues: queues, senders: 8, sizes: mixedSizes})
	for round := range number(t, envKills, 6) {
		at := book.count() + 200 + round%5*37
		eventually(t, 2*patience, func() bool { return book.count() >= at }, "round %d: %d more acknowledged sends", round, 200)
		for _, n := range victims(master, slave) {
			n.kill()
		}
		for _, n := range victims(master, slave) {
			n.start()
		}
	}
	run.stop()
	s.joined(book, master, topic)
	s.caughtUp(master, slave)
	t.Logf("%d messages tried, %d acknowledged, answers by code %v", len(book.tried), book.count(), book.codes)

	requireDrained(t, s.wire, book, master.addr, topic, queues)
	requireDrained(t, s.wire, book, slave.addr, topic, queues)
	slave.stop()
	master.stop()
	requireSeveralSegments(t, master)
	requireSameLogs(t, master.store, slave.store, 0)
	require.NoError(t, readWholeLog(slave.store, book))
}

// mixedSizes are mostly small bodies with a large one now and then, so that kills meet both.
func mixedSizes(r *rand.Rand) int {
	if r.Intn(50) == 0 {
		return 1 + r.Intn(200<<10)
	}
	return 1 + r.Intn(4<<10)
}
