package interop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
)

// TestStoresChangeHands lets ours, Apache's and again our broker run in turns over one store directory, ending each in an orderly
// way or by SIGKILL: every message stays readable, queue numbers go on without a hole, and offsets and topics are kept.
func TestStoresChangeHands(t *testing.T) {
	for _, version := range versions {
		for _, ending := range []string{"stopped", "killed"} {
			t.Run(version+"/"+ending, func(t *testing.T) {
				t.Parallel()
				needApache(t)
				testStoresChangeHands(t, maker(version), ending)
			})
		}
	}
}

func testStoresChangeHands(t *testing.T, other maker, ending string) {
	s := newSite(t, ours())
	n := s.newNode(ours(), "broker", cluster.Conf{"brokerId": "0", "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": segment1M})
	book := newLedger()
	for turn, m := range []maker{ours(), other, ours(), other} {
		n.maker = m
		n.start()
		if turn == 0 {
			seed(t, s.wire, n)
		}
		requireDrained(t, s.wire, book, n.addr, topic, queues)
		fill(t, s.wire, book, n.addr, topic, queues, 150, 16<<10)
		requireDrained(t, s.wire, book, n.addr, topic, queues)
		requireHandedOver(t, s, n, turn, ending)
	}
	requireSeveralSegments(t, n)
	require.NoError(t, readWholeLog(n.store, book))
}

// requireHandedOver ends the broker after looking at the metadata it took over; offsets are on disk for sure only after an
// orderly stop, or once the file has them.
func requireHandedOver(t testing.TB, s *site, n *node, turn int, ending string) {
	t.Helper()
	require.Contains(t, n.config("topics.json"), `"`+topic+`"`)
	at, err := s.wire.committed(n.addr, group, topic, 1)
	require.NoError(t, err)
	require.Equal(t, int64(7+turn), at, "the offset that the last owner kept")
	s.wire.commitOffset(t, n.addr, group, topic, 1, int64(7+turn+1))
	if ending == "stopped" {
		n.stop()
		return
	}
	eventually(t, patience, func() bool {
		return offsetIn(n.config("consumerOffset.json"), topic+"@"+group, 1) == int64(7+turn+1)
	}, "%s writes consumer offsets", n.name)
	n.kill()
}

// readWholeLog holds the records in the files against the ledger.
func readWholeLog(store string, book *ledger) error {
	l, err := openLog(store)
	if err != nil {
		return err
	}
	var all []got
	_, err = l.walk(func(p piece) error {
		if p.record != nil && string(p.record.Topic) == topic {
			all = append(all, gotOf(p.record))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return book.check(all)
}
