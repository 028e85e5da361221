package commitlog

import (
	"container/list"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// openQueueFiles bounds the number of consume queue files open at a time.
const openQueueFiles = 512

// fileKey names one file of one queue.
type fileKey struct {
	q    *Queue
	base int64 // first unit's number
}

// openFile is a cached descriptor. It is closed when it is neither cached nor in use.
type openFile struct {
	key    fileKey
	f      File
	users  int
	cached bool
	elem   *list.Element
}

// fileCache keeps recently used queue files open. Safe from any goroutine.
type fileCache struct {
	fs   FS
	max  int
	mu   sync.Mutex
	open map[fileKey]*openFile
	lru  list.List // front: most recent
}

func newFileCache(fs FS, max int) *fileCache {
	return &fileCache{fs: fs, max: max, open: make(map[fileKey]*openFile)}
}

// get returns the file in use; put gives it back. With create a missing or short file gets its full (sparse) length.
func (c *fileCache) get(key fileKey, create bool) (*openFile, error) {
	c.mu.Lock()
	if o := c.open[key]; o != nil {
		o.users++
		c.lru.MoveToFront(o.elem)
		c.mu.Unlock()
		return o, nil
	}
	c.mu.Unlock()

	f, err := c.openFile(key, create)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.open[key]; o != nil { // somebody was faster
		f.Close()
		o.users++
		return o, nil
	}
	o := &openFile{key: key, f: f, users: 1, cached: true}
	o.elem = c.lru.PushFront(o)
	c.open[key] = o
	if c.lru.Len() > c.max {
		c.evict(c.lru.Back().Value.(*openFile))
	}
	return o, nil
}

func (c *fileCache) openFile(key fileKey, create bool) (File, error) {
	name := key.q.path(key.base)
	if !create {
		return c.fs.OpenFile(name, os.O_RDWR, 0)
	}
	f, err := c.fs.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		if err = c.fs.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			f, err = c.fs.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		}
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size < key.q.fileSize() {
		err = f.Truncate(key.q.fileSize())
		key.q.s.dirty.madeFile(key)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (c *fileCache) put(o *openFile) {
	c.mu.Lock()
	o.users--
	shut := o.users == 0 && !o.cached
	c.mu.Unlock()
	if shut {
		o.f.Close()
	}
}

// evict needs c.mu.
func (c *fileCache) evict(o *openFile) {
	delete(c.open, o.key)
	c.lru.Remove(o.elem)
	o.cached = false
	if o.users == 0 {
		o.f.Close()
	}
}

// forget drops a queue's files from the cache.
func (c *fileCache) forget(q *Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, o := range c.open {
		if key.q == q {
			c.evict(o)
		}
	}
}

func (c *fileCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.open {
		c.evict(o)
	}
}

// readUnits fills b from a queue file; what the file does not hold reads as zeros.
func (c *fileCache) readUnits(key fileKey, b []byte, off int64) error {
	o, err := c.get(key, false)
	if errors.Is(err, os.ErrNotExist) {
		clear(b)
		return nil
	}
	if err != nil {
		return err
	}
	defer c.put(o)
	n, err := o.f.ReadAt(b, off)
	clear(b[n:])
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// dirtySet remembers what of the consume queues is not durable yet.
type dirtySet struct {
	mu    sync.Mutex
	files map[fileKey]int // bytes written since the last sync
	dirs  map[string]struct{}
}

func newDirtySet() *dirtySet {
	return &dirtySet{files: make(map[fileKey]int), dirs: make(map[string]struct{})}
}

// wrote must be called before the bytes are written.
func (d *dirtySet) wrote(key fileKey, n int) {
	d.mu.Lock()
	d.files[key] += n
	d.mu.Unlock()
}

// madeFile notes that a new file's name, and those of the directories above it, are not durable.
func (d *dirtySet) madeFile(key fileKey) {
	d.mu.Lock()
	dir := filepath.Dir(key.q.path(key.base))
	d.dirs[dir] = struct{}{}
	d.dirs[filepath.Dir(dir)] = struct{}{}
	d.dirs[filepath.Dir(filepath.Dir(dir))] = struct{}{}
	d.mu.Unlock()
}

// take removes and returns the files with at least least dirty bytes, and, with least ≤ 1, the directories.
func (d *dirtySet) take(least int) (files map[fileKey]int, dirs map[string]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if least <= 1 {
		files, dirs = d.files, d.dirs
		d.files, d.dirs = make(map[fileKey]int), make(map[string]struct{})
		return files, dirs
	}
	for key, n := range d.files {
		if n >= least {
			if files == nil {
				files = make(map[fileKey]int)
			}
			files[key] = n
			delete(d.files, key)
		}
	}
	return files, nil
}

func (d *dirtySet) putBack(files map[fileKey]int, dirs map[string]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, n := range files {
		d.files[key] += n
	}
	for dir := range dirs {
		d.dirs[dir] = struct{}{}
	}
}

func (d *dirtySet) forget(q *Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.files {
		if key.q == q {
			delete(d.files, key)
		}
	}
}
