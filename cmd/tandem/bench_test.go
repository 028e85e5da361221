package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"tandem/bench"
	"tandem/bench/report"
	"tandem/bench/trial"
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
		{[]string{"bench", "send", "--addr=h"}, "--addr=h"},
		{[]string{"bench", "send", "--addr=h:1", "--rate=+Inf"}, "--rate=+Inf"},
		{[]string{"bench", "send", "--addr=h:1", "--rate=NaN"}, "--rate=NaN"},
		{[]string{"bench", "soak", "--rate=1e10"}, "--rate=1e+10"},
		{[]string{"bench", "soak", "--addr=h"}, "--addr=h"},
		{[]string{"bench", "catchup", "--producerRate=NaN"}, "--producerRate=NaN"},
		{[]string{"bench", "overhead", "--rate=-1"}, "--rate=-1"},
		{[]string{"bench", "overhead", "--run=-1s"}, "--run=-1s"},
		{[]string{"bench", "floor", "--warmup=-1s"}, "--warmup=-1s"},
		{[]string{"bench", "fanout", "--run=-1s"}, "--run=-1s"},
		{[]string{"bench", "lag", "--run=-1s"}, "--run=-1s"},
		{[]string{"bench", "all", "--limit=-1s"}, "--limit=-1s"},
		{[]string{"bench", "all", "--apache=foo"}, "--apache=foo"},
		{[]string{"bench", "all", "--addr=a=h:1", "--addr=a=h:2"}, "taken already"},
		{[]string{"bench", "overhead", "--addr=tandem sync=h:1"}, "taken already"},
		{[]string{"bench", "overhead", "--own=false"}, "nothing to measure"},
		{[]string{"bench", "overhead", "--size=0"}, "--size=0"},
		{[]string{"bench", "all", "--addr=h"}, "LABEL=HOST:PORT"},
		{[]string{"bench", "overhead", "--redis=here?"}, "--redis=here?"},
		{[]string{"bench", "all", "--redis=6379"}, "--redis=6379"},
		{[]string{"bench", "send", "--addr=h:1", "--tick=-1s"}, "tick -1"},
		{[]string{"bench", "all", "--fill-cache=0"}, "--fill-cache=0"},
		{[]string{"bench", "lag", "--fill-cache=much"}, "--fill-cache=much"},
		{[]string{"bench", "soak", "--fill-cache", "99999999999"}, "--fill-cache=99999999999"},
		{[]string{"bench", "all", "--rounds=0"}, "--rounds=0"},
		{[]string{"bench", "floor", "--bytes=-1"}, "--bytes=-1"},
		{[]string{"bench", "fanout", "--slaves=1,0"}, "--slaves=0"},
		{[]string{"bench", "soak", "--rate=0"}, "--rate=0"},
		{[]string{"bench", "lag", "--rounds=0"}, "--rounds=0"},
		{[]string{"bench", "start", "--log=0"}, "--log=0"},
		{[]string{"bench", "catchup", "--log=0"}, "--log=0"},
		{[]string{"bench", "catchup", "--cold", "--producerRate=0"}, "--producerRate=0"},
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

func TestALoadThatIsStoppedFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ln := listen(t)
	t.Cleanup(func() { ln.Close() })
	go acceptThen(ln, cancel)
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	var out bytes.Buffer
	cmd.SetOut(&out)
	err := benchSend(cmd, bench.SendOptions{Addr: ln.Addr().String(), NoTopic: true, Conns: 1, Depth: 4, Duration: time.Hour}, false)
	require.ErrorIs(t, err, errStopped)
	require.Equal(t, statusFails, exitStatus(err))
	require.Contains(t, out.String(), "messages/s", "the table is printed all the same")
}

// acceptThen takes one connection, and calls then when something comes over it.
func acceptThen(ln net.Listener, then func()) {
	c, err := ln.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Read(make([]byte, 1))
	then()
	_, _ = io.Copy(io.Discard, c)
}

func TestPeersAndWatchedProcessesAreRead(t *testing.T) {
	peers, err := parsePeers([]string{"apache 5.5.0=127.0.0.1:10911", "b=[::1]:1"})
	require.NoError(t, err)
	require.Equal(t, []trial.Peer{{Label: "apache 5.5.0", Addr: "127.0.0.1:10911"}, {Label: "b", Addr: "[::1]:1"}}, peers)
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

// benchmark runs a measurement with real processes: this test's binary is the children's too.
func benchmark(t *testing.T, args ...string) (report.Document, string) {
	t.Helper()
	cmd := command(t, slices.Concat([]string{"bench", args[0], "--fill-cache=16"}, args[1:])...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s%s", stdout.String(), stderr.String())
	var d report.Document
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &d), "%s", stdout.String())
	return d, stderr.String()
}

