package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// firstLook bounds how much of an unknown store's log is read to check its consume queues although its checkpoint says
	// they need no check.
	firstLook = 512 << 20
	// followBytes bounds the search for good records behind a bad one.
	followBytes   = 64 << 20
	progressEvery = 5 * time.Second
)

// recovery brings log and consume queues into agreement. The queues are cut to what lies below a log position at which
// they are known to be right, then all records from there on are dispatched again, and what the queues hold beyond the last one
// is cleared. Doing it again after a crash in the middle has the same result.
type recovery struct {
	s        *Store
	clean    bool
	cp       checkpoint
	manifest *manifest // nil if there is none that fits
	files    []*queueFiles
	oldest   int64
	logEnd   int64 // end of the last segment
	last     lastRecord
}

// recover loads the store. It runs before any goroutine is started.
func (s *Store) recover() error {
	began := time.Now()
	aborted, err := s.wasAborted()
	if err != nil {
		return err
	}
	r := &recovery{s: s, clean: !aborted}
	s.report.Clean = r.clean
	if err := r.load(); err != nil {
		return err
	}
	if err := s.makeAbort(); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return err
	}
	s.keep.cp = r.cp
	if err := s.keep.save(); err != nil {
		return err
	}
	s.report.Took = time.Since(began)
	s.recovered = s.report
	s.log.Info("store opened", zap.Bool("clean", r.clean), zap.Int64("readFrom", s.report.Start), zap.Int64("min", s.MinOffset()),
		zap.Int64("end", s.end), zap.Int64("cutBytes", s.report.CutBytes), zap.Int64("records", s.report.Records),
		zap.Int("rebuiltQueues", s.report.RebuiltQueues), zap.Duration("took", s.report.Took))
	return nil
}

// load reads what is there and changes nothing but unused empty segments.
func (r *recovery) load() (err error) {
	s := r.s
	if err = s.loadSegments(); err != nil {
		return err
	}
	if l := s.segs.all(); len(l) > 0 {
		r.oldest, r.logEnd = l[0].base, l[len(l)-1].end()
	}
	if r.cp, err = readCheckpoint(s.fs, s.checkpointPath()); err != nil {
		return err
	}
	if !r.cp.sane(s.opt.Now(), r.logEnd) {
		s.log.Warn("checkpoint is damaged, the whole log is read: " + s.checkpointPath())
	}
	if r.manifest, err = s.readManifest(r.cp); err != nil {
		return err
	}
	if r.manifest != nil && !r.manifestFits() {
		r.manifest = nil
	}
	if r.manifest != nil {
		for topic, floor := range r.manifest.Deleted {
			s.queues.floors[topic] = floor
		}
	}
	if err = r.loadQueues(); err != nil {
		return err
	}
	if err = r.measureQueues(); err != nil {
		return err
	}
	return r.checkLogIsThere()
}

// checkLogIsThere refuses to take queues without any log for an empty store: most likely a disk is not mounted.
func (r *recovery) checkLogIsThere() error {
	if len(r.s.segs.all()) > 0 {
		return nil
	}
	for _, f := range r.files {
		if f.end > f.q.first {
			return fmt.Errorf("%w: %s holds no segment, but consume queues hold messages (%s/%d); bring the log back, or remove %s to begin anew",
				ErrLogMissing, r.s.logDir, f.q.topic, f.q.id, r.s.queueDir)
		}
	}
	return nil
}

// manifestFits checks the manifest against the log itself: the record it ends with must be there.
func (r *recovery) manifestFits() bool {
	m := r.manifest
	if m.LastRecord < 0 {
		return m.Position == r.oldest
	}
	var e entry
	if r.at(&e, m.LastRecord) != findRecord {
		return false
	}
	r.last = lastRecord{start: e.pos, end: e.end(), storeTime: e.rec.StoreTimestamp}
	if e.end() == m.Position {
		return true
	}
	return r.at(&e, e.end()) == findBlank && e.end() == m.Position
}

// at inspects a position in full, seeing all of its segment.
func (r *recovery) at(e *entry, pos int64) find {
	g := r.s.segs.pin(pos)
	if g == nil {
		return findEmpty
	}
	defer g.unpin()
	mem, err := g.bytes()
	if err != nil {
		e.why = err
		return findBad
	}
	return e.inspect(mem[pos-g.base:], pos, g.end()-pos, true)
}

