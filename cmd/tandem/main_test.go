package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

// envProgram makes the test binary behave as tandem: the real thing in a process of its own, without a second build.
const envProgram = "TANDEM_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(envProgram) {
	case "":
	case "stuck":
		log, err := newLogger("info", os.Stderr)
		if err == nil {
			err = serve(func() (stuckServer, error) { log.Info("serves"); return stuckServer{}, nil }, log)
		}
		os.Exit(exitStatus(err))
	default:
		main()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet starts a pool when it is loaded
}

// stuckServer never comes to an end of its closing.
type stuckServer struct{}

func (stuckServer) Close(context.Context) error { select {} }

// processTimeout is for a machine under load; nothing here takes long.
const processTimeout = 60 * time.Second

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), envProgram+"=1", "GORACE=atexit_sleep_ms=0", "NAMESRV_ADDR=", "HOME="+t.TempDir())
	return cmd
}

type result struct {
	status         int
	stdout, stderr string
}

// tandem runs a command line to its end.
func tandem(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// process is a command that runs until it is told to stop.
type process struct {
	*exec.Cmd
	t    *testing.T
	log  *logBuffer
	done chan struct{}
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return prepare(t, args...).launch()
}

func prepare(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, args...), t: t, log: newLogBuffer(), done: make(chan struct{})}
	p.Stdout, p.Stderr = p.log, p.log
	return p
}

func (p *process) launch() *process {
	p.t.Helper()
	require.NoError(p.t, p.Start())
	go func() { _ = p.Wait(); close(p.done) }() // the status is in ProcessState
	p.t.Cleanup(func() { _ = p.Process.Kill(); <-p.done })
	return p
}

// waitFor waits until the process has logged text, and returns that line.
func (p *process) waitFor(text string) string {
	p.t.Helper()
	line, ok := p.log.line(text, p.done, time.After(processTimeout))
	require.True(p.t, ok, "%q was not logged:\n%s", text, p.log.String())
	return line
}

// stop sends a signal and returns the exit status.
func (p *process) stop(s os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.Process.Signal(s))
	<-p.done
	return p.ProcessState.ExitCode()
}

func TestWrongCallsEndWithStatusTwoAndOneClearLine(t *testing.T) {
	empty := t.TempDir()
	missing := empty + "/missing"
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "tandem: a command is missing; tandem --help lists them"},
		{"unknown command", []string{"brokr"}, `tandem: unknown command "brokr"; is broker meant?`},
		{"unknown flag", []string{"namesrv", "--port=1"}, "tandem namesrv: unknown flag: --port"},
		{"too many arguments", []string{"namesrv", "here"}, `tandem namesrv: "here": no arguments are taken`},
		{"name server's port", []string{"namesrv", "--listenPort=70000"}, "tandem namesrv: --listenPort=70000: not valid; valid: a whole number from 0 to 65535"},
		{"name server's address", []string{"namesrv", "--bindAddress=here"}, "tandem namesrv: --bindAddress=here: not valid; valid: an IP address of this machine, 0.0.0.0 for all"},
		{"setting's value", []string{"broker", "--brokerRole=LEADER"}, "tandem broker: --brokerRole=LEADER: not valid; valid: ASYNC_MASTER, SYNC_MASTER or SLAVE"},
		{"mistyped setting", []string{"broker", "--listenprt=1"}, "tandem broker: --listenprt: there is no such setting; is --listenPort meant?"},
		{"unknown setting", []string{"broker", "--colour=red"}, "tandem broker: unknown flag: --colour; tandem broker --help lists them"},
		{"unsafe setting of RocketMQ", []string{"broker", "--aclEnable=true"}, "tandem broker: --aclEnable=true: tandem checks no permissions: every client would be let in; tandem runs with aclEnable=false only"},
		{"slave without an id", []string{"broker", "--brokerRole=SLAVE", "--brokerName=b"}, "tandem broker: brokerId=0: a SLAVE needs a brokerId above 0, one that no other slave of b has"},
		{"missing configuration", []string{"broker", "-c", missing}, "tandem broker: configuration file: open " + missing + ": no such file or directory"},
		{"status of two", []string{"status", "-b", "a:1", "-n", "b:2"}, "tandem status: -b and -n: give one of the two"},
		{"status of nothing", []string{"status", "-b", "nowhere"}, `tandem status: "nowhere" is no address; valid: host:port`},
		{"no store command", []string{"store"}, "tandem store: a command is missing; tandem store --help lists them"},
		{"unknown store command", []string{"store", "repair", "x"}, `tandem store: unknown command "repair"; tandem store --help lists them`},
		{"no store", []string{"store", "verify"}, "tandem store verify: DIR is missing"},
		{"one store to compare", []string{"store", "diff", t.TempDir()}, "tandem store diff: two directories are compared, 1 given"},
		{"a directory that is no store", []string{"store", "verify", empty}, "tandem store verify: " + empty + ": not a store, there is no commitlog in it"},
		{"a file for a store", []string{"store", "dump", os.Args[0]}, "tandem store dump: " + os.Args[0] + ": not a directory"},
		{"missing store", []string{"store", "verify", missing}, "tandem store verify: " + missing + ": no such directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tandem(t, tt.args...)
			require.Equal(t, statusUsage, r.status, r.stderr)
			require.Equal(t, tt.want+"\n", r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}

func TestHelpGroupsTheSettingsWithDefaultsAndUnits(t *testing.T) {
	const golden = "testdata/broker-help.txt"
	r := tandem(t, "broker", "--help")
	require.Equal(t, statusHolds, r.status)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(r.stdout), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), r.stdout, "go test ./cmd/tandem -run TestHelp -update")
	require.Empty(t, r.stderr)
}

