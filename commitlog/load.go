package commitlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.uber.org/zap"
)

// loadSegments opens the files of the log and checks that they can belong together.
func (s *Store) loadSegments() error {
	bases, err := s.segmentBases()
	if err != nil {
		return err
	}
	var l []*segment
	defer func() { s.segs.set(l) }()
	for i, base := range bases {
		g, err := s.loadSegment(base, i == len(bases)-1)
		if err != nil {
			return err
		}
		if g == nil {
			continue
		}
		l = append(l, g)
		if base%s.opt.SegmentSize != 0 {
			return fmt.Errorf("%w: %s does not begin at a multiple of mappedFileSizeCommitLog=%d", ErrSegmentSize, g.path, s.opt.SegmentSize)
		}
		if n := len(l); n > 1 && l[n-2].end() != base {
			return fmt.Errorf("%w: %s, between %s and %s; restore it, or move the older segments away",
				ErrSegmentMissing, segmentName(l[n-2].end()), l[n-2].path, g.path)
		}
	}
	return nil
}

// segmentBases lists the segments' positions in order. Other files are left alone.
func (s *Store) segmentBases() ([]int64, error) {
	entries, err := s.fs.ReadDir(s.logDir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		base, ok := parseSegmentName(e.Name())
		if !ok || e.IsDir() {
			s.log.Warn("not a segment, left alone: " + filepath.Join(s.logDir, e.Name()))
			continue
		}
		bases = append(bases, base)
	}
	slices.Sort(bases)
	return bases, nil
}

// loadSegment opens one segment; nil if it was the remainder of one that was never used.
func (s *Store) loadSegment(base int64, isLast bool) (*segment, error) {
	path := filepath.Join(s.logDir, segmentName(base))
	f, err := s.fs.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size == s.opt.SegmentSize {
		return newSegment(s.logDir, base, size, f), nil
	}
	defer f.Close()
	if err != nil {
		return nil, err
	}
	if isLast && size < s.opt.SegmentSize {
		_, err := f.NextData(0)
		if size == 0 || errors.Is(err, io.EOF) {
			s.report.RemovedFiles = append(s.report.RemovedFiles, path)
			s.log.Warn("last segment was never used, removed", zap.String("file", path), zap.Int64("bytes", size))
			return nil, s.fs.Remove(path)
		}
	}
	return nil, fmt.Errorf("%w: %s has %d bytes, not the %d of mappedFileSizeCommitLog=%d; start with the value the store was made with, or restore the file",
		ErrSegmentSize, path, size, s.opt.SegmentSize, s.opt.SegmentSize)
}

// queueFiles is what recovery knows about the files of one queue.
type queueFiles struct {
	q     *Queue
	bases []int64 // number of each file's first unit, in order
	short []int64 // lengths of files with fewer bytes than they should have
	end   int64   // number after the last unit
}

// loadQueues finds the queues' files and where their units end.
func (r *recovery) loadQueues() error {
	topics, err := r.s.fs.ReadDir(r.s.queueDir)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if !topic.IsDir() {
			continue
		}
		ids, err := r.s.fs.ReadDir(filepath.Join(r.s.queueDir, topic.Name()))
		if err != nil {
			return err
		}
		for _, e := range ids {
			id, err := strconv.ParseInt(e.Name(), 10, 32)
			if err != nil || id < 0 || !e.IsDir() {
				continue
			}
			if err := r.loadQueue(topic.Name(), int32(id)); err != nil {
				return err
			}
		}
	}
	return r.checkQueueSizes()
}