func (r *recovery) run() error {
	s := r.s
	s.dispatch.recover = true
	defer func() { s.dispatch.recover = false }()
	start := r.start()
	if err := r.scan(start); err != nil {
		return err
	}
	if s.dispatch.holes {
		s.report.Reason = "consume queues lack units"
		start = r.oldest
		if err := r.scan(start); err != nil {
			return err
		}
	}
	if s.dispatch.holes {
		s.log.Error("some queues have numbers whose messages are not in the log; these were filled")
		s.dispatch.holes = false
	}
	s.report.Start = start
	if s.report.Reason != "" {
		s.log.Warn("log was read from its oldest segment", zap.String("because", s.report.Reason))
	}
	return r.settle(start)
}

// start is the position from which the log is dispatched again.
func (r *recovery) start() int64 {
	for _, f := range r.files {
		if f.q.damaged {
			r.s.report.RebuiltQueues++
			r.s.report.Reason = "consume queue files are damaged"
			r.s.log.Warn("consume queue is damaged, built anew", zap.String("topic", f.q.topic), zap.Int32("queue", f.q.id))
		}
	}
	switch {
	case r.s.report.Reason != "":
		return r.oldest
	case r.manifest != nil && r.manifest.Holes:
		r.s.report.Reason = "a consume queue lacked numbers when the store was last in use"
		return r.oldest
	case r.manifest != nil:
		return r.manifest.Position
	}
	start := r.safeSegment()
	if r.clean {
		start = r.newestKnown(start)
	}
	if start-r.oldest <= firstLook {
		return r.oldest
	}
	return start
}

// safeSegment is the newest segment of which the checkpoint says that log and queues were durable when it began.
func (r *recovery) safeSegment() int64 {
	var e entry
	for _, g := range slices.Backward(r.s.segs.all()) {
		if r.at(&e, g.base) != findRecord || e.rec.StoreTimestamp == 0 || e.rec.StoreTimestamp > r.cp.safeTime() {
			continue
		}
		if r.cp.logicsPosition == 0 || g.base <= r.cp.logicsPosition {
			return g.base
		}
	}
	return r.oldest
}

// newestKnown is the newest record any queue knows, after a clean stop.
func (r *recovery) newestKnown(otherwise int64) int64 {
	newest := int64(-1)
	for _, f := range r.files {
		if f.end > f.q.first {
			if u, err := f.q.unitAt(f.end - 1); err == nil && !u.Filler() {
				newest = max(newest, u.Offset)
			}
		}
	}
	var e entry
	if newest >= r.oldest && r.at(&e, newest) == findRecord {
		return newest
	}
	return otherwise
}

// scan cuts the queues to what lies below start and dispatches the log from there to its end.
func (r *recovery) scan(start int64) error {
	s := r.s
	for _, f := range r.files {
		if err := f.cutTo(start); err != nil {
			return err
		}
	}
	d := s.dispatch
	d.holes, d.late = false, start > r.oldest
	d.mu.Lock()
	last := lastRecord{}
	if r.manifest != nil && start == r.manifest.Position {
		last = r.last
	}
	s.setPositions(start, last)
	d.mu.Unlock()
	s.report.Records = 0
	shown := time.Now()
	for more := true; more; {
		var err error
		if more, err = d.round(r.logEnd); err != nil {
			return err
		}
		if time.Since(shown) > progressEvery {
			shown = time.Now()
			s.log.Info("reading the log", zap.Int64("at", d.pos), zap.Int64("of", r.logEnd))
		}
	}
	// Queues met for the first time belong to what a second scan has to begin anew.
	known := make(map[*Queue]bool, len(r.files))
	for _, f := range r.files {
		known[f.q] = true
	}
	for _, q := range s.queues.all() {
		if !known[q] {
			r.files = append(r.files, &queueFiles{q: q})
		}
	}
	for _, f := range r.files {
		f.end = f.q.max.Load()
	}
	return nil
}

// cutTo takes the units at or above a log position, or all of a damaged queue, out of account.
func (f *queueFiles) cutTo(pos int64) error {
	q := f.q
	q.leapt, q.stray = false, Unit{}
	if q.damaged {
		q.damaged, q.virgin, q.first, f.end = false, true, 0, 0
	}
	end := f.end
	if !q.virgin && end > q.first {
		last, err := q.unitAt(end - 1)
		if err != nil {
			return err
		}
		if !last.Filler() && last.Offset >= pos {
			if end, err = q.firstAt(end, pos); err != nil {
				return err
			}
		}
	}
	q.max.Store(end)
	return nil
}