func TestTheFloorIsMeasuredByProcessesOfItsOwn(t *testing.T) {
	page := filepath.Join(t.TempDir(), "floor.html")
	d, noise := benchmark(t, "floor", "--rounds=1", "--run=100ms", "--warmup=20ms", "--size=128", "--bytes=8", "--json", "--html", page)
	require.Empty(t, noise)
	require.FileExists(t, page)
	require.NotNil(t, d.Results.Floor)
	require.NotNil(t, d.FreeMemory)
	require.True(t, d.FreeMemory.Filled)
	require.Empty(t, d.FreeMemory.Failed)
	// 2 ping-pongs of 5 turns, 2 turns of the stub, a transfer
	require.Equal(t, 13, d.FreeMemory.Runs)
	require.Len(t, d.Results.Floor.Sizes, 1)
	require.Len(t, d.Results.Floor.Sizes[0].Targets, 3)
	for _, f := range d.Figures {
		require.Positive(t, f.Median, f.Name)
	}
}

func TestMemoryIsLeftAsItIsWhereThatIsAskedFor(t *testing.T) {
	d, _ := benchmark(t, "floor", "--rounds=1", "--run=20ms", "--warmup=10ms", "--size=128", "--bytes=1", "--json", "--fill-cache=false")
	require.Equal(t, &trial.MemoryReport{}, d.FreeMemory)
	m, err := parseFill("64")
	require.NoError(t, err)
	require.Equal(t, trial.NewMemory(64<<20), m)
}

func TestEachTrialRunsWithRealBrokers(t *testing.T) {
	for _, args := range [][]string{
		{"overhead", "--rounds=1", "--run=100ms", "--warmup=20ms", "--size=128", "--rate=500"},
		{"lag", "--rounds=1", "--run=200ms"},
		{"fanout", "--rounds=1", "--run=100ms", "--warmup=20ms", "--slaves=1,2"},
		{"soak", "--rate=500", "--duration=400ms", "--warmup=50ms", "--every=100ms"},
		{"catchup", "--rounds=1", "--log=8", "--segment=4"},
		{"catchup", "--rounds=1", "--log=8", "--segment=4", "--cold", "--idle=100ms"},
		{"start", "--rounds=1", "--log=8", "--segment=4", "--load=100ms"},
	} {
		t.Run(args[0], func(t *testing.T) {
			d, _ := benchmark(t, append(args, "--json", "--dir", t.TempDir())...)
			require.Len(t, d.Results.Reports(), 1)
			require.Empty(t, d.Results.Faults())
			require.NotEmpty(t, d.Figures)
			for _, f := range d.Figures {
				require.NotEqual(t, bench.Unknown, f.Verdict, f.Name)
			}
		})
	}
}

func TestAReportIsJudgedKeptAndPrinted(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	series := bench.NewSeries([]float64{9, 9, 9})
	results := trial.Results{Lag: &trial.LagReport{P99: series, P50: series, Max: series}}
	for _, c := range []struct {
		flags trialFlags
		want  error
	}{
		{trialFlags{strict: true}, errDoesNotHold},
		{trialFlags{}, nil},
		{trialFlags{strict: true, quick: true}, nil},
	} {
		c.flags.out, c.flags.html = t.TempDir(), filepath.Join(t.TempDir(), "x.html")
		var out bytes.Buffer
		err := c.flags.conclude(&out, report.New(results, start, start.Add(time.Minute)), nil)
		require.Equal(t, c.want, err)
		require.FileExists(t, c.flags.html)
		kept, err := filepath.Glob(filepath.Join(c.flags.out, "2023-11-14-*"))
		require.NoError(t, err)
		if c.flags.quick {
			require.Empty(t, kept, "figures that mean nothing are not kept")
			continue
		}
		require.Contains(t, out.String(), "kept as")
		require.Len(t, kept, 2)
	}
	results.Lag.Failed = "3 SLAVE_NOT_AVAILABLE"
	quick := trialFlags{quick: true}
	var out bytes.Buffer
	require.Equal(t, errDoesNotHold, quick.conclude(&out, report.New(results, start, start), nil), "what was not acknowledged is no matter of speed")
	require.Contains(t, out.String(), "SLAVE_NOT_AVAILABLE")
}
