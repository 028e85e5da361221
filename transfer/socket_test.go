package transfer

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// blockedPair is a socket with a long time-out, and the descriptor of its peer.
func blockedPair(t *testing.T) (*socket, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	s := &socket{fd: fds[0], spare: true}
	require.NoError(t, s.block(time.Hour, time.Hour))
	t.Cleanup(func() { s.close(); _ = unix.Close(fds[1]) })
	return s, fds[1]
}

// TestACollectionEndsAWaitForBytesThatAreExpectedSoon: Go's scheduler does not know of the wait, so nothing but its signal can.
func TestACollectionEndsAWaitForBytesThatAreExpectedSoon(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	s, peer := blockedPair(t)
	read := make(chan error, 1)
	go func() {
		buf := make([]byte, 10)
		parts := []unix.Iovec{{Base: &buf[0], Len: 10}}
		for {
			_, err := s.readv(parts, true)
			if err != unix.EINTR {
				read <- err
				return
			}
			runtime.Gosched()
		}
	}()
	for range 20 {
		runtime.GC() // for ever, if it has to wait for the read
	}
	_, err := unix.Write(peer, []byte("x"))
	require.NoError(t, err)
	require.NoError(t, <-read)
}

func TestAReportWaitsForRoomWhereThereIsNone(t *testing.T) {
	s, peer := blockedPair(t)
	chunk := make([]byte, 64<<10)
	filled := 0
	for {
		n, err := unix.SendmsgN(s.fd, chunk, nil, nil, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			break
		}
		require.NoError(t, err)
		filled += n
	}
	written := make(chan error, 1)
	go func() { written <- s.write([]byte("12345678")) }()
	for got := 0; got < filled+8; {
		n, err := unix.Read(peer, chunk)
		require.NoError(t, err)
		got += n
	}
	require.NoError(t, <-written)
}
