package commitlog

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	mmap "github.com/edsrzf/mmap-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// faultFS is the real file system with faults: it fails the calls that fail tells it to, and knows what a power failure
// would leave: of each file the content at its last sync, of each directory the names at its last sync.
type faultFS struct {
	OSFS
	mu      sync.Mutex
	fail    func(op, name string) error
	content map[uint64]string            // by inode
	names   map[string]map[string]uint64 // by directory
}

func newFaultFS() *faultFS {
	return &faultFS{content: make(map[uint64]string), names: make(map[string]map[string]uint64)}
}

func (f *faultFS) setFail(fail func(op, name string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faultFS) check(op, name string) error {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op, name)
}

func (f *faultFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	if err := f.check("open", name); err != nil {
		return nil, err
	}
	o, err := f.OSFS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: o, fs: f, name: name}, nil
}

func (f *faultFS) CreateUnnamed(dir string) (File, error) {
	if err := f.check("create", dir); err != nil {
		return nil, err
	}
	o, err := f.OSFS.CreateUnnamed(dir)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: o, fs: f, name: dir}, nil
}

func (f *faultFS) Link(file File, name string) error {
	if err := f.check("link", name); err != nil {
		return err
	}
	return f.OSFS.Link(file, name)
}

func (f *faultFS) Rename(from, to string) error {
	if err := f.check("rename", to); err != nil {
		return err
	}
	return f.OSFS.Rename(from, to)
}

func (f *faultFS) Remove(name string) error {
	if err := f.check("remove", name); err != nil {
		return err
	}
	return f.OSFS.Remove(name)
}

func (f *faultFS) SyncDir(dir string) error {
	if err := f.check("syncdir", dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	names := make(map[string]uint64)
	for _, e := range entries {
		var st unix.Stat_t
		if !e.IsDir() && unix.Stat(filepath.Join(dir, e.Name()), &st) == nil {
			names[e.Name()] = st.Ino
		}
	}
	f.mu.Lock()
	f.names[dir] = names
	f.mu.Unlock()
	return nil
}

// synced notes a file's content as durable.
func (f *faultFS) synced(file File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.OS().Fd()), &st); err != nil {
		return err
	}
	b := make([]byte, st.Size)
	if _, err := file.ReadAt(b, 0); err != nil && st.Size > 0 {
		return err
	}
	f.mu.Lock()
	f.content[st.Ino] = string(b)
	f.mu.Unlock()
	return nil
}

// syncedRange notes a part of a file's content as durable; what was not synced before reads as zeros.
func (f *faultFS) syncedRange(file File, from, to int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.OS().Fd()), &st); err != nil {
		return err
	}
	part := make([]byte, min(to, st.Size)-from)
	if _, err := file.ReadAt(part, from); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, st.Size)
	copy(b, f.content[st.Ino])
	copy(b[from:], part)
	f.content[st.Ino] = string(b)
	return nil
}

// powerFailure makes what would be left in a new directory. Directories themselves are taken to be durable.
func (f *faultFS) powerFailure(t testing.TB, root string) string {
	t.Helper()
	to := tempDir(t)
	require.NoError(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		rel, _ := filepath.Rel(root, p)
		return os.MkdirAll(filepath.Join(to, rel), 0o755)
	}))
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir, names := range f.names {
		rel, err := filepath.Rel(root, dir)
		if err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		for name, ino := range names {
			if _, err := os.Stat(filepath.Join(to, rel)); err != nil {
				continue // a deleted topic's
			}
			require.NoError(t, os.WriteFile(filepath.Join(to, rel, name), []byte(f.content[ino]), 0o644))
		}
	}
	return to
}

type faultFile struct {
	File
	fs   *faultFS
	name string
}

func (f *faultFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.check("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f *faultFile) Allocate(size int64) error {
	if err := f.fs.check("allocate", f.name); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *faultFile) Sync() error {
	if err := f.fs.check("sync", f.name); err != nil {
		return err
	}
	return f.fs.synced(f.File)
}

func (f *faultFile) DatasyncRange(mem mmap.MMap, from, to int64) error {
	if err := f.fs.check("datasync", f.name); err != nil {
		return err
	}
	return f.fs.syncedRange(f.File, from-from%pageSize, to+(pageSize-to%pageSize)%pageSize)
}

func (f *faultFile) Datasync() error {
	if err := f.fs.check("datasync", f.name); err != nil {
		return err
	}
	return f.fs.synced(f.File)
}