func TestRootHelpListsTheCommands(t *testing.T) {
	r := tandem(t, "--help")
	require.Equal(t, statusHolds, r.status)
	for _, name := range []string{"broker", "namesrv", "status", "store", "version"} {
		require.Contains(t, r.stdout, "\n  "+name+" ")
	}
}

func TestVersionIsPrinted(t *testing.T) {
	r := tandem(t, "version")
	require.Equal(t, statusHolds, r.status)
	require.True(t, strings.HasPrefix(r.stdout, "tandem dev"), r.stdout)
}

func TestPrintedSettingsAreThoseInForce(t *testing.T) {
	file := t.TempDir() + "/broker.conf"
	require.NoError(t, os.WriteFile(file, []byte("brokerName=fromFile\nlistenPort=20911\n"), 0o644))
	cmd := command(t, "broker", "-c", file, "--listenPort=30911", "--slaveReadEnable=false", "--longPollingEnable", "-p")
	cmd.Env = append(cmd.Env, "NAMESRV_ADDR=ns:9876")
	r := finish(t, cmd)
	require.Equal(t, statusHolds, r.status, r.stderr)
	for _, line := range []string{"brokerName=fromFile", "listenPort=30911", "haListenPort=30912", "slaveReadEnable=false", "longPollingEnable=true", "namesrvAddr=ns:9876"} {
		require.Contains(t, r.stdout, line+"\n")
	}

	cmd = command(t, "broker", "-n", "other:1", "-p")
	cmd.Env = append(cmd.Env, "NAMESRV_ADDR=ns:9876")
	require.Contains(t, finish(t, cmd).stdout, "namesrvAddr=other:1\n", "a flag wins over the environment")
}

func TestNameServerEndsCleanlyOnSignals(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := launch(t, "namesrv", "--listenPort=0", "--bindAddress=127.0.0.1")
		p.waitFor("name server serves")
		require.Equal(t, statusHolds, p.stop(signal), p.log.String())
		require.Contains(t, p.log.String(), "stopped")
	}
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	p := prepare(t)
	p.Env = append(p.Env, envProgram+"=stuck")
	p.launch()
	p.waitFor("serves")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	p.waitFor("a second signal stops at once")
	require.Equal(t, statusFails, p.stop(os.Interrupt))
	require.Contains(t, p.log.String(), "the next start will recover")
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	ln := listen(t)
	r := tandem(t, "namesrv", "--bindAddress=127.0.0.1", "--listenPort="+port(ln.Addr()))
	require.Equal(t, statusFails, r.status)
	require.Contains(t, r.stderr, "tandem namesrv: ")
	require.Contains(t, r.stderr, ln.Addr().String())
	require.Contains(t, r.stderr, "address already in use")
	require.NotContains(t, r.stderr, "Usage")
}

// brokerFlags is a broker on a free port with small files.
func brokerFlags(dir string, more ...string) []string {
	return append([]string{"broker", "--brokerName=b1", "--listenPort=0", "--bindAddress=127.0.0.1", "--brokerIP1=127.0.0.1",
		"--storePathRootDir=" + dir, "--mappedFileSizeCommitLog=1048576", "--mappedFileSizeConsumeQueue=6000"}, more...)
}

func TestBrokerServesUntilItIsStoppedAndSaysWhatIsInForce(t *testing.T) {
	dir := t.TempDir()
	p := launch(t, brokerFlags(dir, "--brokerRole=SYNC_MASTER", "--fileReservedTime=48")...)
	p.waitFor("broker serves")
	require.Contains(t, p.log.String(), "settings of RocketMQ that have no effect in tandem: fileReservedTime (nothing is deleted yet)")
	require.Contains(t, p.log.String(), "brokerRole=SYNC_MASTER")
	require.FileExists(t, dir+"/abort")

	second := tandem(t, brokerFlags(dir)...)
	require.Equal(t, statusFails, second.status)
	require.Contains(t, second.stderr, dir, "a locked store is named")

	require.Equal(t, statusHolds, p.stop(syscall.SIGTERM), p.log.String())
	require.NoFileExists(t, dir+"/abort", "a clean stop says so to the next start")
}

func TestABrokersTakenPortIsNamed(t *testing.T) {
	ln := listen(t)
	r := tandem(t, brokerFlags(t.TempDir(), "--listenPort="+port(ln.Addr()), "--haListenPort=0")...)
	require.Equal(t, statusFails, r.status)
	require.Contains(t, r.stderr, port(ln.Addr()))
	require.Contains(t, r.stderr, "address already in use")
}
