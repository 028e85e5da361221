package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// TestPositionThatDoesNotFitIsRefused gives our slave a master whose log is not the one it followed, or no longer reaches back to it:
// the slave must say so in its status, must not touch its files, and must join again once its store was emptied.
func TestPositionThatDoesNotFitIsRefused(t *testing.T) {
	if standIn() != "" {
		return // nobody else looks
	}
	cases := []struct {
		master maker
		name   string
		make   func(t *testing.T, s *site, book *ledger, master *node)
		says   string
	}{
		{tandemMade, "another history", anotherHistory, "histor"},
		{tandemMade, "longer than the master", shorterLog, "longer than the master"},
		{tandemMade, "below the oldest", withoutOldest, "oldest is"},
		{"5.5.0", "another history", anotherHistory, "histor"},
		{"5.5.0", "longer than the master", shorterLog, "longer than the master"},
		{"4.9.7", "another history", anotherHistory, "histor"},
		{"4.9.7", "below the oldest", withoutOldest, "oldest is"},
	}
	for _, c := range cases {
		t.Run(string(c.master)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			if c.master.apache() != "" {
				needApache(t)
			}
			testMisfit(t, c.master, c.make, c.says)
		})
	}
}

func testMisfit(t *testing.T, masterMaker maker, make func(*testing.T, *site, *ledger, *node), says string) {
	s := newSite(t, tandemMade)
	small := map[string]string{"mappedFileSizeCommitLog": segment1M}
	master := s.master(masterMaker, "SYNC_MASTER", small)
	s.wire.createTopic(t, master.addr, topic, queues)
	slave := s.slave(tandemMade, 1, small)
	book := newLedger()
	s.joined(book, master, topic)
	fill(t, s.wire, book, master.addr, topic, queues, 100, 30<<10)
	s.caughtUp(master, slave)
	slave.stop()
	before := readAll(t, filepath.Join(slave.store, "commitlog"))

	make(t, s, book, master)
	slave.start()
	var text string
	eventually(t, patience, func() bool {
		text, _ = tandem(t, "status", "-b", slave.addr, "--json")
		return strings.Contains(strings.ToLower(text), "refused")
	}, "the slave's status says that it refuses")
	require.Contains(t, text, says, "it says why")
	if masterMaker == tandemMade {
		requireRefusalShown(t, master)
	}
	got := s.wire.send(master.addr, message{Topic: topic, ID: "refused", Body: []byte("x")})
	require.NoError(t, got.Err)
	require.NotEqual(t, codec.Success, got.Code, "a slave that refuses counts for nothing: %v", got)
	slave.stop()
	require.Equal(t, before, readAll(t, filepath.Join(slave.store, "commitlog")), "the slave's files are as they were")

	require.NoError(t, os.RemoveAll(slave.store))
	slave.start()
	s.joined(book, master, topic)
	s.caughtUp(master, slave)
}

// requireRefusalShown waits until the master's status tells of it too.
func requireRefusalShown(t testing.TB, master *node) {
	t.Helper()
	var status struct {
		Master struct {
			Refused int `json:"refused"`
		} `json:"master"`
	}
	eventually(t, patience, func() bool {
		text, _ := tandem(t, "status", "-b", master.addr, "--json")
		return json.Unmarshal([]byte(text), &status) == nil && status.Master.Refused > 0
	}, "the master's status shows that a slave does not fit")
}

func anotherHistory(t *testing.T, s *site, _ *ledger, master *node) {
	startEmpty(t, s, master)
	fillUnreplicated(t, s.wire, newLedger(), master, 150)
}

func shorterLog(t *testing.T, s *site, _ *ledger, master *node) {
	startEmpty(t, s, master)
	fillUnreplicated(t, s.wire, newLedger(), master, 3)
}

func startEmpty(t *testing.T, s *site, master *node) {
	t.Helper()
	master.stop()
	require.NoError(t, os.RemoveAll(master.store))
	master.start()
	s.wire.createTopic(t, master.addr, topic, queues)
}

// withoutOldest lets the master's log grow and takes away the segments that the slave has, as retention does.
func withoutOldest(t *testing.T, s *site, book *ledger, master *node) {
	end := s.wire.logEnd(master.addr)
	fillUnreplicated(t, s.wire, book, master, 150)
	master.stop()
	l, err := openLog(master.store)
	require.NoError(t, err)
	for _, base := range l.bases {
		if base <= end {
			require.NoError(t, os.Remove(filepath.Join(l.dir, padded(base))))
		}
	}
	master.start()
}

// TestOldestSegmentOfAShortenedLogIsJoined lets our slave ask for the whole of a log whose first segments are gone.
func TestOldestSegmentOfAShortenedLogIsJoined(t *testing.T) {
	for _, m := range []maker{ours(), "5.5.0", "4.9.7"} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			if m.apache() != "" {
				needApache(t)
			}
			s := newSite(t, ours())
			small := map[string]string{"mappedFileSizeCommitLog": segment1M}
			master := s.master(m, "SYNC_MASTER", small)
			s.wire.createTopic(t, master.addr, topic, queues)
			book := newLedger()
			withoutOldest(t, s, book, master)
			first := logFirst(t, master.store)
			require.Positive(t, first)
			slave := s.slave(ours(), 1, small, joinFrom(ours(), "oldest"))
			s.joined(book, master, topic)
			s.caughtUp(master, slave)
			slave.stop()
			master.stop()
			if ours() == tandemMade {
				require.Equal(t, first, logFirst(t, slave.store), "the slave has all that the master has")
			}
			requireSameLogs(t, master.store, slave.store, logFirst(t, slave.store))
		})
	}
}
