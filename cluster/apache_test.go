package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tools puts scripts in the place of java and mvn.
func tools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestASyncMasterOfVersion5WaitsForASlave(t *testing.T) {
	tools(t, map[string]string{"java": "exit 0"})
	for _, c := range []struct {
		version, role string
		conf          Conf
		replicas      string
	}{
		{"5.5.0", "SYNC_MASTER", nil, "2"},
		{"5.5.0", "SYNC_MASTER", Conf{"inSyncReplicas": "1"}, "1"},
		{"5.5.0", "ASYNC_MASTER", nil, ""},
		{"5.5.0", "SLAVE", nil, ""},
		{"4.9.7", "SYNC_MASTER", nil, ""}, // it waits as it is, and does not know the key
	} {
		dir := t.TempDir()
		a := Apache{Version: c.version, Jars: "/jars"}
		_, err := a.Broker(Conf{"brokerRole": c.role, "listenPort": "10911"}.With(c.conf), dir)
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(dir, "broker.conf"))
		require.NoError(t, err)
		if c.replicas == "" {
			require.NotContains(t, string(text), "inSyncReplicas", "%v", c)
		} else {
			require.Contains(t, string(text), "inSyncReplicas="+c.replicas+"\n", "%v", c)
		}
	}
}

func TestAJavaProcessHasItsOwnHome(t *testing.T) {
	tools(t, map[string]string{"java": "exit 0"})
	dir := t.TempDir()
	a := Apache{Version: "4.9.7", Jars: "/jars", Heap: "1g"}
	s, err := a.NameServer(9876, dir)
	require.NoError(t, err)
	line := strings.Join(s.Args, " ")
	require.Contains(t, line, "-Xms1g -Xmx1g")
	require.Contains(t, line, "-Duser.home="+dir+" -Drocketmq.home.dir="+dir)
	require.Contains(t, line, "-cp /jars/* org.apache.rocketmq.namesrv.NamesrvStartup -c "+filepath.Join(dir, "namesrv.conf"))
	require.FileExists(t, filepath.Join(dir, "conf", "logback_broker.xml"))
	require.FileExists(t, filepath.Join(dir, "conf", "logback_namesrv.xml"))
	require.FileExists(t, filepath.Join(dir, "conf", "logback_tools.xml"))
	s = a.JavaMain("own", dir, "Main", []string{"/classes"}, "x")
	require.Contains(t, strings.Join(s.Args, " "), "-cp /classes:/jars/* Main x")
}

func TestMQAdminRunsToItsEnd(t *testing.T) {
	tools(t, map[string]string{"java": `for a; do last=$a; done; echo "admin said $last"`})
	out, err := Apache{Version: "5.5.0", Jars: "/jars"}.MQAdmin(t.Context(), t.TempDir(), "clusterList")
	require.NoError(t, err)
	require.Equal(t, "admin said clusterList\n", out)
}

func TestWithoutJavaTheErrorSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FetchApache(t.Context(), "5.5.0", t.TempDir())
	require.ErrorIs(t, err, ErrNoJava)
	_, err = Apache{}.NameServer(1, t.TempDir())
	require.ErrorIs(t, err, ErrNoJava)
}

func TestFetchingTwiceAtOnceDownloadsOnce(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	tools(t, map[string]string{"java": "exit 0", "mvn": `
		echo called >> ` + calls + `
		grep -q '<artifactId>rocketmq-broker</artifactId><version>9.9.9</version>' pom.xml || exit 1
		for a; do case $a in -DoutputDirectory=*) mkdir -p "${a#*=}"; echo jar > "${a#*=}/a.jar";; esac; done`})
	cache := t.TempDir()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			a, err := FetchApache(t.Context(), "9.9.9", cache)
			if err == nil {
				_, err = os.Stat(filepath.Join(a.Jars, "a.jar"))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, "called\n", string(text))
}

func TestAFailedFetchLeavesNothingBehind(t *testing.T) {
	tools(t, map[string]string{"java": "exit 0", "mvn": "echo no such version; exit 1"})
	cache := t.TempDir()
	_, err := FetchApache(t.Context(), "9.9.9", cache)
	require.ErrorContains(t, err, "no such version")
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the lock file")
}

func TestALockIsWaitedForNoLongerThanTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = lockFile(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	unlock()
	again, err := lockFile(t.Context(), path)
	require.NoError(t, err)
	again()
}
