package tables

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/codec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testFiles is an empty directory, a clock that goes on with each look, and a disk
// that is not waited for.
func testFiles(t testing.TB) Files {
	t.Helper()
	var millis atomic.Int64
	millis.Store(1_700_000_000_000)
	return Files{
		Dir:  filepath.Join(t.TempDir(), "config"),
		Now:  func() int64 { return millis.Add(1) },
		sync: func(*os.File) error { return nil },
	}
}

// capturedFiles is a copy of what a real broker wrote.
func capturedFiles(t testing.TB, version string) Files {
	t.Helper()
	f := testFiles(t)
	require.NoError(t, os.CopyFS(f.Dir, os.DirFS(filepath.Join("testdata", version))))
	return f
}

func text(t testing.TB, f Files, name string) string {
	t.Helper()
	b, err := os.ReadFile(f.path(name))
	require.NoError(t, err)
	return string(b)
}

func write(t testing.TB, f Files, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(f.Dir, 0o755))
	require.NoError(t, os.WriteFile(f.path(name), []byte(content), 0o644))
}

// asJSON is v as standard JSON, for comparison in meaning.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := codec.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// standard turns what Java wrote into standard JSON, all fields kept.
func standard(t testing.TB, javaText string) string {
	t.Helper()
	var v any
	require.NoError(t, codec.Unmarshal([]byte(javaText), &v))
	return asJSON(t, v)
}
