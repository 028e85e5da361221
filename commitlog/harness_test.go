package commitlog

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/codec"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		runChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// testOptions are small files and a clock that goes on by itself.
func testOptions(dir string) Options {
	var clock atomic.Int64
	clock.Store(1_700_000_000_000)
	return Options{
		RootDir: dir, SegmentSize: 16384, ConsumeQueueUnits: 50,
		FlushInterval: 5 * time.Millisecond, QueueFlushInterval: 10 * time.Millisecond, QueueFlushThorough: 200 * time.Millisecond,
		Now: func() int64 { return clock.Add(7) },
	}
}

// openTest opens a store that is closed, and found in order, at the end of the test.
func openTest(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if s.closed.Load() {
			return
		}
		require.NoError(t, s.Close())
		requireSound(t, o)
	})
	return s
}

// closeTest closes a store and looks at what it left.
func closeTest(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.Close())
	require.NoFileExists(t, s.abortPath())
	requireSound(t, s.opt)
}

// requireSound checks that every record is right and has its unit, and nothing else is there.
func requireSound(t testing.TB, o Options) {
	t.Helper()
	if entries, err := os.ReadDir(filepath.Join(o.RootDir, "commitlog")); err != nil || len(entries) == 0 {
		return
	}
	r, err := Verify(o.RootDir, nil)
	require.NoError(t, err)
	require.Empty(t, r.Problems[:min(3, len(r.Problems))])
}

type message struct {
	topic string
	queue int32
	body  string
	tag   string
	props string
	sys   int32
	v6    bool
}

func (m message) encode() []byte {
	r := codec.Record{QueueID: m.queue, SysFlag: m.sys, BornHost: testHost, StoreHost: testHost, Body: []byte(m.body), Topic: []byte(m.topic)}
	if m.v6 {
		r.BornHost = netip.MustParseAddrPort("[::1]:5")
	}
	props := []byte(m.props)
	if m.tag != "" {
		props = codec.AppendProperty(props, "TAGS", m.tag)
	}
	r.Properties = props
	return r.Append(nil)
}

// put stores one message and returns the item.
func put(t testing.TB, s *Store, m message) *Append {
	t.Helper()
	a := item(s, m)
	s.Append([]*Append{a}, nil)
	require.NoError(t, a.Err)
	return a
}

func item(s *Store, m message) *Append {
	a := &Append{Bytes: m.encode(), Count: 1}
	if takesQueueEntry(m.sys) {
		a.Queue = s.Queue(m.topic, m.queue)
	}
	return a
}

// noted says of an item what a caller may say who has just encoded its message.
func noted(a *Append, m message) *Append {
	a.TagsKnown, a.TagsCode = true, codec.TagsCode([]byte(m.tag))
	return a
}

func putMany(t testing.TB, s *Store, topic string, n int) []*Append {
	t.Helper()
	var l []*Append
	for i := range n {
		l = append(l, put(t, s, message{topic: topic, queue: int32(i % 3), body: fmt.Sprintf("message %d %s", i, strings.Repeat("x", i*37%400)), tag: "TagA"}))
	}
	return l
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func waitDispatched(t testing.TB, s *Store) {
	t.Helper()
	waitFor(t, "dispatch", func() bool { return s.Dispatched() == s.End() })
}

// readQueue returns all messages of a queue, through its units.
func readQueue(t testing.TB, q *Queue) []codec.Record {
	t.Helper()
	var l []codec.Record
	units := make([]Unit, 7)
	for n := q.MinOffset(); n < q.MaxOffset(); {
		k, err := q.Read(n, units)
		require.NoError(t, err)
		require.Positive(t, k)
		for i, u := range units[:k] {
			if u.Filler() {
				continue
			}
			sl, err := q.s.RecordAt(u.Offset)
			require.NoError(t, err, "queue %s/%d number %d", q.topic, q.id, n+int64(i))
			require.Len(t, sl.Bytes, int(u.Size))
			var r codec.Record
			_, err = r.Decode(append([]byte(nil), sl.Bytes...))
			require.NoError(t, err)
			sl.Release()
			require.Equal(t, n+int64(i), r.QueueOffset)
			require.Equal(t, q.topic, string(r.Topic))
			require.Equal(t, q.id, r.QueueID)
			l = append(l, r)
		}
		n += int64(k)
	}
	return l
}

// tempDir is in memory where the machine has such a place: most tests sync often and do not care where.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "commitlog-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// copyDir copies a tree, holes and all.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	out, err := exec.Command("cp", "-r", "--sparse=always", from+"/.", to).CombinedOutput()
	require.NoError(t, err, string(out))
}

// crashCopy is what a kill -9 leaves: the files as they are now, the mark of an unclean stop included.
func crashCopy(t testing.TB, s *Store) string {
	t.Helper()
	dir := tempDir(t)
	copyDir(t, s.root, dir)
	return dir
}

func withDir(o Options, dir string) Options {
	o.RootDir, o.CommitLogDir = dir, ""
	return o
}

// files reads all files below a directory that match a pattern, by name relative to it.
func files(t testing.TB, dir, sub string) map[string]string {
	t.Helper()
	m := make(map[string]string)
	root := filepath.Join(dir, sub)
	require.NoError(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(root, p)
		m[rel] = string(b)
		return err
	}))
	return m
}
