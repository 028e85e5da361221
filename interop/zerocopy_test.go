package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
	"tandem/codec"
)

// traced starts a master under a tracer and gives what reads the findings, once, after it was stopped.
func (s *site) traced(role string) (*node, func() findings) {
	s.t.Helper()
	n := s.newNode(tandemMade, "master", cluster.Conf{"brokerId": "0", "brokerRole": role})
	out := filepath.Join(s.dir, "findings.json")
	spec := n.spec()
	spec.Args = []string{
		"command=" + strings.Join(append([]string{spec.Path}, spec.Args...), "\n"), "log=" + filepath.Join(n.store, "commitlog"),
		"ha=" + n.conf["haListenPort"], "clients=" + n.conf["listenPort"], "out=" + out,
	}
	spec.Path, spec.Env = os.Args[0], append(spec.Env, envHelper+"=Trace")
	n.proc = s.run(spec)
	return n, func() (f findings) {
		text, err := os.ReadFile(out)
		require.NoError(s.t, err)
		require.NoError(s.t, json.Unmarshal(text, &f))
		require.Empty(s.t, f.Error, "the tracer")
		return f
	}
}

// TestNoBodyIsCopiedByTheMaster runs a master under a tracer of system calls: what a slave gets, of a long log that it fetches and of messages
// as they come, leaves by sendfile from a segment or from inside its mapping, and what a consumer pulls from the mapping. The process itself reads no
// byte of the log, and gives of its own memory headers only.
func TestNoBodyIsCopiedByTheMaster(t *testing.T) {
	t.Parallel()
	const (
		backlog = 64 << 20
		large   = 512 << 10
		small   = 8 << 10
		pulls   = 4
	)
	s := newSite(t, tandemMade)
	master, found := s.traced("SYNC_MASTER")
	s.wire.createTopic(t, master.addr, topic, 1)
	for i := range backlog/large + 1 {
		answer := s.wire.send(master.addr, message{Topic: topic, ID: "backlog-" + strconv.Itoa(i), Body: make([]byte, large)})
		require.NoError(t, answer.Err)
		require.Equal(t, codec.SlaveNotAvailable, answer.Code, answer.Remark)
	}
	slave := s.slave(tandemMade, 1, cluster.Conf{"haJoinFrom": "oldest"})
	s.caughtUp(master, slave)
	book := newLedger()
	s.joined(book, master, topic)
	from := int64(backlog/large + 1 + book.count())
	for i := range 32 * pulls {
		answer := book.send(s.wire, master.addr, message{Topic: topic, ID: "sync-" + strconv.Itoa(i), Body: make([]byte, small)})
		require.NoError(t, answer.Err)
		require.Equal(t, codec.Success, answer.Code, answer.Remark)
	}
	pulled := int64(0)
	for n := 0; n < 32*pulls; {
		answer, err := s.wire.pull(master.addr, "G", topic, 0, from+int64(n), 10*time.Second)
		require.NoError(t, err)
		require.Equal(t, codec.Success, answer.Code, answer.Remark)
		n += len(answer.Messages)
		pulled += int64(len(answer.Messages)) * small
	}
	end := s.wire.logEnd(master.addr)
	slave.stop()
	master.stop()

	f := found()
	t.Logf("%d stops; replication %+v; clients %+v", f.Stops, f.HA, f.Clients)
	require.Empty(t, f.LogReads, "reads of a segment into memory")
	require.Empty(t, f.HA.Foreign)
	require.Empty(t, f.Clients.Foreign)
	require.GreaterOrEqual(t, f.HA.File+f.HA.Mapped, end-1, "bytes of the log that left on their own feet")
	require.NotZero(t, f.HA.File, "a long log leaves by sendfile")
	require.GreaterOrEqual(t, f.HA.Mapped, int64(32*pulls*small), "messages leave from the mapping as they come")
	require.LessOrEqual(t, f.HA.LargestOwn, int64(codec.HAHeaderSize), "of the process's own memory a frame has its header alone")
	require.GreaterOrEqual(t, f.Clients.Mapped, pulled, "bodies that a consumer got")
	require.Less(t, f.Clients.Own, f.Clients.Mapped, "headers and answers without messages")
}
