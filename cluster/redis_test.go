package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARedisReplicaFollowsItsMasterAndKeepsNothing(t *testing.T) {
	tools(t, map[string]string{"redis-server": "exit 0"})
	master, err := Redis("redis master", 6379, 0, "/d")
	require.NoError(t, err)
	replica, err := Redis("redis replica", 6380, 6379, "/d")
	require.NoError(t, err)
	require.NotContains(t, strings.Join(master.Args, " "), "--replicaof")
	line := strings.Join(replica.Args, " ")
	require.Contains(t, line, "--replicaof 127.0.0.1 6379")
	require.Contains(t, line, "--port 6380")
	require.Contains(t, line, "--appendonly no")
	require.Equal(t, []Probe{TCP("127.0.0.1:6380")}, replica.Ready)
}

func TestWithoutRedisTheErrorSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Redis("redis", 1, 0, t.TempDir())
	require.ErrorIs(t, err, ErrNoRedis)
}
