package interop

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogsAreIdenticalAfterVolume sends many messages, one in a hundred of up to 1 MiB and the others of up to 4 KiB, over 16 MiB
// segments, in each pairing of makers: every send must be acknowledged by master and slave, and the logs must be the same.
func TestLogsAreIdenticalAfterVolume(t *testing.T) {
	pairings := []struct {
		name          string
		master, slave maker
	}{
		{"ours to ours", ours(), ours()},
		{"ours to 5.5.0", ours(), "5.5.0"},
		{"5.5.0 to ours", "5.5.0", ours()},
		{"ours to 4.9.7", ours(), "4.9.7"},
		{"4.9.7 to ours", "4.9.7", ours()},
	}
	for _, p := range pairings {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.master.apache() != "" || p.slave.apache() != "" {
				needApache(t)
			}
			testVolume(t, p.master, p.slave)
		})
	}
}

func testVolume(t *testing.T, masterMaker, slaveMaker maker) {
	s := newSite(t, ours())
	master := s.master(masterMaker, "SYNC_MASTER")
	s.wire.createTopic(t, master.addr, topic, queues)
	slave := s.slave(slaveMaker, 1)
	book := newLedger()
	s.joined(book, master, topic)

	count := number(t, envVolume, 4000)
	run := startLoad(s.wire, book, master.addr, topic, loadOptions{queues: queues, senders: 32, count: count, sizes: volumeSizes})
	run.wait()
	require.Empty(t, run.refused(), "sends that were not acknowledged")
	s.caughtUp(master, slave)
	slave.stop()
	master.stop()
	requireSameLogs(t, master.store, slave.store, 0)
	require.NoError(t, readWholeLog(slave.store, book))
}

func volumeSizes(r *rand.Rand) int {
	if r.Intn(100) == 0 {
		return 1 + r.Intn(1<<20)
	}
	return 1 + r.Intn(4<<10)
}
