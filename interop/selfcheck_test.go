package interop

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// The tests of this folder are only worth what their own eyes are worth: here those are shown to see.

const toySegment = 4096

// toyStore writes a log of n records over small segments, the way a broker does.
func toyStore(t *testing.T, n int) (store string, book *ledger) {
	t.Helper()
	store, book = t.TempDir(), newLedger()
	require.NoError(t, os.MkdirAll(filepath.Join(store, "commitlog"), 0o755))
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	var log []byte
	for i := range n {
		m := message{Topic: topic, ID: fmt.Sprintf("toy-%d", i), Body: body(newRand(int64(i)), 300)}
		book.trying(m)
		book.answered(m, sent{})
		r := codec.Record{Magic: codec.MagicV1, QueueOffset: int64(i), BornHost: host, StoreHost: host, Topic: []byte(topic),
			Body: m.Body, Properties: []byte(properties(m))}
		if left := toySegment - len(log)%toySegment; r.Size()+8 > left {
			blank := make([]byte, left)
			copy(blank, codec.AppendBlank(nil, left))
			log = append(log, blank...)
		}
		r.PhysicalOffset = int64(len(log))
		log = r.Append(log)
	}
	writeToy(t, store, log)
	return store, book
}

func writeToy(t *testing.T, store string, log []byte) {
	t.Helper()
	log = append(log, make([]byte, toySegment-len(log)%toySegment)...)
	for base := 0; base < len(log); base += toySegment {
		require.NoError(t, os.WriteFile(toyFile(store, base), log[base:base+toySegment], 0o644))
	}
}

func toyFile(store string, base int) string {
	return filepath.Join(store, "commitlog", fmt.Sprintf("%020d", base))
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	b[at] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o644))
}

func TestComparisonOfLogsSeesDifferences(t *testing.T) {
	a, _ := toyStore(t, 40)
	b, book := toyStore(t, 40)
	require.NoError(t, sameLogs(a, b, 0))
	require.NoError(t, readWholeLog(b, book))

	flip(t, toyFile(b, 2*toySegment), 60) // a host's byte: no checksum covers it
	require.ErrorContains(t, sameLogs(a, b, 0), "differ")
	flip(t, toyFile(b, 2*toySegment), 60)

	flip(t, toyFile(b, toySegment), 100) // a body's byte: the log ends before it
	require.ErrorContains(t, sameLogs(a, b, 0), "ends at")
	flip(t, toyFile(b, toySegment), 100)

	short, _ := toyStore(t, 39)
	require.ErrorContains(t, sameLogs(a, short, 0), "ends at")
	require.ErrorContains(t, readWholeLog(short, book), "1 of 40 acknowledged messages are gone")

	require.NoError(t, os.Remove(toyFile(b, 0)))
	require.ErrorContains(t, sameLogs(a, b, 0), "wanted from 0")
	require.NoError(t, sameLogs(a, b, toySegment))
	require.NoError(t, os.Remove(toyFile(b, 2*toySegment)))
	require.ErrorContains(t, sameLogs(a, b, toySegment), "missing")
}

func TestLedgerSeesWhatIsWrong(t *testing.T) {
	book := newLedger()
	one, two := message{ID: "one", Body: []byte("1")}, message{ID: "two", Body: []byte("2")}
	for _, m := range []message{one, two} {
		book.trying(m)
	}
	book.answered(one, sent{Code: codec.Success})
	book.answered(two, sent{Code: codec.FlushSlaveTimeout})
	asRead := func(m message) got { return got{ID: m.ID, Sum: crc32.ChecksumIEEE(m.Body)} }

	require.NoError(t, book.check([]got{asRead(one)}), "what was not acknowledged may be missing")
	require.NoError(t, book.check([]got{asRead(one), asRead(two)}), "or be there")
	require.ErrorContains(t, book.check([]got{asRead(two)}), "gone")
	require.ErrorContains(t, book.check([]got{asRead(one), asRead(one)}), "2 times")
	require.ErrorContains(t, book.check([]got{{ID: "one", Sum: 7}}), "another body")
	require.ErrorContains(t, book.check([]got{asRead(one), {ID: "three"}}), "never sent")
}
