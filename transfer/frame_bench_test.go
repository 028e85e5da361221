package transfer

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/commitlog"
)

// benchPair is a connection whose far end throws away what comes, in the kernel: what is left is the sender's cost.
func benchPair(b *testing.B) (fd int) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	far, err := ln.Accept()
	require.NoError(b, err)
	out, err := takeOver(near.(*net.TCPConn), 0, 0)
	require.NoError(b, err)
	in, err := takeOver(far.(*net.TCPConn), 30*time.Second, 0)
	require.NoError(b, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		throwAway(in.fd)
	}()
	b.Cleanup(func() {
		out.close()
		<-done
		in.close()
	})
	return out.fd
}

func throwAway(fd int) {
	room := make([]byte, 1<<20)
	for {
		n, _, err := unix.Recvfrom(fd, room, unix.MSG_TRUNC)
		if n == 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}

// BenchmarkFrame sends frames in each mode. ns/op is the time of one frame; cold frames are dropped from memory before.
func BenchmarkFrame(b *testing.B) {
	o := storeOptions(b.TempDir(), false)
	o.SegmentSize = 64 << 20
	store := openStore(b, o)
	for store.End() < 60<<20 {
		put(b, store, 60000)
	}
	store.FlushTo(store.End())
	for _, cold := range []bool{false, true} {
		for _, size := range []int{300, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20} {
			for _, mode := range []string{"sendfile", "mmap", "copy"} {
				b.Run(fmt.Sprintf("cold=%v/%d/%s", cold, size, mode), func(b *testing.B) { benchFrame(b, store, mode, size, cold) })
			}
		}
	}
}

func benchFrame(b *testing.B, store *commitlog.Store, mode string, size int, cold bool) {
	o := masterOptions()
	o.Mode, _ = ParseMode(mode)
	o.fill()
	m := newMaster(o, store)
	defer m.cancel()
	fd := benchPair(b)
	var f frame
	at := int64(0)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if at+int64(size) > store.End() {
			at = 0
		}
		if cold {
			b.StopTimer()
			forget(b, store)
			b.StartTimer()
		}
		for left := size; left > 0; {
			body, err := m.pin(at, int64(left), !cold, &f)
			if err != nil {
				b.Fatal(err)
			}
			f.begin(at, body)
			n := body.left
			at += int64(n)
			for f.pending() {
				_, _, err := f.send(fd)
				if err == errAgain {
					err = awaitRoom(fd)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			left -= n
		}
	}
}

// forget drops the first segment's pages from memory, and from this process's tables first: pages that are mapped stay.
func forget(b testing.TB, store *commitlog.Store) {
	segment, err := store.Segment(0)
	require.NoError(b, err)
	defer segment.Release()
	require.NoError(b, unix.Madvise(segment.Bytes(), unix.MADV_DONTNEED))
	require.NoError(b, unix.Fadvise(int(segment.File().Fd()), 0, 0, unix.FADV_DONTNEED))
}
