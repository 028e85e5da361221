package interop

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClientsOutliveTheMaster lets each client produce to and consume from a sync pair, kills the master while a part is still
// unread, and has the running consumers, and new Java ones of groups nobody has seen, read the rest from the slave.
func TestClientsOutliveTheMaster(t *testing.T) {
	nameServers := map[string]maker{"at our name server": ours(), "at Apache's name server": "5.5.0"}
	for name, namesrv := range nameServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needApache(t)
			testClientsOutliveTheMaster(t, namesrv)
		})
	}
}

// guest is one client with a topic of its own.
type guest struct {
	client  string
	topic   string
	reader  program
	written map[string]uint32
}

func testClientsOutliveTheMaster(t *testing.T, namesrv maker) {
	s := newSite(t, namesrv)
	master := s.master(ours(), "SYNC_MASTER")
	slave := s.slave(ours(), 1)
	s.wire.createTopic(t, master.addr, topic, queues)
	book := newLedger()
	s.joined(book, master, topic)

	guests := []*guest{{client: "5.5.0"}, {client: "4.9.7"}, {client: goClient}}
	each(t, guests, func(g *guest) {
		g.topic = "Topic-" + strings.ReplaceAll(g.client, ".", "-")
		s.wire.createTopic(t, master.addr, g.topic, queues)
		g.written = s.produce(g.client, g.topic, 30, 1000)
		g.reader = s.program(g.client, "Consume", "topic="+g.topic, "group=readers-"+g.topic, "count=100", "seconds=240", "poll=1000")
	})
	each(t, guests, func(g *guest) { requireConsumed(t, g.reader, g.written, g.client+" before the kill") })

	special := s.produce("5.5.0", guests[0].topic, 12, 500, "batch=4", "tags=Special")
	lite := s.program("5.5.0", "Consume", "mode=lite", "topic="+guests[0].topic, "group=lite-readers", "sub=Special||Missing", "count=12")
	requireConsumed(t, lite, special, "the lite pull consumer, of one tag, sent in batches")
	maps.Copy(guests[0].written, special)

	for _, g := range guests {
		pause(t, g.reader.Process)
	}
	each(t, guests, func(g *guest) { maps.Copy(g.written, s.produce(g.client, g.topic, 30, 6000)) })
	s.caughtUp(master, slave)
	master.kill()
	for _, g := range guests {
		require.NoError(t, g.reader.Resume())
	}
	each(t, guests, func(g *guest) {
		if g.client == goClient { // a new one cannot start: it asks only a master for its offsets, whatever the route holds
			requireConsumed(t, g.reader, g.written, "the Go client running on after the kill")
			return
		}
		fresh := s.program(g.client, "Consume", "topic="+g.topic, "group=late-"+g.topic, fmt.Sprintf("count=%d", len(g.written)), "seconds=240", "poll=1000")
		requireConsumed(t, g.reader, g.written, g.client+" running on after the kill")
		requireConsumed(t, fresh, g.written, g.client+" started after the kill")
	})
}

// each does something for all guests at once, and ends the test if it failed for one.
func each(t testing.TB, guests []*guest, do func(*guest)) {
	t.Helper()
	var all sync.WaitGroup
	for _, g := range guests {
		all.Go(func() { do(g) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
