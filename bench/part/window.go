package part

import (
	"sync"

	"golang.org/x/sys/unix"
)

// window prepares a mapped file's pages ahead of what is read into them, on a goroutine of its own. Where the kernel cannot do that,
// nothing is prepared, and reading pays for the pages itself.
type window struct {
	memory []byte
	ended  chan struct{}

	mu    sync.Mutex
	moved *sync.Cond
	read  int // bytes from the begin on
	over  bool
}

const (
	windowChunk = 1 << 20  // prepared at once
	windowAhead = 16 << 20 // of what is read: what a processor's cache may still hold by then
)

// startWindow begins to prepare the memory. The window must be closed before the memory is unmapped.
func startWindow(memory []byte) *window {
	w := &window{memory: memory, ended: make(chan struct{})}
	w.moved = sync.NewCond(&w.mu)
	go w.run()
	return w
}

func (w *window) run() {
	defer close(w.ended)
	for from := 0; w.wait(from); from += windowChunk {
		chunk := w.memory[from:min(len(w.memory), from+windowChunk)]
		if unix.Madvise(chunk, unix.MADV_POPULATE_WRITE) != nil {
			return
		}
	}
}

// wait waits until the chunk that begins at from is to be prepared. It returns false if there is none, or the window is closed.
func (w *window) wait(from int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.over && from < len(w.memory) && w.farAhead(from) {
		w.moved.Wait()
	}
	return !w.over && from < len(w.memory)
}

// farAhead tells whether a chunk that begins at from has time. The lock is held.
func (w *window) farAhead(from int) bool { return from >= w.read+windowAhead }

// advance tells that all before read is read.
func (w *window) advance(read int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = read
	w.moved.Signal()
}

// close ends the preparing and waits for its end.
func (w *window) close() {
	w.mu.Lock()
	w.over = true
	w.moved.Signal()
	w.mu.Unlock()
	<-w.ended
}
