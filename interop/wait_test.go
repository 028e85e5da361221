package interop

import (
	"testing"
	"time"
)

// patience is how long a condition may take to come true. It is generous on purpose: a busy machine must not fail a test, and a
// condition that holds ends the wait at once.
const patience = 60 * time.Second

// eventually waits until the condition holds, asked every 50 ms. The text says what was waited for.
func eventually(t testing.TB, limit time.Duration, condition func() bool, what string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within "+limit.String()+": "+what, args...)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
