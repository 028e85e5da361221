package engine

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		os.Exit(runChild())
	}
	// gnet starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
