package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tandem/codec"
)

// readOnlyFS is the operating system's file system for those who must not change anything.
type readOnlyFS struct{ OSFS }

func (r readOnlyFS) OpenFile(name string, _ int, _ os.FileMode) (File, error) {
	return r.OSFS.OpenFile(name, os.O_RDONLY, 0)
}

func (readOnlyFS) Remove(string) error { return nil }

// openOffline loads a store's files for reading only. dir is the store's directory, or that of the segments alone.
func openOffline(dir string) (*Store, error) {
	logDir := filepath.Join(dir, "commitlog")
	if _, err := os.Stat(logDir); errors.Is(err, os.ErrNotExist) {
		logDir = dir
	}
	o := Options{RootDir: dir, CommitLogDir: logDir, FS: readOnlyFS{}}
	var err error
	if o.SegmentSize, err = largestFile(logDir); err != nil {
		return nil, err
	}
	if o.SegmentSize == 0 {
		return nil, fmt.Errorf("%w: %s holds no commit log", ErrLogMissing, dir)
	}
	unitsLen, err := largestFile(filepath.Join(dir, "consumequeue"))
	if err != nil {
		return nil, err
	}
	o.ConsumeQueueUnits = int(unitsLen / UnitSize)
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	s := newStore(o)
	if err := s.loadSegments(); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// largestFile is the length of the largest file below dir that is named like a segment; 0 if there is none.
func largestFile(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		if _, ok := parseSegmentName(d.Name()); !ok || d.IsDir() {
			return nil
		}
		st, err := d.Info()
		if err == nil {
			size = max(size, st.Size())
		}
		return err
	})
	return size, err
}

// scanAll walks all records and fillers from the log's first byte on, and returns where and why it stopped.
func (s *Store) scanAll(full bool, f func(what find, e *entry, raw []byte) error) (end int64, why find, e *entry, err error) {
	e = new(entry)
	pos := s.MinOffset()
	for _, g := range s.segs.all() {
		mem, err := g.bytes()
		if err != nil {
			return pos, findBad, e, err
		}
		for pos < g.end() {
			at := pos - g.base
			what := e.inspect(mem[at:], pos, g.end()-pos, full)
			if what != findRecord && what != findBlank {
				return pos, what, e, nil
			}
			if err := f(what, e, mem[at:at+e.size]); err != nil {
				return pos, what, e, err
			}
			pos = e.end()
		}
	}
	return pos, findEmpty, e, nil
}

// Dump calls f for every record of a store that no broker has open, in order, until f returns an error. The record's slices are valid
// during the call.
func Dump(dir string, f func(codec.Record) error) error {
	s, err := openOffline(dir)
	if err != nil {
		return err
	}
	defer s.abandon()
	_, why, e, err := s.scanAll(true, func(what find, _ *entry, raw []byte) error {
		if what != findRecord {
			return nil
		}
		var r codec.Record
		if _, err := r.DecodeUnchecked(raw); err != nil {
			return err
		}
		return f(r)
	})
	if err == nil && why == findBad {
		err = e.why
	}
	return err
}

// DiffReport tells how two stores compare over the range of the log both hold.
type DiffReport struct {
	A, B      DiffSide
	From, To  int64 // the common range
	Records   int64 // compared and equal
	FirstDiff int64 // offset of the first record, or filler head, that differs; -1 if none does
}

// DiffSide is one of the two stores.
type DiffSide struct {
	Dir        string
	Start, End int64 // whole records lie in [Start, End)
}

// Same tells that the common range is equal.
func (r DiffReport) Same() bool { return r.FirstDiff < 0 }

// Identical tells that the common range is equal and both logs end at one offset.
func (r DiffReport) Identical() bool { return r.Same() && r.A.End == r.B.End }

func (r DiffReport) String() string {
	switch {
	case !r.Same():
		return fmt.Sprintf("different at offset %d (%d records before it are equal)", r.FirstDiff, r.Records)
	case !r.Identical():
		return fmt.Sprintf("equal over [%d, %d), %d records, but the ends differ: %d and %d", r.From, r.To, r.Records, r.A.End, r.B.End)
	}
	return fmt.Sprintf("identical: %d records in [%d, %d)", r.Records, r.From, r.To)
}

// Diff compares the record bytes of two stores. Of filler only the head counts, for the rest has no meaning; consume queues
// are each store's own business.
func Diff(a, b string) (DiffReport, error) {
	r := DiffReport{FirstDiff: -1}
	sa, err := openOffline(a)
	if err != nil {
		return r, err
	}
	defer sa.abandon()
	sb, err := openOffline(b)
	if err != nil {
		return r, err
	}
	defer sb.abandon()
	if sa.opt.SegmentSize != sb.opt.SegmentSize {
		return r, fmt.Errorf("%w: mappedFileSizeCommitLog is %d in %s and %d in %s", ErrSegmentSize, sa.opt.SegmentSize, a, sb.opt.SegmentSize, b)
	}
	if r.A, err = sa.side(a); err != nil {
		return r, err
	}
	if r.B, err = sb.side(b); err != nil {
		return r, err
	}
	r.From, r.To = max(r.A.Start, r.B.Start), min(r.A.End, r.B.End)
	return r, r.compare(sa, sb)
}

func (s *Store) side(dir string) (DiffSide, error) {
	end, _, _, err := s.scanAll(false, func(find, *entry, []byte) error { return nil })
	return DiffSide{Dir: dir, Start: s.MinOffset(), End: end}, err
}

var errStop = errors.New("stop")

func (r *DiffReport) compare(sa, sb *Store) error {
	lb := sb.segs.all()
	_, _, _, err := sa.scanAll(false, func(what find, e *entry, raw []byte) error {
		if e.pos < r.From {
			return nil
		}
		if e.pos >= r.To {
			return errStop
		}
		if what == findBlank {
			raw = raw[:min(int64(len(raw)), minRoom)]
		}
		g := lb[sb.segs.find(lb, e.pos)]
		mem, err := g.bytes()
		if err != nil {
			return err
		}
		if at := e.pos - g.base; !bytes.Equal(raw, mem[at:at+int64(len(raw))]) {
			r.FirstDiff = e.pos
			return errStop
		}
		if what == findRecord {
			r.Records++
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// deletedTopics reads what the store's manifest says about deleted topics.
func (s *Store) deletedTopics() map[string]int64 {
	var m manifest
	if b, err := readFile(s.fs, s.manifestPath()); err == nil {
		_ = json.Unmarshal(b, &m) // without it, deleted topics show up as problems
	}
	return m.Deleted
}

// lockForReading keeps brokers out for a while, if there is a store to lock; inUse means that one is in.
func lockForReading(dir string) (c io.Closer, inUse bool) {
	name := filepath.Join(dir, "lock")
	if _, err := os.Stat(name); err != nil {
		return nil, false
	}
	c, err := OSFS{}.Lock(name)
	return c, errors.Is(err, ErrLocked)
}
