package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	mmap "github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// FS is what the store asks of a file system. The operating system is behind it in production ([OSFS]); tests put fault
// injectors between. Implementations are safe for concurrent use. Errors are those of package os, so that errors.Is with
// fs.ErrNotExist or a unix.Errno works.
type FS interface {
	// OpenFile is os.OpenFile.
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	// CreateUnnamed makes a file in dir that has no name yet and vanishes if it never gets one.
	CreateUnnamed(dir string) (File, error)
	// Link gives an unnamed file its name. The name must be free.
	Link(f File, name string) error
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(name string, perm os.FileMode) error
	ReadDir(name string) ([]os.DirEntry, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Lock takes the exclusive lock on byte 0 of the named file, or returns ErrLocked.
	Lock(name string) (io.Closer, error)
}

// File is an open file of an [FS].
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// Sync makes content and all attributes durable, Datasync the content and what is needed to read it back.
	Sync() error
	Datasync() error
	// DatasyncRange is Datasync of the pages that hold bytes [from, to), written through mem, a mapping of this file from its start. Other
	// pages are neither written nor protected against being dirtied.
	DatasyncRange(mem mmap.MMap, from, to int64) error
	Truncate(size int64) error
	// Allocate gives bytes [0, size) disk space without changing what they hold.
	Allocate(size int64) error
	// NextData is the first position at or after off that may hold anything but zeros; io.EOF if there is none.
	NextData(off int64) (int64, error)
	// ZeroRange makes bytes [off, off+n) zero without writing them and without giving their space back; errNoZeroRange where the file
	// system cannot.
	ZeroRange(off, n int64) error
	// Map maps bytes [0, size).
	Map(size int64, writable bool) (mmap.MMap, error)
	// OS is the descriptor for sendfile.
	OS() *os.File
}

// OSFS is the operating system's file system.
type OSFS struct{}

func (OSFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (OSFS) CreateUnnamed(dir string) (File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, &os.PathError{Op: "create unnamed file in", Path: dir, Err: err}
	}
	return osFile{os.NewFile(uintptr(fd), filepath.Join(dir, "(unnamed)"))}, nil
}

func (OSFS) Link(f File, name string) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(f.OS().Fd()))
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

func (OSFS) Rename(from, to string) error                 { return os.Rename(from, to) }
func (OSFS) Remove(name string) error                     { return os.Remove(name) }
func (OSFS) MkdirAll(name string, perm os.FileMode) error { return os.MkdirAll(name, perm) }
func (OSFS) ReadDir(name string) ([]os.DirEntry, error)   { return os.ReadDir(name) }

func (OSFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Lock uses an open-file-description lock: it conflicts with the record lock a Java broker takes on the same byte, and,
// unlike that one, also with a second store in this process.
func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
		f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, name)
		}
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

type osFile struct{ f *os.File }

func (o osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o osFile) Close() error                             { return o.f.Close() }
func (o osFile) Sync() error                              { return o.f.Sync() }
func (o osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o osFile) OS() *os.File                             { return o.f }

func (o osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o osFile) Datasync() error {
	return o.uninterrupted("fdatasync", func() error { return unix.Fdatasync(int(o.f.Fd())) })
}

// uninterrupted makes a system call again that a signal has ended.
func (o osFile) uninterrupted(name string, call func() error) error {
	for {
		switch err := call(); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return &os.PathError{Op: name, Path: o.f.Name(), Err: err}
		}
	}
}

// DatasyncRange uses msync, which is fdatasync with a range: the same waiting, journal and errors.
func (o osFile) DatasyncRange(mem mmap.MMap, from, to int64) error {
	return o.uninterrupted("msync", func() error { return unix.Msync(mem[from-from%pageSize:to], unix.MS_SYNC) })
}

func (o osFile) Allocate(size int64) error {
	return o.uninterrupted("fallocate", func() error { return unix.Fallocate(int(o.f.Fd()), 0, 0, size) })
}

func (o osFile) NextData(off int64) (int64, error) {
	at, err := unix.Seek(int(o.f.Fd()), off, unix.SEEK_DATA)
	switch {
	case err == nil:
		return at, nil
	case errors.Is(err, unix.ENXIO):
		return 0, io.EOF
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, nil // this file system cannot tell
	}
	return 0, &os.PathError{Op: "seek data", Path: o.f.Name(), Err: err}
}

func (o osFile) ZeroRange(off, n int64) error {
	err := unix.Fallocate(int(o.f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return errNoZeroRange
	}
	return &os.PathError{Op: "zero range", Path: o.f.Name(), Err: err}
}

func (o osFile) Map(size int64, writable bool) (mmap.MMap, error) {
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	m, err := mmap.MapRegion(o.f, int(size), prot, 0, 0)
	if err != nil {
		return nil, &os.PathError{Op: "map", Path: o.f.Name(), Err: err}
	}
	return m, nil
}

// isDiskFull tells lack of space or quota from other causes.
func isDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

const (
	zeroChunk = 1 << 20
	zeroLook  = 8 << 20
)

// zeroFrom makes every byte of [off, size) zero and returns the position after the last one found that was not, 0 if there was none. The
// first zeroLook bytes that may hold data are read, and written only where they do: a sparse file stays sparse and a full disk
// does not matter. What lies further on is cleared unread, so that the time does not grow with the segment.
func zeroFrom(f File, off, size int64) (last int64, err error) {
	var buf []byte
	for read := int64(0); off < size; {
		if read >= zeroLook && off%zeroChunk == 0 {
			err := f.ZeroRange(off, size-off)
			if !errors.Is(err, errNoZeroRange) {
				return last, err
			}
		}
		at, err := f.NextData(off)
		if errors.Is(err, io.EOF) || err == nil && at >= size {
			break
		}
		if err != nil {
			return last, err
		}
		if buf == nil {
			buf = make([]byte, zeroChunk)
		}
		chunk := buf[:min(zeroChunk-at%zeroChunk, size-at)]
		n, err := f.ReadAt(chunk, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return last, err
		}
		if used := usedLen(chunk[:n]); used > 0 {
			clear(chunk[:used])
			if _, err := f.WriteAt(chunk[:used], at); err != nil {
				return last, err
			}
			last = at + int64(used)
		}
		off = at + int64(len(chunk))
		read += int64(len(chunk))
	}
	return last, nil
}

// usedLen is the length of b without the zeros at its end.
func usedLen(b []byte) int {
	for i := len(b); i > 0; i-- {
		if b[i-1] != 0 {
			return i
		}
	}
	return 0
}

// sameBytes tells whether a file holds b at off.
func sameBytes(f File, b []byte, off int64) bool {
	have := make([]byte, len(b))
	n, _ := f.ReadAt(have, off)
	return n == len(b) && bytes.Equal(have, b)
}

// writeFileDurably replaces a small file so that after any crash either the old or the new content is there.
func writeFileDurably(fs FS, name string, content []byte) error {
	tmp := name + ".tmp"
	f, err := fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(tmp, name)
	}
	if err != nil {
		_ = fs.Remove(tmp)
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}

// readFile reads a small file whole.
func readFile(fs FS, name string) ([]byte, error) {
	f, err := fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// giveWay lets the system run threads that wait for this processor: an event loop, or a slave's receiver for which a producer is
// waiting. Work that nobody waits for calls it every few 10 µs; where nothing waits it costs next to nothing.
func giveWay() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
