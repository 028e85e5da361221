package commitlog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// maxProblems bounds the problems that are kept and printed; all are counted.
const maxProblems = 100

// VerifyReport is what [Verify] found.
type VerifyReport struct {
	Dir         string
	InUse       bool // a broker has the store open: its tail may be in motion
	Aborted     bool // the store was not closed cleanly: queues may lag behind until the next start
	SegmentSize int64
	Segments    int
	Start, End  int64 // whole records lie in [Start, End)
	Records     int64
	Fillers     int64
	ClockSteps  int64 // records whose store time is before that of one in front of them: RocketMQ follows its clock back
	Queues      int
	Units       int64
	Problems    []Problem
	ProblemsAll int64
}

// Problem is one thing that is wrong.
type Problem struct {
	File   string
	Offset int64 // in the log, for segments; number of the unit, for consume queues
	What   string
}

func (p Problem) String() string { return fmt.Sprintf("%s: at %d: %s", p.File, p.Offset, p.What) }

// OK tells that nothing is wrong.
func (r *VerifyReport) OK() bool { return r.ProblemsAll == 0 }

// Verify reads a whole store without changing it: every record and checksum, the fillers between segments, and that
// messages and consume queue units agree one to one. It writes a summary and the problems to w, which may be nil. An error
// means that it could not be done.
func Verify(dir string, w io.Writer) (VerifyReport, error) {
	v := verifier{queues: make(map[*Queue]*queueCount)}
	v.Dir = dir
	lock, inUse := lockForReading(dir)
	if lock != nil {
		defer lock.Close()
	}
	v.InUse = inUse
	s, err := openOffline(dir)
	if err != nil {
		return v.VerifyReport, err
	}
	defer s.abandon()
	v.s = s
	if v.Aborted, err = s.wasAborted(); err != nil {
		return v.VerifyReport, err
	}
	if err = v.run(); err == nil && w != nil {
		v.print(w)
	}
	return v.VerifyReport, err
}

type verifier struct {
	VerifyReport
	s      *Store
	queues map[*Queue]*queueCount
}

// queueCount is what the log says about a queue.
type queueCount struct {
	records int64
	wrong   int64 // of them without their unit
	file    bool
}

