package engine

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// segmentsOut is the number of segments with data that a connection has sent. Loop only.
func segmentsOut(c *conn) int {
	info, err := unix.GetsockoptTCPInfo(c.gc.Fd(), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		panic(err)
	}
	return int(info.Data_segs_out)
}

// fullListener is the address of a socket that listens and whose queue is full: a dial to it hangs.
func fullListener(t testing.TB) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}
