package commitlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// takeLock locks the store directory for the life of the process, as RocketMQ does.
func (s *Store) takeLock() error {
	name := filepath.Join(s.root, "lock")
	l, err := s.fs.Lock(name)
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w: %s is in use by another broker; stop it, or give this one another storePathRootDir", ErrLocked, s.root)
	}
	if err != nil {
		return fmt.Errorf("lock store: %w", err)
	}
	s.lock = l
	f, err := s.fs.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("lock"), 0)
		f.Close()
	}
	if err != nil {
		l.Close()
		return fmt.Errorf("lock store: %w", err)
	}
	return nil
}

func (s *Store) abortPath() string { return filepath.Join(s.root, "abort") }

// wasAborted tells whether the last user of the store did not stop cleanly.
func (s *Store) wasAborted() (bool, error) {
	f, err := s.fs.OpenFile(s.abortPath(), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// makeAbort marks the store as in use: only a clean stop removes the mark.
func (s *Store) makeAbort() error {
	f, err := s.fs.OpenFile(s.abortPath(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(fmt.Sprint(os.Getpid())), 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.fs.SyncDir(s.root)
	}
	return err
}

func (s *Store) removeAbort() error {
	if err := s.fs.Remove(s.abortPath()); err != nil {
		return err
	}
	return s.fs.SyncDir(s.root)
}
