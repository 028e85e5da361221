package nameserver

import (
	"testing"

	"go.uber.org/goleak"
)

// What runs before the first test are the network library's own, one set per process.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
