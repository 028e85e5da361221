package commitlog

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// manifestName is a file of our own beside the checkpoint. RocketMQ neither reads nor writes it.
const manifestName = "tandem-store.json"

const manifestVersion = 1

// manifest is a consistent picture of the store: at log position Position, everything below it was durable in log and
// queues, and the queues ended as said. It lets a start find damaged queue files without reading the log, begin recovery
// exactly where it has to, and know about deleted topics. It counts only while the checkpoint is the one it was written
// with: after a Java broker ran on the store, it does not.
type manifest struct {
	Version    int   `json:"version"`
	LogicsTime int64 `json:"logicsMsgTimestamp"`   // the checkpoint's
	LogicsPos  int64 `json:"logicsPhysicalOffset"` // the checkpoint's
	Position   int64 `json:"position"`
	LastRecord int64 `json:"lastRecord"` // start of the record that ends the picture, -1 if there is none
	Holes      bool  `json:"holes"`      // a queue lacks numbers

	Queues  map[string]map[int32][2]int64 `json:"queues"`  // number of the first file's first unit, end number
	Deleted map[string]int64              `json:"deleted"` // topics whose records below a position count for nothing

	lastTime int64
}

// picture takes a manifest of the present state.
func (s *Store) picture() *manifest {
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	return s.pictureLocked()
}

// pictureLocked is picture for holders of the dispatch lock; nil while units wait to be written.
func (s *Store) pictureLocked() *manifest {
	d := s.dispatch
	if len(d.touched) > 0 {
		return nil
	}
	m := &manifest{
		Version: manifestVersion, Position: s.dispatched.Load(), LastRecord: d.last.start, Holes: d.holes,
		Queues: make(map[string]map[int32][2]int64), Deleted: make(map[string]int64), lastTime: d.last.storeTime,
	}
	if d.last.end == 0 {
		m.LastRecord = -1
	}
	for _, q := range s.queues.all() {
		if end := q.max.Load(); end > 0 {
			if m.Queues[q.topic] == nil {
				m.Queues[q.topic] = make(map[int32][2]int64)
			}
			m.Queues[q.topic][q.id] = [2]int64{q.first, end}
		}
	}
	s.queues.mu.RLock()
	for topic, floor := range s.queues.floors {
		if floor > s.MinOffset() {
			m.Deleted[topic] = floor
		}
	}
	s.queues.mu.RUnlock()
	return m
}

func (s *Store) manifestPath() string { return filepath.Join(s.root, manifestName) }

func (s *Store) writeManifest(m *manifest, cp checkpoint) error {
	m.LogicsTime, m.LogicsPos = cp.logicsTime, cp.logicsPosition
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFileDurably(s.fs, s.manifestPath(), append(b, '\n'))
}

// readManifest returns nil if there is none that describes this store.
func (s *Store) readManifest(cp checkpoint) (*manifest, error) {
	b, err := readFile(s.fs, s.manifestPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	if json.Unmarshal(b, &m) != nil || m.Version != manifestVersion || m.Position < 0 {
		s.log.Warn("manifest is damaged; the log is read to check the consume queues: " + s.manifestPath())
		return nil, nil
	}
	if m.LogicsTime != cp.logicsTime || m.LogicsPos != cp.logicsPosition {
		return nil, nil // another broker was here
	}
	return &m, nil
}