func (v *verifier) problem(file string, off int64, format string, args ...any) {
	v.ProblemsAll++
	if len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, Problem{file, off, fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) run() error {
	s := v.s
	v.SegmentSize, v.Segments, v.Start = s.opt.SegmentSize, len(s.segs.all()), s.MinOffset()
	s.queues.floors = s.deletedTopics()
	hasQueues := v.findQueues()
	storeTime := int64(0)
	end, why, e, err := s.scanAll(true, func(what find, e *entry, _ []byte) error {
		if what == findBlank {
			v.Fillers++
			return nil
		}
		v.Records++
		if e.rec.StoreTimestamp < storeTime {
			v.ClockSteps++
		}
		storeTime = max(storeTime, e.rec.StoreTimestamp)
		if hasQueues {
			return v.checkUnit(e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.End = end
	v.checkTail(why, e)
	return v.checkQueues()
}

func (v *verifier) segmentOf(pos int64) string {
	return filepath.Join(v.s.logDir, segmentName(pos-pos%v.SegmentSize))
}

// findQueues enters all queues with files into the table.
func (v *verifier) findQueues() bool {
	topics, err := os.ReadDir(v.s.queueDir)
	if err != nil {
		return false
	}
	for _, topic := range topics {
		ids, err := os.ReadDir(filepath.Join(v.s.queueDir, topic.Name()))
		if err != nil {
			continue
		}
		for _, e := range ids {
			if id, err := strconv.ParseInt(e.Name(), 10, 32); err == nil && e.IsDir() {
				q := v.s.queues.getOrAdd(v.s, topic.Name(), int32(id))
				v.queues[q] = &queueCount{file: true}
			}
		}
	}
	return true
}

// checkUnit looks for a record's unit.
func (v *verifier) checkUnit(e *entry) error {
	r := &e.rec
	if !takesQueueEntry(r.SysFlag) || e.pos < v.s.queues.floors[string(r.Topic)] || !hasPlace(r) {
		return nil
	}
	q := v.s.queues.getOrAdd(v.s, string(r.Topic), r.QueueID)
	c := v.queues[q]
	if c == nil {
		c = new(queueCount)
		v.queues[q] = c
	}
	c.records++
	if !c.file {
		return nil
	}
	u, err := q.unitAt(r.QueueOffset)
	if err != nil {
		return err
	}
	want := Unit{Offset: e.pos, Size: int32(e.size), TagsCode: u.TagsCode}
	if string(r.Topic) != scheduleTopic { // delivery times depend on settings
		want.TagsCode = v.s.dispatch.tagsCode(r)
	}
	if u != want {
		c.wrong++
		v.problem(q.path(r.QueueOffset-r.QueueOffset%q.units()), r.QueueOffset, "unit is %+v, the record at %d needs %+v", u, e.pos, want)
	}
	return nil
}

// checkTail tells an ordinary end of the log from damage.
func (v *verifier) checkTail(why find, e *entry) {
	switch why {
	case findBad, findShort:
		v.problem(v.segmentOf(v.End), v.End, "no valid record: %s", why.describe(e))
	}
	for _, g := range v.s.segs.all() {
		if g.base <= v.End {
			continue
		}
		if mem, err := g.bytes(); err == nil {
			var first entry
			if first.inspect(mem, g.base, g.size, true) == findRecord {
				v.problem(g.path, g.base, "begins with a valid record, but the log ends before, at %d", v.End)
			}
		}
	}
}

// checkQueues looks for units without a record, and counts.
func (v *verifier) checkQueues() error {
	for q, c := range v.queues {
		if !c.file {
			v.problem(q.dir(), 0, "consume queue is missing, the log has %d messages of it", c.records)
			continue
		}
		v.Queues++
		if err := v.countUnits(q, c); err != nil {
			return err
		}
	}
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return int(a.Offset - b.Offset) })
	return nil
}

func (v *verifier) countUnits(q *Queue, c *queueCount) error {
	entries, err := os.ReadDir(q.dir())
	if err != nil {
		return err
	}
	held := int64(0)
	for _, e := range entries {
		pos, ok := parseSegmentName(e.Name())
		if !ok {
			continue
		}
		b, err := os.ReadFile(filepath.Join(q.dir(), e.Name()))
		if err != nil {
			return err
		}
		for i := 0; i+UnitSize <= len(b); i += UnitSize {
			var u Unit
			u.decode(b[i:])
			if u.Filler() || u == (Unit{}) || u.Offset < v.Start {
				continue
			}
			held++
			if u.Offset >= v.End {
				v.problem(filepath.Join(q.dir(), e.Name()), pos/UnitSize+int64(i/UnitSize), "unit points to %d, the log ends at %d", u.Offset, v.End)
			}
		}
	}
	v.Units += held
	if held != c.records-c.wrong && c.wrong == 0 {
		v.problem(q.dir(), 0, "%d units, but the log has %d messages of this queue", held, c.records)
	}
	return nil
}

func (v *verifier) print(w io.Writer) {
	fmt.Fprintf(w, "store      %s\n", v.Dir)
	fmt.Fprintf(w, "segments   %d of %d bytes\n", v.Segments, v.SegmentSize)
	fmt.Fprintf(w, "log        [%d, %d): %d records, %d fillers\n", v.Start, v.End, v.Records, v.Fillers)
	if v.ClockSteps > 0 {
		fmt.Fprintf(w, "clock      went back %d times: no fault of the log, but searches by time are less exact there\n", v.ClockSteps)
	}
	fmt.Fprintf(w, "queues     %d with %d units\n", v.Queues, v.Units)
	if v.InUse {
		fmt.Fprintln(w, "note       a broker has this store open; what is being written may look wrong")
	}
	if v.Aborted && !v.InUse {
		fmt.Fprintln(w, "note       the store was not closed cleanly; the next start of a broker brings queues and log into agreement")
	}
	for _, p := range v.Problems {
		fmt.Fprintf(w, "problem    %s\n", p)
	}
	if more := v.ProblemsAll - int64(len(v.Problems)); more > 0 {
		fmt.Fprintf(w, "problem    … and %d more\n", more)
	}
	if v.OK() {
		fmt.Fprintln(w, "verdict    ok")
	} else {
		fmt.Fprintf(w, "verdict    %d problems\n", v.ProblemsAll)
	}
}
