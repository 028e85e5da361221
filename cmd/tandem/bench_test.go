package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/bench"
	"tandem/codec"
)

func TestTheClusterCommandsNameWrongValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--pairs=0"}, "--pairs=0"},
		{[]string{"up", "--slaves=-1"}, "--slaves=-1"},
		{[]string{"up", "--brokerRole=SLAVE"}, "SYNC_MASTER or ASYNC_MASTER"},
		{[]string{"demo", "--messages=0"}, "--messages=0"},
		{[]string{"bench"}, "a command is missing"},
		{[]string{"bench", "send"}, "address"},
		{[]string{"bench", "send", "--addr=h:1", "--size=-1"}, "size -1"},
		{[]string{"bench", "send", "--addr=h:1", "--header=xml"}, "--header=xml"},
		{[]string{"bench", "send", "--addr=h:1", "--watch=master"}, "NAME=PID"},
		{[]string{"bench", "overhead", "--addr=h:1"}, "LABEL=HOST:PORT"},
		{[]string{"bench", "overhead", "--own=false"}, "nothing to measure"},
		{[]string{"bench", "catchup", "--log=0"}, "--log=0"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, statusUsage, run(c.args, &out, &errs), "%v", c.args)
		require.Contains(t, errs.String(), c.want, "%v", c.args)
		require.Empty(t, out.String(), "%v", c.args)
	}
}

func TestALoadThatNobodyTakesFails(t *testing.T) {
	var out, errs bytes.Buffer
	addr := serveAnswers(t, answers{})
	require.Equal(t, statusFails, run([]string{"bench", "send", "--addr", addr}, &out, &errs))
	require.Contains(t, errs.String(), "REQUEST_CODE_NOT_SUPPORTED")
	require.Contains(t, errs.String(), addr)
}

func TestPeersAndWatchedProcessesAreRead(t *testing.T) {
	peers, err := parsePeers([]string{"apache 5.5.0=127.0.0.1:10911", "b=[::1]:1"})
	require.NoError(t, err)
	require.Equal(t, []bench.Peer{{Label: "apache 5.5.0", Addr: "127.0.0.1:10911"}, {Label: "b", Addr: "[::1]:1"}}, peers)
	watched, err := parseWatched([]string{"master=12"})
	require.NoError(t, err)
	require.Equal(t, []bench.Watched{{Name: "master", PID: 12}}, watched)
	form, err := parseHeader("rocketmq")
	require.NoError(t, err)
	require.Equal(t, codec.Binary, form)
}

func TestAScratchOfOurOwnIsRemovedAndAGivenOneKept(t *testing.T) {
	var ours string
	require.NoError(t, inScratch("", "test", func(files scratch, binary string) error {
		ours = files.dir
		require.DirExists(t, ours)
		require.FileExists(t, binary)
		return nil
	}))
	require.NoDirExists(t, ours)

	given := filepath.Join(t.TempDir(), "a", "b")
	require.ErrorIs(t, inScratch(given, "test", func(scratch, string) error { return os.ErrInvalid }), os.ErrInvalid)
	require.DirExists(t, given)
}

func TestProgressIsQuietInAPipe(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.set(1, 2, "work")
	p.Close()
	require.Empty(t, out.String())
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	require.Nil(t, newProgress(null).bar, "a file is no terminal")
}
