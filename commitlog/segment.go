package commitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	mmap "github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

const segmentNameLen = 20

// segmentName is a segment's or queue file's name: its first byte's position, 20 digits.
func segmentName(base int64) string { return fmt.Sprintf("%020d", base) }

// parseSegmentName undoes segmentName.
func parseSegmentName(name string) (int64, bool) {
	if len(name) != segmentNameLen {
		return 0, false
	}
	var n int64
	for _, c := range []byte(name) {
		if c < '0' || c > '9' || n > (1<<63-1-9)/10 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// segment is one file of the log, mapped when first used. It is reference counted: the segment table holds one
// reference, each reader, sender or writer one more; the last release unmaps it and closes the file.
type segment struct {
	base, size int64
	path       string
	file       File
	refs       atomic.Int64
	mem        atomic.Pointer[mmap.MMap]
	used       atomic.Bool // since the last look for idle ones
	mu         sync.Mutex  // of mapping
	writable   bool        // whether mem may be written; under mu until published
}

func newSegment(dir string, base, size int64, f File) *segment {
	g := &segment{base: base, size: size, path: filepath.Join(dir, segmentName(base)), file: f}
	g.refs.Store(1)
	return g
}

func (g *segment) end() int64 { return g.base + g.size }

// pin takes a reference; false if the segment is already gone.
func (g *segment) pin() bool {
	for {
		n := g.refs.Load()
		if n <= 0 {
			return false
		}
		if g.refs.CompareAndSwap(n, n+1) {
			if !g.used.Load() {
				g.used.Store(true)
			}
			return true
		}
	}
}

func (g *segment) unpin() {
	n := g.refs.Add(-1)
	if n < 0 {
		panic("commitlog: segment released more often than held: " + g.path)
	}
	if n == 0 {
		g.free()
	}
}

func (g *segment) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.mem.Swap(nil); m != nil {
		_ = m.Unmap()
	}
	_ = g.file.Close()
}

// bytes is the whole mapping; the caller holds a reference.
func (g *segment) bytes() ([]byte, error) {
	if m := g.mem.Load(); m != nil {
		return *m, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.mem.Load(); m != nil {
		return *m, nil
	}
	m, err := g.file.Map(g.size, g.writable)
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w", g.path, err)
	}
	g.mem.Store(&m)
	return m, nil
}

// makeWritable gives a segment that was only read so far its disk space and a writable mapping. It must not be called
// while others hold the segment's bytes; recovery and the single writer see to that by replacing the whole segment.
func (g *segment) makeWritable() error {
	if err := allocate(g.file, g.size); err != nil {
		return err
	}
	g.mu.Lock()
	g.writable = true
	g.mu.Unlock()
	_, err := g.bytes()
	if err == nil {
		g.advise(unix.MADV_RANDOM)
	}
	return err
}

// sync makes bytes [from, to) durable; the caller holds a reference.
func (g *segment) sync(from, to int64) error {
	if m := g.mem.Load(); m != nil {
		return g.file.DatasyncRange(*m, from, to)
	}
	return g.file.Datasync() // never touched here
}

// unmapLeast is for how many bytes it is worth while to take their pages out of the mapping before they are written.
const unmapLeast = 64 << 10

// unmapPages takes the whole pages of bytes [from, to) out of the mapping, all at once; who reads them gets them back from memory. The
// kernel would otherwise protect each against writing, with an interrupt of all processors for every piece, before it sends it to the
// disk: a quarter of the processor time of a slave that catches up.
func (g *segment) unmapPages(from, to int64) {
	from += (pageSize - from%pageSize) % pageSize
	to -= to % pageSize
	if m := g.mem.Load(); m != nil && to-from >= unmapLeast {
		_ = unix.Madvise((*m)[from:to], unix.MADV_DONTNEED) // without it, it is only slower
	}
}

// advise tells the kernel how the mapping, if there is one, will be used. A segment being written gets MADV_RANDOM: otherwise the first
// touch of a page that is not in memory brings in, and clears, megabytes around it.
func (g *segment) advise(advice int) {
	if m := g.mem.Load(); m != nil {
		_ = unix.Madvise(*m, advice) // without it, it is only slower
	}
}

// allocate gives a file its disk space, by writing zeros over its holes where the file system knows no other way.
func allocate(f File, size int64) error {
	err := f.Allocate(size)
	if err == nil || !isUnsupported(err) {
		return err
	}
	have, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, zeroChunk)
	for at := have; at < size; at += zeroChunk {
		if _, err := f.WriteAt(zeros[:min(zeroChunk, size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// createSegment makes the file of a new segment: nothing of it is to be seen in the directory before it has its full
// length and all its disk space, and after that it is durable.
func createSegment(fs FS, dir string, base, size int64) (*segment, error) {
	name := filepath.Join(dir, segmentName(base))
	f, err := fs.CreateUnnamed(dir)
	if err != nil {
		if !isUnsupported(err) {
			return nil, err
		}
		return createNamedSegment(fs, dir, base, size)
	}
	err = allocate(f, size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fs.Link(f, name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return finishSegment(fs, dir, base, size, f)
}

// createNamedSegment is for file systems without unnamed files. A crash in the middle leaves a short file without data,
// which loading removes.
func createNamedSegment(fs FS, dir string, base, size int64) (*segment, error) {
	name := filepath.Join(dir, segmentName(base))
	f, err := fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	err = allocate(f, size)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		_ = fs.Remove(name)
		return nil, err
	}
	return finishSegment(fs, dir, base, size, f)
}

func finishSegment(fs FS, dir string, base, size int64, f File) (*segment, error) {
	g := newSegment(dir, base, size, f)
	g.writable = true
	err := fs.SyncDir(dir)
	if err == nil {
		_, err = g.bytes()
	}
	if err == nil {
		g.advise(unix.MADV_RANDOM)
	}
	if err != nil {
		_ = fs.Remove(g.path)
		g.unpin()
		return nil, err
	}
	return g, nil
}

func segmentError(base int64, err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("%w: no space for segment %s: %w", ErrDiskFull, segmentName(base), err)
	}
	return fmt.Errorf("%w: %s: %w", ErrNoSegment, segmentName(base), err)
}

// segmentTable is the list of segments, in order and without holes. Readers take an immutable snapshot.
type segmentTable struct {
	size int64
	list atomic.Pointer[[]*segment]
}

func (t *segmentTable) all() []*segment {
	if p := t.list.Load(); p != nil {
		return *p
	}
	return nil
}

func (t *segmentTable) set(l []*segment) { t.list.Store(&l) }

// add appends a segment. One caller at a time (the append lock).
func (t *segmentTable) add(g *segment) {
	old := t.all()
	l := make([]*segment, len(old)+1)
	copy(l, old)
	l[len(old)] = g
	t.set(l)
}

// find is the index of the segment holding off in a snapshot, or -1.
func (t *segmentTable) find(l []*segment, off int64) int {
	if len(l) == 0 || off < l[0].base {
		return -1
	}
	i := (off - l[0].base) / t.size
	if i >= int64(len(l)) {
		return -1
	}
	return int(i)
}

// pin finds and pins the segment holding off, or returns nil.
func (t *segmentTable) pin(off int64) *segment {
	for {
		p := t.list.Load()
		if p == nil {
			return nil
		}
		i := t.find(*p, off)
		if i < 0 {
			return nil
		}
		if g := (*p)[i]; g.pin() {
			return g
		}
		if t.list.Load() == p {
			return nil
		}
	}
}

// SegmentRef is a pinned segment, for senders that need descriptor and mapping.
type SegmentRef struct{ g *segment }

// File is the segment's descriptor. Do not close it, and do not keep it after Release.
func (r *SegmentRef) File() *os.File { return r.g.file.OS() }

// Base is the position of the segment's first byte in the log.
func (r *SegmentRef) Base() int64 { return r.g.base }

// Size is the segment's length in bytes; what lies at or after [Store.End] has no meaning.
func (r *SegmentRef) Size() int64 { return r.g.size }

// Bytes is the mapping of the whole segment, to be read only. Valid until Release.
func (r *SegmentRef) Bytes() []byte {
	b, _ := r.g.bytes() // mapped before the reference was handed out
	return b
}

// Release gives the segment back; exactly once.
func (r *SegmentRef) Release() { r.g.unpin() }

func isUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errIsDir)
}
