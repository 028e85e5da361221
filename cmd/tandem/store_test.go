package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/commitlog"
)

// makeStore writes a store with a message of each body and closes it.
func makeStore(t *testing.T, bodies ...string) string {
	t.Helper()
	dir := t.TempDir()
	s, err := commitlog.Open(commitlog.Options{RootDir: dir, SegmentSize: 64 << 10, ConsumeQueueUnits: 100})
	require.NoError(t, err)
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	for _, body := range bodies {
		record := codec.Record{Topic: []byte("T"), Body: []byte(body), BornHost: host, StoreHost: host,
			Properties: codec.AppendProperty(nil, "TAGS", "a")}
		a := &commitlog.Append{Bytes: record.Append(nil), Queue: s.Queue("T", 0), Count: 1}
		s.Append([]*commitlog.Append{a}, nil)
		require.NoError(t, a.Err)
	}
	require.NoError(t, s.Close())
	return dir
}

func copyStore(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// damage changes text in the first segment.
func damage(t *testing.T, dir, from, to string) {
	t.Helper()
	segment := filepath.Join(dir, "commitlog", strings.Repeat("0", 20))
	b, err := os.ReadFile(segment)
	require.NoError(t, err)
	require.Contains(t, string(b), from)
	require.NoError(t, os.WriteFile(segment, []byte(strings.Replace(string(b), from, to, 1)), 0o644))
}

func TestVerifyOfASoundStoreHoldsAndOfADamagedOneDoesNot(t *testing.T) {
	dir := makeStore(t, "first", "second")
	r := tandem(t, "store", "verify", dir)
	require.Equal(t, statusHolds, r.status, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "2 records")
	require.Empty(t, r.stderr)

	damage(t, dir, "second", "sXcond")
	r = tandem(t, "store", "verify", dir)
	require.Equal(t, statusFails, r.status)
	require.Contains(t, r.stdout, strings.Repeat("0", 20), "what is wrong is named with its file")
	require.Empty(t, r.stderr, "the findings are the result, not an error")
}

func TestDiffIsIdenticalOnlyForEqualBytesAndEnds(t *testing.T) {
	dir := makeStore(t, "first", "second")
	same, changed := copyStore(t, dir), copyStore(t, dir)
	r := tandem(t, "store", "diff", dir, same)
	require.Equal(t, statusHolds, r.status, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "identical")

	damage(t, changed, "second", "sXcond")
	r = tandem(t, "store", "diff", dir, changed)
	require.Equal(t, statusFails, r.status)
	require.NotContains(t, r.stdout, "identical")
	require.Contains(t, r.stdout, "different")
	require.Empty(t, r.stderr)

	longer := makeStore(t, "first", "second", "third")
	r = tandem(t, "store", "diff", makeStore(t), longer)
	require.Equal(t, statusFails, r.status, "one that holds nothing is not identical")
	require.NotContains(t, r.stdout, "identical")
}

func TestDumpPrintsEveryRecordAsALineOfJSON(t *testing.T) {
	dir := makeStore(t, "first", "second")
	r := tandem(t, "store", "dump", dir)
	require.Equal(t, statusHolds, r.status, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 2)
	var second dumpedRecord
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &second))
	require.Equal(t, "second", string(second.Body))
	require.EqualValues(t, 1, second.QueueOffset)
	require.Equal(t, "T", second.Topic)
	require.Equal(t, "127.0.0.1:10911", second.StoreHost)
	require.Equal(t, map[string]string{"TAGS": "a"}, second.Properties)
	require.Equal(t, codec.MessageID(netip.MustParseAddrPort("127.0.0.1:10911"), second.Offset), second.MessageID)

	require.NotContains(t, tandem(t, "store", "dump", dir, "--noBody").stdout, `"body"`)
	require.Empty(t, tandem(t, "store", "dump", dir, "--topic=U").stdout)

	damage(t, dir, "second", "sXcond")
	r = tandem(t, "store", "dump", dir)
	require.Equal(t, statusFails, r.status)
	require.Contains(t, r.stdout, `"offset":0`, "what can be read is printed")
	require.Contains(t, r.stderr, "tandem store dump: ")
}
