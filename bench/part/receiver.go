package part

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Receiver takes one connection and reads Bytes from it straight into a mapped file whose pages nobody has touched before, as a
// slave's next segment is. Then it answers with the number in eight bytes and ends. The file is allocated beforehand. Its pages are
// prepared from the connection's begin on, ahead of what is read, by a thread of its own: reading meets no page faults as long as that
// keeps ahead.
type Receiver struct {
	Listen string
	File   string // made new, and removed at the end
	Bytes  int64
}

// readChunk is the most that is read at once.
const readChunk = 1 << 20

// ErrSize says that a size makes no sense.
var ErrSize = errors.New("bad size")

// Serve implements Part.
func (r Receiver) Serve(ctx context.Context, out io.Writer) (err error) {
	if r.Bytes < 1 {
		return fmt.Errorf("%w: %d bytes to receive, 1 or more are expected", ErrSize, r.Bytes)
	}
	memory, remove, err := mapNew(r.File, r.Bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	ln, stop, err := listen(ctx, r.Listen, out)
	if err != nil {
		return err
	}
	defer stop()
	c, err := ln.Accept()
	if err != nil {
		return ended(ctx, err)
	}
	defer closeWith(ctx, c)()
	return ended(ctx, receive(c, memory))
}

func receive(c net.Conn, memory []byte) error {
	w := startWindow(memory)
	defer w.close()
	total := uint64(len(memory))
	for at := 0; at < len(memory); {
		n, err := c.Read(memory[at:min(len(memory), at+readChunk)])
		at += n
		if err != nil {
			return fmt.Errorf("%d bytes before the end: %w", len(memory)-at, err)
		}
		w.advance(at)
	}
	_, err := c.Write(binary.BigEndian.AppendUint64(nil, total))
	return err
}

// mapNew makes a file with all its disk space and maps it.
func mapNew(path string, size int64) (memory []byte, remove func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the mapping stays
	if err = unix.Fallocate(int(f.Fd()), 0, 0, size); err == nil {
		memory, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s, %d bytes: %w", path, size, err), os.Remove(path))
	}
	return memory, func() error { return errors.Join(unix.Munmap(memory), os.Remove(path)) }, nil
}