func (r *recovery) loadQueue(topic string, id int32) error {
	q := r.s.queues.getOrAdd(r.s, topic, id)
	entries, err := r.s.fs.ReadDir(q.dir())
	if err != nil {
		return err
	}
	f := &queueFiles{q: q}
	for _, e := range entries {
		pos, ok := parseSegmentName(e.Name())
		if !ok || e.IsDir() {
			continue
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		path := filepath.Join(q.dir(), e.Name())
		if pos%q.fileSize() != 0 || st.Size() > q.fileSize() {
			return fmt.Errorf("%w: %s has %d bytes, mappedFileSizeConsumeQueue is %d; start with the value the store was made with",
				ErrQueueFileSize, path, st.Size(), q.fileSize())
		}
		if st.Size() < q.fileSize() {
			f.short = append(f.short, st.Size())
		}
		f.bases = append(f.bases, pos/UnitSize)
	}
	slices.Sort(f.bases)
	r.files = append(r.files, f)
	return nil
}

// checkQueueSizes tells a wrong setting (all files have one other length) from shortened files.
func (r *recovery) checkQueueSizes() error {
	files := 0
	var short []int64
	for _, f := range r.files {
		files += len(f.bases)
		short = append(short, f.short...)
	}
	if len(short) < 2 || len(short) < files || short[0] == 0 || slices.Min(short) != slices.Max(short) {
		return nil
	}
	return fmt.Errorf("%w: all %d have %d bytes, mappedFileSizeConsumeQueue is %d; start with the value the store was made with",
		ErrQueueFileSize, files, short[0], r.s.opt.ConsumeQueueUnits*UnitSize)
}

// measureQueues finds each queue's end and the queues whose files contradict themselves or the manifest.
func (r *recovery) measureQueues() error {
	for _, f := range r.files {
		first, end := r.expected(f.q)
		if err := f.measure(first, end); err != nil {
			return err
		}
		if r.manifest != nil && r.leftOver(f) {
			f.q.damaged = true // its topic was deleted; rebuilding finds nothing below the floor
		}
	}
	if r.manifest == nil {
		return nil
	}
	for topic, ids := range r.manifest.Queues {
		for id := range ids {
			if ValidTopic(topic) && r.s.queues.get(topic, id) == nil {
				q := r.s.queues.getOrAdd(r.s, topic, id)
				q.damaged = true
				r.files = append(r.files, &queueFiles{q: q})
			}
		}
	}
	return nil
}

// expected is what the manifest says about a queue, -1 if nothing is known.
func (r *recovery) expected(q *Queue) (first, end int64) {
	if r.manifest == nil {
		return -1, -1
	}
	bounds, ok := r.manifest.Queues[q.topic][q.id]
	if !ok {
		return -1, 0
	}
	return bounds[0], bounds[1]
}

// leftOver tells whether a queue belongs to a topic whose deletion was recorded but not carried out.
func (r *recovery) leftOver(f *queueFiles) bool {
	floor, deleted := r.manifest.Deleted[f.q.topic]
	if _, end := r.expected(f.q); !deleted || end > 0 || f.end == f.q.first {
		return false
	}
	u, err := f.q.unitAt(f.end - 1)
	return err == nil && u.Offset < floor
}

// measure finds the end; first and expected are what the manifest says, -1 if nothing is known.
func (f *queueFiles) measure(first, expected int64) error {
	q := f.q
	if len(f.bases) == 0 {
		q.damaged = expected > 0
		return nil
	}
	q.virgin, q.first = false, f.bases[0]
	q.reached = f.bases[len(f.bases)-1] + q.units()
	q.damaged = len(f.short) > 0 || first >= 0 && q.first > first
	for i, base := range f.bases {
		q.damaged = q.damaged || base != q.first+int64(i)*q.units()
	}
	if q.damaged {
		return nil
	}
	for _, base := range f.bases[:len(f.bases)-1] { // full but for the last one
		for _, n := range []int64{base, base + q.units() - 1} {
			if u, err := q.unitAt(n); err != nil || !u.valid() {
				q.damaged = true
				return err
			}
		}
	}
	if expected > q.first && expected <= q.reached {
		if ok, err := f.endsAt(expected); ok || err != nil {
			f.end = expected
			return err
		}
	}
	if err := f.searchEnd(expected < 0); err != nil {
		return err
	}
	q.damaged = q.damaged || f.end < expected
	return nil
}

// endsAt checks the units around a supposed end, and the first one of its file.
func (f *queueFiles) endsAt(end int64) (bool, error) {
	q := f.q
	for _, c := range []struct {
		n     int64
		valid bool
	}{{end - 1, true}, {(end - 1) - (end-1)%q.units(), true}, {end, false}} {
		if c.n >= q.reached {
			continue
		}
		u, err := q.unitAt(c.n)
		if err != nil || u.valid() != c.valid {
			return false, err
		}
	}
	return true, nil
}

// searchEnd looks for the first invalid unit of the last file. A file is made only for a unit, so an empty one is a sign of
// damage where nothing else is known.
func (f *queueFiles) searchEnd(strict bool) (err error) {
	q, base := f.q, f.bases[len(f.bases)-1]
	f.end, err = q.search(base, base+q.units(), func(u Unit) bool { return !u.valid() })
	q.damaged = strict && f.end == base
	return err
}
