package commitlog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

var goldenVersions = []string{"4.9.7", "5.5.0"}

func golden(t testing.TB, version string) Options {
	dir := t.TempDir()
	copyDir(t, filepath.Join("testdata", "store-"+version), dir)
	return testOptions(dir)
}

func TestApacheStoresVerify(t *testing.T) {
	for _, v := range goldenVersions {
		r, err := Verify(golden(t, v).RootDir, nil)
		require.NoError(t, err)
		require.Empty(t, r.Problems, v)
		require.EqualValues(t, 2, r.Fillers)
		require.Greater(t, r.Records, int64(100))
	}
}

// countRecords tells how many messages with a queue entry a store's log holds.
func countRecords(t testing.TB, dir string) (n int) {
	t.Helper()
	require.NoError(t, Dump(dir, func(r codec.Record) error {
		if takesQueueEntry(r.SysFlag) {
			n++
		}
		return nil
	}))
	return n
}

func readAllQueues(t testing.TB, s *Store) (n int) {
	t.Helper()
	for _, q := range s.Queues() {
		n += len(readQueue(t, q))
	}
	return n
}

func TestApacheStoresOpenWithEveryMessageAndStayAsTheyAre(t *testing.T) {
	for _, v := range goldenVersions {
		for _, abort := range []bool{false, true} {
			o := golden(t, v)
			log, queues := files(t, o.RootDir, "commitlog"), files(t, o.RootDir, "consumequeue")
			if abort {
				require.NoError(t, os.WriteFile(filepath.Join(o.RootDir, "abort"), nil, 0o644))
			}
			want := countRecords(t, o.RootDir)
			s := openTest(t, o)
			require.Equal(t, !abort, s.Recovery().Clean)
			require.Zero(t, s.Recovery().CutBytes)
			require.Equal(t, want, readAllQueues(t, s))
			closeTest(t, s)
			require.Equal(t, log, files(t, o.RootDir, "commitlog"), "%s: the log is unchanged", v)
			require.Equal(t, queues, files(t, o.RootDir, "consumequeue"), "%s: the queues are unchanged", v)
		}
	}
}

func TestApacheStoresGoOnUnderUs(t *testing.T) {
	for _, v := range goldenVersions {
		o := golden(t, v)
		s := openTest(t, o)
		q := s.Queue("TopicA", 0)
		next := q.MaxOffset()
		require.Positive(t, next)
		require.Equal(t, next, q.NextOffset())
		a := put(t, s, message{topic: "TopicA", body: "from us"})
		require.Equal(t, next, a.QueueOffset)
		waitDispatched(t, s)
		putMany(t, s, "TopicA", 200)
		closeTest(t, s)
	}
}

func TestQueuesOfApacheStoresAreRebuiltIdentical(t *testing.T) {
	for _, v := range goldenVersions {
		for name, harm := range queueHarm {
			o := golden(t, v)
			want := files(t, o.RootDir, "consumequeue")
			for rel := range want {
				harm(t, filepath.Join(o.RootDir, "consumequeue", rel))
				s := openTest(t, o)
				closeTest(t, s)
				require.Equal(t, want, files(t, o.RootDir, "consumequeue"), "%s: %s %s", v, name, rel)
				break
			}
		}
	}
}

var queueHarm = map[string]func(t testing.TB, path string){
	"delete":  func(t testing.TB, path string) { require.NoError(t, os.Remove(path)) },
	"shorten": func(t testing.TB, path string) { require.NoError(t, os.Truncate(path, 33)) },
	"empty":   func(t testing.TB, path string) { require.NoError(t, os.Truncate(path, 0)) },
	"zero": func(t testing.TB, path string) {
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 0))
		require.NoError(t, os.Truncate(path, st.Size()))
	},
}
