package commitlog

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

const (
	checkpointFileSize = 4096
	checkpointBytes    = 48
	// recoverySlack is how much older than the checkpoint's times a segment's first record must be to be a safe start.
	recoverySlack = 3000
)

// checkpoint is what the file of that name holds (Apache class StoreCheckpoint). Times in ms.
type checkpoint struct {
	physicTime     int64 // records stored up to here are durable
	logicsTime     int64 // and so are their queue units
	indexTime      int64 // of the index, kept as found
	masterFlushed  int64 // kept as found
	confirm        int64 // kept as found
	logicsPosition int64 // log position below which queue units are durable
}

func (c *checkpoint) fields() []*int64 {
	return []*int64{&c.physicTime, &c.logicsTime, &c.indexTime, &c.masterFlushed, &c.confirm, &c.logicsPosition}
}

func (c *checkpoint) encode() []byte {
	b := make([]byte, 0, checkpointBytes)
	for _, f := range c.fields() {
		b = binary.BigEndian.AppendUint64(b, uint64(*f))
	}
	return b
}

func (c *checkpoint) decode(b []byte) {
	for i, f := range c.fields() {
		if at := 8 * i; at+8 <= len(b) {
			*f = int64(binary.BigEndian.Uint64(b[at:]))
		}
	}
}

// sane drops values that no broker can have written, so that a damaged file makes recovery slower and not wrong.
func (c *checkpoint) sane(now, logEnd int64) bool {
	horizon := now + (24 * time.Hour).Milliseconds()
	ok := true
	for i, f := range c.fields() {
		limit := horizon
		if i >= 3 {
			limit = logEnd
		}
		if *f < 0 || *f > limit {
			*f, ok = 0, false
		}
	}
	if !ok {
		c.physicTime, c.logicsTime, c.logicsPosition = 0, 0, 0
	}
	return ok
}

// safeTime is the store time up to which both log and queues are durable.
func (c *checkpoint) safeTime() int64 {
	return max(0, min(c.physicTime, c.logicsTime)-recoverySlack)
}

func (s *Store) checkpointPath() string { return filepath.Join(s.root, "checkpoint") }

func readCheckpoint(fs FS, name string) (c checkpoint, err error) {
	b, err := readFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	c.decode(b)
	return c, err
}

func (s *Store) writeCheckpoint(c checkpoint) error {
	f, err := s.fs.OpenFile(s.checkpointPath(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err == nil && size < checkpointFileSize {
		err = f.Truncate(checkpointFileSize)
	}
	if err == nil {
		_, err = f.WriteAt(c.encode(), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && size < checkpointFileSize {
		err = s.fs.SyncDir(s.root)
	}
	return err
}

// keeper makes consume queues durable, writes checkpoint and manifest, and unmaps idle segments, on its own goroutine.
type keeper struct {
	s    *Store
	stop chan struct{}
	done chan struct{}
	bad  bool // the last try failed

	// Under saveMu:
	cp     checkpoint // what is known to be durable
	disk   checkpoint // as on disk
	thorP  int64      // log position of the last thorough save
	thorAt time.Time
}

const (
	queueFlushLeast = 2 * pageSize
	// thoroughBytes bounds what recovery after a kill has to read again.
	thoroughBytes = 256 << 20
)

func newKeeper(s *Store) *keeper {
	return &keeper{s: s, disk: checkpoint{physicTime: -1}, stop: make(chan struct{}), done: make(chan struct{})}
}

func (k *keeper) run() {
	defer close(k.done)
	tick := time.NewTicker(k.s.opt.QueueFlushInterval)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-k.stop:
			return
		case now := <-tick.C:
			if now.Sub(looked) >= idleLook {
				looked = now
				k.s.unmapIdle()
			}
			if k.due(now) {
				k.report(k.save())
			} else {
				k.report(k.saveSome())
			}
		}
	}
}

// due tells whether everything is to be saved, and not only a part.
func (k *keeper) due(now time.Time) bool {
	k.s.saveMu.Lock()
	defer k.s.saveMu.Unlock()
	return now.Sub(k.thorAt) >= k.s.opt.QueueFlushThorough || k.s.dispatched.Load()-k.thorP >= thoroughBytes
}

func (k *keeper) report(err error) {
	if err != nil && !k.bad {
		k.s.log.Error("consume queues or checkpoint not saved, trying again", zap.Error(err))
	}
	k.bad = err != nil
}

// saveSome makes the queue files with most to lose durable, and moves the checkpoint's time of the log.
func (k *keeper) saveSome() error {
	if err := k.syncQueues(queueFlushLeast); err != nil {
		return err
	}
	d := k.s.dispatch
	d.mu.Lock()
	last := d.last
	d.mu.Unlock()
	k.s.saveMu.Lock()
	defer k.s.saveMu.Unlock()
	if last.end > k.s.flushed.Load() || last.storeTime <= k.cp.physicTime {
		return nil
	}
	cp := k.cp
	cp.physicTime = last.storeTime
	return k.write(cp)
}

// save makes everything dispatched durable, in log and queues, and then says so in checkpoint and manifest. Only what was
// durable before the first byte of either is described.
func (k *keeper) save() error {
	k.s.saveMu.Lock()
	defer k.s.saveMu.Unlock()
	m := k.s.picture()
	if m != nil && k.s.flushed.Load() < m.Position {
		if err := k.s.flush.flush(); err != nil {
			return err
		}
	}
	return k.saveLocked(m)
}

var errUnitsPending = errors.New("consume queue units wait to be written")

// saveLocked is save of a picture whose log is durable. It takes no lock but saveMu, which the caller holds.
func (k *keeper) saveLocked(m *manifest) error {
	s := k.s
	if m == nil {
		return errUnitsPending
	}
	if err := k.syncQueues(1); err != nil {
		return err
	}
	cp := k.cp
	cp.physicTime = max(cp.physicTime, m.lastTime)
	cp.logicsTime = max(cp.logicsTime, m.lastTime)
	cp.logicsPosition = m.Position
	if err := k.write(cp); err != nil {
		return err
	}
	if err := s.writeManifest(m, cp); err != nil {
		return err
	}
	k.thorP, k.thorAt = m.Position, time.Now()
	return nil
}

func (k *keeper) write(cp checkpoint) error {
	if cp == k.disk {
		return nil
	}
	if err := k.s.writeCheckpoint(cp); err != nil {
		return err
	}
	k.cp, k.disk = cp, cp
	return nil
}

// syncQueues makes the files with at least least dirty bytes durable.
func (k *keeper) syncQueues(least int) (err error) {
	s := k.s
	files, dirs := s.dirty.take(least)
	defer func() {
		if err != nil {
			s.dirty.putBack(files, dirs)
		}
	}()
	for key := range files {
		if key.q.dead.Load() {
			continue
		}
		if err := k.syncFile(key); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := s.fs.SyncDir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (k *keeper) syncFile(key fileKey) error {
	o, err := k.s.files.get(key, false)
	if errors.Is(err, os.ErrNotExist) { // deleted or cut meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer k.s.files.put(o)
	return o.f.Datasync()
}