// settle makes the end that was found the log's end, for good.
func (r *recovery) settle(start int64) error {
	s := r.s
	end := s.dispatch.pos
	if err := r.checkBehind(end); err != nil {
		return err
	}
	closedHere := r.clean && r.manifest != nil && s.report.Reason == "" && end == r.manifest.Position
	if err := s.cutLog(end, closedHere); err != nil {
		return err
	}
	if err := s.syncRange(start, end); err != nil {
		return err
	}
	for _, f := range r.files {
		if err := f.settle(r.oldest, r.clean && r.manifest != nil && s.report.Reason == ""); err != nil {
			return err
		}
	}
	last := s.dispatch.last
	if last.end == 0 {
		last = s.lastBefore(end)
	}
	s.setPositions(end, last)
	s.report.End = end
	return nil
}

// checkBehind refuses to cut where good records follow that are known to have been stored.
func (r *recovery) checkBehind(end int64) error {
	var e entry
	what := r.at(&e, end)
	for _, g := range r.s.segs.all() {
		var first entry
		if g.base > end && r.at(&first, g.base) == findRecord {
			bad := r.segmentOf(end)
			return fmt.Errorf("%w: no valid record in %s at offset %d (%s), but %s begins with a good one; look with 'tandem store verify', "+
				"then restore the file from a replica, or accept the loss by moving the segments from %s on away",
				ErrDamaged, bad, end, what.describe(&e), g.path, segmentName(g.base))
		}
	}
	follower := r.follower(end)
	if follower < 0 {
		return nil
	}
	_ = r.at(&e, follower)
	if e.rec.StoreTimestamp < r.cp.physicTime {
		why := entry{}
		what = r.at(&why, end)
		return fmt.Errorf("%w: no valid record in %s at offset %d (%s), but at %d follows one that was flushed long before; look with 'tandem store verify', "+
			"then restore the file from a replica, or accept the loss by overwriting the file from byte %d on with zeros",
			ErrDamaged, r.segmentOf(end), end, what.describe(&why), follower, end%r.s.opt.SegmentSize)
	}
	r.s.log.Warn("valid records behind the end of the log are cut off: they were never known to be on disk",
		zap.Int64("end", end), zap.Int64("next", follower))
	return nil
}

func (w find) describe(e *entry) string {
	if w == findBad && e.why != nil {
		return e.why.Error()
	}
	if w == findEmpty {
		return "nothing is written there"
	}
	return "incomplete"
}

func (r *recovery) segmentOf(pos int64) string {
	return filepath.Join(r.s.logDir, segmentName(pos-pos%r.s.opt.SegmentSize))
}

// follower is the position of a valid record behind a bad place of the same segment, -1 if there is none.
func (r *recovery) follower(end int64) int64 {
	g := r.s.segs.pin(end)
	if g == nil {
		return -1
	}
	defer g.unpin()
	mem, err := g.bytes()
	if err != nil {
		return -1
	}
	magics := [2][]byte{binary.BigEndian.AppendUint32(nil, uint32(0xDAA320A7)), binary.BigEndian.AppendUint32(nil, uint32(0xDAA320AB))}
	from := end - g.base + 1
	limit := min(g.size, from+followBytes)
	for from < limit {
		data, err := g.file.NextData(from)
		if err != nil || data >= limit {
			return -1
		}
		// Look at one stretch at a time, so that holes are not read.
		to := min(limit, data+zeroChunk)
		for _, magic := range magics {
			for at := data; ; {
				i := bytes.Index(mem[at:min(limit, to+4)], magic)
				if i < 0 {
					break
				}
				at += int64(i) + 1
				var e entry
				if pos := g.base + at - 1 - 4; pos > end && r.at(&e, pos) == findRecord {
					return pos
				}
			}
		}
		from = to
	}
	return -1
}

