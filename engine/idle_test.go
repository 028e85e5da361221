package engine

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnIdleConnectionIsCheap(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	const n = 300
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var peers [n]*peer
	dial := func() {
		for i := range peers {
			peers[i] = dialServer(t, s)
			peers[i].r.Reset(nil)
			peers[i].r = nil
		}
		eventually(t, func() bool { return s.Stats().Conns == n }, "all open")
	}
	before := heap()
	dial()
	perConn := (heap() - before) / n
	t.Logf("%d bytes per connection, the peer's end included", perConn)
	require.Less(t, perConn, int64(4<<10))
	for _, l := range s.Loops() {
		onLoop(l, func() {
			for _, c := range l.conns {
				assert.Nil(t, c.out)
				assert.Nil(t, c.partial)
			}
		})
	}
}
