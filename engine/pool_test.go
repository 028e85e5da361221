package engine

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPoolRefusesWhatItHasNoRoomFor(t *testing.T) {
	p := NewPool(2, 3)
	gate := make(chan struct{})
	var started, ran atomic.Int64
	job := func() { started.Add(1); <-gate; ran.Add(1) }
	for range 2 {
		require.True(t, p.Try(job))
	}
	eventually(t, func() bool { return started.Load() == 2 }, "both workers busy")
	for range 3 {
		require.True(t, p.Try(job))
	}
	require.False(t, p.Try(job))
	close(gate)
	p.Close()
	require.EqualValues(t, 5, ran.Load(), "what was queued ran before Close returned")
	require.False(t, p.Try(job))
	p.Close()
}

func TestPoolSurvivesAPanic(t *testing.T) {
	p := NewPool(1, 4)
	told := make(chan any, 1)
	p.OnPanic = func(v any, _ []byte) { told <- v }
	require.True(t, p.Try(func() { panic("boom") }))
	require.Equal(t, "boom", <-told)
	done := make(chan bool)
	require.True(t, p.Try(func() { close(done) }))
	<-done
	p.Close()
}
