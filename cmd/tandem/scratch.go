package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// scratch is where child processes keep their files: the directory given, which stays, or one of our own, which is removed.
type scratch struct {
	dir  string
	ours bool
}

func newScratch(dir, name string) (scratch, error) {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "tandem-"+name+"-")
		return scratch{tmp, true}, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return scratch{}, fmt.Errorf("--dir=%s: %w", dir, err)
	}
	return scratch{dir: abs}, os.MkdirAll(abs, 0o755)
}

func (s scratch) Close() error {
	if !s.ours {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// inScratch runs do with a scratch and the path of our own executable, which child processes run.
func inScratch(dir, name string, do func(files scratch, binary string) error) (err error) {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own executable: %w", err)
	}
	files, err := newScratch(dir, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	return do(files, binary)
}