// cutLog makes end the log's end on disk: nothing but zeros behind it in its segment, no segments after that. The segment
// that holds end becomes the active one. Needs quiesce, or to be alone.
//
// clean says that nothing was ever written behind end: this very log was closed here.
func (s *Store) cutLog(end int64, clean bool) error {
	l := s.segs.all()
	keep := slices.IndexFunc(l, func(g *segment) bool { return g.base > end || g.base == end && end > l[0].base })
	if keep >= 0 && l[keep].base == end && s.unused(l[keep]) {
		keep++ // made ahead and still empty: the log goes on there
	}
	if keep < 0 || keep > len(l) {
		keep = len(l)
	}
	s.active, s.activeMem = nil, nil
	for i := len(l) - 1; i >= keep; i-- {
		if err := s.fs.Remove(l[i].path); err != nil {
			return err
		}
		s.report.RemovedFiles = append(s.report.RemovedFiles, l[i].path)
		s.segs.set(l[:i:i])
		l[i].unpin()
	}
	removed := len(l) - keep
	l = slices.Clone(l[:keep])
	if removed > 0 {
		if err := s.fs.SyncDir(s.logDir); err != nil {
			return err
		}
	}
	if len(l) == 0 {
		return nil
	}
	g := l[len(l)-1]
	if !clean {
		cut, err := zeroTail(g.file, end-g.base, g.size)
		if err != nil {
			return err
		}
		s.report.CutBytes += cut
	}
	fresh, err := s.reopen(g)
	if err != nil {
		return err
	}
	l[len(l)-1] = fresh
	s.segs.set(l)
	g.unpin()
	s.active = fresh
	if err := s.mapActive(); err != nil {
		s.log.Error("log cannot be written yet", zap.Error(err)) // appends say so, and try again
	}
	return nil
}

// unused tells whether a segment holds nothing at all.
func (s *Store) unused(g *segment) bool {
	_, err := g.file.NextData(0)
	return errors.Is(err, io.EOF)
}

// zeroTail clears what lies behind a log's end and tells how many bytes that were.
func zeroTail(f File, from, size int64) (int64, error) {
	last, err := zeroFrom(f, from, size)
	if err != nil {
		return 0, err
	}
	return max(last-from, 0), f.Sync()
}

// reopen makes a new segment of the same file, whose mapping can become writable while readers hold the old one.
func (s *Store) reopen(g *segment) (*segment, error) {
	f, err := s.fs.OpenFile(g.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return newSegment(s.logDir, g.base, g.size, f), nil
}

// syncRange makes the segments holding [from, to) durable.
func (s *Store) syncRange(from, to int64) error {
	for _, g := range s.segs.all() {
		if g.end() > from && g.base < to {
			if err := g.file.Datasync(); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastBefore finds the last record below a position, which must be a record's end or a segment's start.
func (s *Store) lastBefore(end int64) (last lastRecord) {
	l := s.segs.all()
	for _, g := range slices.Backward(l) {
		if g.base >= end {
			continue
		}
		_ = s.walk(g.base, min(end, g.end()), false, func(e *entry) bool {
			last = lastRecord{start: e.pos, end: e.end(), storeTime: e.rec.StoreTimestamp}
			return true
		})
		if last.end > 0 {
			return last
		}
	}
	return last
}

// settle clears what a queue's files hold beyond its end and sets its bounds. trusted files are known to need no look.
func (f *queueFiles) settle(logMin int64, trusted bool) error {
	q := f.q
	f.bases, q.stale = append(f.bases, q.stale...), nil
	if !trusted {
		if err := f.clearTail(); err != nil {
			return err
		}
	}
	return q.setBounds(logMin)
}

// clearTail needs the queue's final end.
func (f *queueFiles) clearTail() error {
	q := f.q
	end := q.max.Load()
	for _, base := range f.bases {
		key := fileKey{q, base}
		isFirst := base == q.first && !q.virgin
		if base < q.first || base >= end && !(isFirst && base > 0) {
			if err := q.removeFile(base); err != nil {
				return err
			}
			continue
		}
		if base+q.units() <= end {
			continue
		}
		if err := q.clearFile(key, (max(end, base)-base)*UnitSize); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) clearFile(key fileKey, from int64) error {
	o, err := q.s.files.get(key, true)
	if err != nil {
		return err
	}
	defer q.s.files.put(o)
	last, err := zeroFrom(o.f, from, q.fileSize())
	if err != nil || last <= from {
		return err
	}
	q.s.dirty.wrote(key, int(q.fileSize()))
	return nil
}

func (q *Queue) removeFile(base int64) error {
	q.s.files.forget(q)
	err := q.s.fs.Remove(q.path(base))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// setBounds sets a queue's first number and its counter from what its files hold.
func (q *Queue) setBounds(logMin int64) error {
	end := q.max.Load()
	first, err := q.unitAt(q.first)
	if err != nil {
		return err
	}
	lo := q.first
	if end > lo && (first.Filler() || first.Offset < logMin) {
		if lo, err = q.firstAt(end, logMin); err != nil {
			return err
		}
	}
	q.min.Store(min(lo, end))
	q.next = end
	return nil
}
