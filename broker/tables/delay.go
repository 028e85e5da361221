package tables

import (
	"maps"
	"sync"

	"tandem/codec"
)

const (
	delayFile = "delayOffset.json"

	// updatesPerVersion is how many updates make a new data version, as in
	// ScheduleMessageService of Apache RocketMQ 5.
	updatesPerVersion = 200
)

// DelayOffsets is the table of how far delayed delivery has come: for each
// level, from 1, the next entry of the schedule topic's queue level-1 to be
// delivered. See the package comment for goroutine rules.
type DelayOffsets struct {
	files Files

	mu      sync.Mutex // guards what follows
	levels  map[int32]int64
	version codec.DataVersion
	updates uint64
	changes uint64
	saved   uint64

	saving sync.Mutex // one Persist at a time; taken before mu
}

// NewDelayOffsets returns an empty table.
func NewDelayOffsets(files Files) *DelayOffsets {
	d := &DelayOffsets{files: files, levels: map[int32]int64{}}
	d.version.Timestamp = files.now()
	return d
}

// Load fills the table from delayOffset.json. No file is no error. The error is
// ErrDamaged.
func (d *DelayOffsets) Load() error {
	from, err := load[codec.DelayOffsets](d.files, delayFile)
	if err != nil || from == nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.levels, from.OffsetTable)
	d.version = from.DataVersion
	return nil
}

// Get returns the next entry to deliver of a level; false if none ever was.
func (d *DelayOffsets) Get(level int32) (int64, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next, ok := d.levels[level]
	return next, ok
}

// Update stores the next entry to deliver of a level.
func (d *DelayOffsets) Update(level int32, next int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !setQueue(d.levels, level, next) {
		return
	}
	d.changes++
	d.updates++
	if d.updates%updatesPerVersion == 0 {
		d.version.Counter++
		d.version.Timestamp = d.files.now()
	}
}

// Clamp holds a level's next entry within what its queue has, min to max, and
// returns it; a level without progress starts at min.
func (d *DelayOffsets) Clamp(level int32, min, max int64) int64 {
	next, ok := d.Get(level)
	switch {
	case !ok || next < min:
		next = min
	case next > max:
		next = max
	}
	d.Update(level, next)
	return next
}

// Snapshot returns the table as of one moment, as the file and the answer to a
// slave hold it.
func (d *DelayOffsets) Snapshot() codec.DelayOffsets {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.snapshotLocked()
}

func (d *DelayOffsets) snapshotLocked() codec.DelayOffsets {
	return codec.DelayOffsets{DataVersion: d.version, OffsetTable: maps.Clone(d.levels)}
}

// Merge takes progress from another broker and returns how many levels changed.
// Levels it does not name stay. With Follow the others become equal and
// its data version is taken over; with Raise none falls.
func (d *DelayOffsets) Merge(from codec.DelayOffsets, policy MergePolicy) (changed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for level, next := range from.OffsetTable {
		was, ok := d.levels[level]
		if !ok || next > was || next < was && policy == Follow {
			d.levels[level] = next
			changed++
		}
	}
	versionIsNew := policy == Follow && len(from.OffsetTable) > 0 && from.DataVersion != (codec.DataVersion{}) && from.DataVersion != d.version
	if versionIsNew {
		d.version = from.DataVersion
	}
	if changed > 0 || versionIsNew {
		d.changes++
	}
	return changed
}

// Persist writes delayOffset.json if anything changed since it was last written.
func (d *DelayOffsets) Persist() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	table, changes, dirty := d.snapshotLocked(), d.changes, d.changes != d.saved
	d.mu.Unlock()
	if !dirty {
		return nil
	}
	if err := d.files.save(delayFile, table); err != nil {
		return err
	}
	d.mu.Lock()
	d.saved = changes
	d.mu.Unlock()
	return nil
}
