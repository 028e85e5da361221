package tables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
)

// Files is where the tables keep their files. The zero value of each field but
// Dir is usable. A Files is a plain value; copies are alike.
type Files struct {
	// Dir is the config directory (storePathRootDir/config). It is created,
	// with mode 0755, when the first table is saved.
	Dir string
	// Logger hears of files that had to be replaced by their .bak. Nil is silent.
	Logger *zap.Logger
	// Now gives the time, in ms since 1970, that goes into data versions. Nil
	// is the wall clock.
	Now func() int64

	sync func(*os.File) error // nil: (*os.File).Sync; a seam for tests
}

const (
	backupSuffix  = ".bak"
	tempSuffix    = ".tmp"
	damagedSuffix = ".damaged"
)

func (f Files) now() int64 {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now().UnixMilli()
}

func (f Files) log() *zap.Logger {
	if f.Logger != nil {
		return f.Logger
	}
	return zap.NewNop()
}

func (f Files) path(name string) string { return filepath.Join(f.Dir, name) }

// load reads the named file into what fresh returns, or failing that its .bak,
// with a warning. It returns a nil pointer if neither file exists. If a
// file is there but none can be read the error is ErrDamaged: a table with
// contents is never taken for an empty one.
//
// A damaged main file whose .bak was good is moved aside (name.damaged), so
// that the next save can't put it in the place of the good .bak.
func load[T any](f Files, name string) (*T, error) {
	main, mainErr := read[T](f.path(name))
	if mainErr == nil {
		return main, nil
	}
	backup, backupErr := read[T](f.path(name + backupSuffix))
	missing, backupMissing := errors.Is(mainErr, fs.ErrNotExist), errors.Is(backupErr, fs.ErrNotExist)
	switch {
	case backupErr == nil:
		f.log().Warn("table file can't be used, taking the previous version of it",
			zap.String("file", f.path(name)), zap.Error(mainErr), zap.String("using", f.path(name+backupSuffix)))
		if !missing {
			f.setAside(name)
		}
		return backup, nil
	case missing && backupMissing:
		return nil, nil
	default:
		return nil, fmt.Errorf("%w: neither %s (%w) nor %s (%w) can be read; put a good copy of one there, "+
			"or move both away to start with an empty table",
			ErrDamaged, f.path(name), reason(mainErr), f.path(name+backupSuffix), reason(backupErr))
	}
}

// reason shortens the error of a missing file, whose path is named already.
func reason(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	return err
}

func (f Files) setAside(name string) {
	err := os.Rename(f.path(name), f.path(name+damagedSuffix))
	if err != nil {
		f.log().Warn("damaged table file can't be moved aside", zap.String("file", f.path(name)), zap.Error(err))
	}
}

var errNotObject = errors.New("not a JSON object")

func read[T any](path string) (*T, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse[T](text)
}

// parse reads one whole JSON object: what codec.Unmarshal lets pass behind it
// would be the trace of a save gone wrong.
func parse[T any](text []byte) (*T, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("empty file")
	}
	if text[0] != '{' || text[len(text)-1] != '}' {
		return nil, errNotObject
	}
	v := new(T)
	if err := codec.Unmarshal(text, v); err != nil {
		return nil, err
	}
	return v, nil
}

// save writes v as the named file: to a temporary file that is fsynced, the old
// file becomes .bak by rename, the temporary one takes its place, the directory
// is fsynced. After a crash at any point load finds the old or the new table.
func (f Files) save(name string, v any) error {
	text, err := codec.MarshalIndent(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	if err := f.replace(name, text); err != nil {
		return fmt.Errorf("save %s: %w", f.path(name), err)
	}
	return nil
}

func (f Files) replace(name string, text []byte) error {
	temp := f.path(name + tempSuffix)
	if err := f.writeSynced(temp, text); err != nil {
		return err
	}
	err := os.Rename(f.path(name), f.path(name+backupSuffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(temp, f.path(name)); err != nil {
		return err
	}
	return f.syncDir()
}

func (f Files) fsync(file *os.File) error {
	if f.sync != nil {
		return f.sync(file)
	}
	return file.Sync()
}

func (f Files) writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = f.fsync(file)
	}
	return errors.Join(err, file.Close())
}

func (f Files) syncDir() error {
	d, err := os.Open(f.Dir)
	if err != nil {
		return err
	}
	return errors.Join(f.fsync(d), d.Close())
}
