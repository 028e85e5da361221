package part

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inMemory counts the pages of a mapping that are in memory, from its begin up to the first that is not.
func inMemory(t *testing.T, m []byte) int {
	page := os.Getpagesize()
	pages := make([]byte, (len(m)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	n := bytes.IndexFunc(pages, func(r rune) bool { return r&1 == 0 })
	if n < 0 {
		n = len(pages)
	}
	return n * page
}

func mapping(t *testing.T, size int64) []byte {
	memory, remove, err := mapNew(filepath.Join(t.TempDir(), "f"), size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, remove()) })
	return memory
}

// populates tells whether the kernel prepares pages when it is asked to; before Linux 5.14 it does not.
func populates(m []byte) bool {
	return unix.Madvise(m[:os.Getpagesize()], unix.MADV_POPULATE_WRITE) == nil
}

// slack is more than the kernel reads around a page that is touched.
const slack = 32 << 20

// reaches waits until so much from the begin on is in memory.
func reaches(t *testing.T, memory []byte, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return inMemory(t, memory) >= n }, 30*time.Second, time.Millisecond)
}

func TestPagesArePreparedAheadOfWhatIsReadAndNoFurther(t *testing.T) {
	memory := mapping(t, windowAhead+4*slack+17)
	require.Zero(t, inMemory(t, memory), "nobody has touched the file")
	w := startWindow(memory)
	defer w.close()
	if !populates(memory) {
		return
	}
	reaches := func(n int) { reaches(t, memory, n) }
	reaches(windowAhead)
	require.Less(t, inMemory(t, memory), windowAhead+slack, "it waits for the reader")
	w.advance(3 * windowChunk)
	reaches(windowAhead + 3*windowChunk)
	w.advance(len(memory))
	<-w.ended
	reaches(len(memory))
}

func TestAWindowThatIsClosedEndsAtOnce(t *testing.T) {
	memory := mapping(t, 4*windowAhead)
	w := startWindow(memory)
	if populates(memory) {
		reaches(t, memory, windowAhead)
	}
	w.close()
	require.False(t, w.wait(0))
	w.advance(windowChunk)
}

func TestAChunkHasTimeUntilTheReaderComesNear(t *testing.T) {
	w := &window{}
	require.False(t, w.farAhead(0))
	require.False(t, w.farAhead(windowAhead-windowChunk))
	require.True(t, w.farAhead(windowAhead))
	w.read = 1
	require.False(t, w.farAhead(windowAhead))
}

func TestAReceiverWhosePeerGoesEarlyPreparesNoMore(t *testing.T) {
	memory := mapping(t, 4*windowAhead)
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- receive(there, memory) }()
	_, err := here.Write(make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, here.Close())
	require.ErrorIs(t, <-ended, io.EOF)
}
