package tables

import (
	"hash/maphash"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"tandem/codec"
)

// shardCount bounds what one change copies: a table of 20,000 names changes by
// copying about 300 entries.
const shardCount = 64

// table is a map from names to values with a data version: readers take no
// lock, writers copy the shard they change. It underlies Topics and Groups, which
// see to it that equal values are deeply equal.
type table[V any] struct {
	files Files
	seed  maphash.Seed

	shards [shardCount]atomic.Pointer[map[string]V]

	mu      sync.Mutex // one writer at a time; guards what follows
	version codec.DataVersion
	own     bool   // may differ from the master's table though the versions are equal
	changes uint64 // grows with each change
	saved   uint64 // value of changes that is on disk

	saving sync.Mutex // one Persist at a time; taken before mu
}

func (t *table[V]) init(files Files) {
	t.files, t.seed = files, maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].Store(&map[string]V{})
	}
	t.version.Timestamp = files.now()
	t.changes = 1 // a table that was never saved is dirty
	t.own = true
}

func (t *table[V]) shard(name string) *atomic.Pointer[map[string]V] {
	return &t.shards[maphash.String(t.seed, name)%shardCount]
}

func (t *table[V]) get(name string) (V, bool) {
	v, ok := (*t.shard(name).Load())[name]
	return v, ok
}

func (t *table[V]) getBytes(name []byte) (V, bool) {
	v, ok := (*t.shards[maphash.Bytes(t.seed, name)%shardCount].Load())[string(name)]
	return v, ok
}

// store and remove need mu and leave the version alone.
func (t *table[V]) store(name string, v V) {
	p := t.shard(name)
	m := maps.Clone(*p.Load())
	m[name] = v
	p.Store(&m)
}

func (t *table[V]) remove(name string) {
	p := t.shard(name)
	m := maps.Clone(*p.Load())
	delete(m, name)
	p.Store(&m)
}

// touch, with mu held, makes the change count for slaves and for the disk.
func (t *table[V]) touch() {
	t.version.Counter++
	t.version.Timestamp = t.files.now()
	t.changes++
	t.own = true
}

func (t *table[V]) put(name string, v V) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.putLocked(name, v)
}

func (t *table[V]) putLocked(name string, v V) (changed bool) {
	if old, ok := t.get(name); ok && reflect.DeepEqual(old, v) {
		return false
	}
	t.store(name, v)
	t.touch()
	return true
}

// ensure returns the entry, made by create if there is none yet.
func (t *table[V]) ensure(name string, create func() (V, bool)) (v V, created, ok bool) {
	if v, ok = t.get(name); ok {
		return v, false, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.get(name); ok {
		return v, false, true
	}
	if v, ok = create(); !ok {
		return v, false, false
	}
	t.putLocked(name, v)
	return v, true, true
}

func (t *table[V]) delete(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.get(name); !ok {
		return false
	}
	t.remove(name)
	t.touch()
	return true
}

func (t *table[V]) dataVersion() codec.DataVersion {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}

// snapshot copies the table and its version as they are at one moment.
func (t *table[V]) snapshot() (map[string]V, codec.DataVersion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copyLocked(), t.version
}

func (t *table[V]) copyLocked() map[string]V {
	n := 0
	for i := range t.shards {
		n += len(*t.shards[i].Load())
	}
	all := make(map[string]V, n)
	for i := range t.shards {
		maps.Copy(all, *t.shards[i].Load())
	}
	return all
}

// diff is what replace did.
type diff struct {
	added, changed, removed []string
	dirty                   bool
}

// replace makes the table equal to from and takes its version as it is. Each
// name goes from its old value to its new one in one step; one that both
// have is never missing. Equal versions mean nothing is to be done, unless the
// table had changes of its own since the last replace: their version can be equal
// by chance.
func (t *table[V]) replace(from map[string]V, version codec.DataVersion) (d diff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if version == t.version && !t.own || len(from) == 0 {
		return diff{}
	}
	parts := t.partition(from)
	for i := range parts {
		if t.diffShard(*t.shards[i].Load(), parts[i], &d) {
			t.shards[i].Store(&parts[i])
		}
	}
	d.dirty = version != t.version || len(d.added)+len(d.changed)+len(d.removed) > 0
	if d.dirty {
		t.changes++
	}
	t.version, t.own = version, false
	return d
}

func (t *table[V]) partition(all map[string]V) *[shardCount]map[string]V {
	var parts [shardCount]map[string]V
	for i := range parts {
		parts[i] = make(map[string]V, len(all)/shardCount+1)
	}
	for name, v := range all {
		parts[maphash.String(t.seed, name)%shardCount][name] = v
	}
	return &parts
}

func (t *table[V]) diffShard(old, new map[string]V, d *diff) (differs bool) {
	before := len(d.added) + len(d.changed) + len(d.removed)
	for name, v := range new {
		switch was, ok := old[name]; {
		case !ok:
			d.added = append(d.added, name)
		case !reflect.DeepEqual(was, v):
			d.changed = append(d.changed, name)
		}
	}
	for name := range old {
		if _, ok := new[name]; !ok {
			d.removed = append(d.removed, name)
		}
	}
	return len(d.added)+len(d.changed)+len(d.removed) > before
}

// setLoaded puts what a file held over what is there. With a nil version there
// was no file, and the table stays dirty.
func (t *table[V]) setLoaded(from map[string]V, version *codec.DataVersion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := t.partition(from)
	for i := range parts {
		m := maps.Clone(*t.shards[i].Load())
		maps.Copy(m, parts[i])
		t.shards[i].Store(&m)
	}
	if version != nil {
		t.version, t.saved = *version, t.changes
	}
}

// persist hands the table to write if it changed since it was last written.
func (t *table[V]) persist(write func(all map[string]V, version codec.DataVersion) error) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	if t.changes == t.saved {
		t.mu.Unlock()
		return nil
	}
	all, version, changes := t.copyLocked(), t.version, t.changes
	t.mu.Unlock()

	if err := write(all, version); err != nil {
		return err
	}
	t.mu.Lock()
	t.saved = changes
	t.mu.Unlock()
	return nil
}
