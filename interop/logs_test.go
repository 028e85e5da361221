package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// logDir is a store's commit log, read from its files: what a test compares, apart from any process.
type logDir struct {
	dir   string
	bases []int64 // first offset of each segment, ascending
	size  int64   // length of a segment
}

func openLog(store string) (logDir, error) {
	l := logDir{dir: filepath.Join(store, "commitlog")}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		base, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || len(e.Name()) != 20 {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return l, err
		}
		if l.size != 0 && info.Size() != l.size {
			return l, fmt.Errorf("%s is %d bytes long, the others %d", e.Name(), info.Size(), l.size)
		}
		l.bases, l.size = append(l.bases, base), info.Size()
	}
	sort.Slice(l.bases, func(i, j int) bool { return l.bases[i] < l.bases[j] })
	for i := 1; i < len(l.bases); i++ {
		if l.bases[i] != l.bases[i-1]+l.size {
			return l, fmt.Errorf("%s: a segment is missing between %d and %d", l.dir, l.bases[i-1], l.bases[i])
		}
	}
	return l, nil
}

func (l logDir) segment(base int64) ([]byte, error) {
	return os.ReadFile(filepath.Join(l.dir, padded(base)))
}

// padded is the name of the segment that begins at the offset.
func padded(base int64) string { return fmt.Sprintf("%020d", base) }

// piece is a whole record, or the 8-byte head of the filler that ends a segment.
type piece struct {
	offset int64
	bytes  []byte
	record *codec.Record // nil for a filler
}

// walk hands out each piece in order and returns the offset after the last one. A log that starts inside a segment (a slave's whose
// first bytes were never sent) is refused: no store begins like that.
func (l logDir) walk(each func(piece) error) (end int64, err error) {
	for _, base := range l.bases {
		seg, err := l.segment(base)
		if err != nil {
			return end, err
		}
		used, full, err := walkSegment(base, seg, each)
		end = base + used
		if err != nil || !full {
			return end, err
		}
	}
	return end, nil
}

func walkSegment(base int64, seg []byte, each func(piece) error) (used int64, full bool, err error) {
	for used < int64(len(seg)) {
		var r codec.Record
		n, err := r.Decode(seg[used:])
		switch {
		case err == nil:
			if r.PhysicalOffset != base+used {
				return used, false, nil // an older log's bytes
			}
			if err := each(piece{base + used, seg[used : used+int64(n)], &r}); err != nil {
				return used, false, err
			}
		case errors.Is(err, codec.ErrRecordBlank):
			if err := each(piece{base + used, seg[used : used+8], nil}); err != nil {
				return used, false, err
			}
			return int64(len(seg)), true, nil
		default:
			return used, false, nil
		}
		used += int64(n)
	}
	return used, true, nil
}

// span is the range a log's files hold, by its own records.
func (l logDir) span() (first, end int64, err error) {
	if len(l.bases) == 0 {
		return 0, 0, fmt.Errorf("%s: no segments", l.dir)
	}
	end, err = l.walk(func(piece) error { return nil })
	return l.bases[0], end, err
}

// sameLogs compares two stores record by record, byte by byte, over the range both hold; their ends must be equal and the range
// must reach back to at least from. What lies in the rest of a filler has no meaning and is not looked at.
func sameLogs(a, b string, from int64) error {
	la, err := openLog(a)
	if err != nil {
		return err
	}
	lb, err := openLog(b)
	if err != nil {
		return err
	}
	firstA, endA, err := la.span()
	if err != nil {
		return err
	}
	firstB, endB, err := lb.span()
	if err != nil {
		return err
	}
	if endA != endB {
		return fmt.Errorf("%s ends at %d, %s at %d", a, endA, b, endB)
	}
	first := max(firstA, firstB)
	if first > from {
		return fmt.Errorf("both stores hold only %d…%d, wanted from %d on", first, endA, from)
	}
	if la.size != lb.size {
		return fmt.Errorf("segments of %d and %d bytes", la.size, lb.size)
	}
	return compareFrom(la, lb, first)
}

func compareFrom(la, lb logDir, first int64) error {
	la.bases = la.bases[indexOf(la.bases, first):]
	var other []byte
	otherBase := int64(-1)
	_, err := la.walk(func(p piece) error {
		base := p.offset - p.offset%la.size
		if base != otherBase {
			seg, err := lb.segment(base)
			if err != nil {
				return err
			}
			other, otherBase = seg, base
		}
		at := p.offset - base
		if theirs := other[at : at+int64(len(p.bytes))]; !bytes.Equal(p.bytes, theirs) {
			return fmt.Errorf("%s and %s differ in the %d bytes at offset %d", la.dir, lb.dir, len(p.bytes), p.offset)
		}
		return nil
	})
	return err
}

func indexOf(bases []int64, base int64) int {
	return sort.Search(len(bases), func(i int) bool { return bases[i] >= base })
}

// requireSameLogs is sameLogs, and asks `tandem store diff` as well when the stores can be read by it: both must agree.
func requireSameLogs(t testing.TB, a, b string, from int64) {
	t.Helper()
	require.NoError(t, sameLogs(a, b, from))
	if standIn() != "" {
		return
	}
	out, status := tandem(t, "store", "diff", a, b)
	require.Equal(t, 0, status, "tandem store diff %s %s: %s", a, b, out)
	require.Contains(t, out, "identical")
}

// logFirst is where a store's log begins.
func logFirst(t testing.TB, store string) int64 {
	t.Helper()
	l, err := openLog(store)
	require.NoError(t, err)
	require.NotEmpty(t, l.bases, "no segments in %s", store)
	return l.bases[0]
}
