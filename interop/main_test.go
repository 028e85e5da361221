package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
)

const (
	// parallelTests run side by side: most of their time they wait for a Java process, so more than one per processor.
	parallelTests = "4"

	// javaOptions let short-lived Java processes start fast on few processors: the quick compiler only, and the plain collector.
	javaOptions = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

	envStandIn = "TANDEM_INTEROP_STANDIN" // an Apache version that takes tandem's place: proves the tests themselves
	envCache   = "TANDEM_INTEROP_CACHE"   // where the jars are kept
	envBinary  = "TANDEM_BINARY"          // a ready executable instead of one built here
	envHelper  = "TANDEM_INTEROP_HELPER"  // set in a child: which client to be
	envKills   = "TANDEM_KILLS"           // kills of each kind
	envVolume  = "TANDEM_VOLUME"          // messages of each volume test
)

// workDir holds what is built once: the executable and the Java helpers' classes.
var workDir string

func TestMain(m *testing.M) {
	if role := os.Getenv(envHelper); role != "" {
		os.Exit(runHelper(role, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	flag.Parse()
	if !isSet("test.parallel") {
		_ = flag.Set("test.parallel", parallelTests)
	}
	dir, err := os.MkdirTemp("", "tandem-interop-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	_ = os.Setenv("JDK_JAVA_OPTIONS", javaOptions)
	status := m.Run()
	reportLeftOut()
	return status
}

func isSet(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// standIn is the Apache version that runs in tandem's place, "" in an ordinary run.
func standIn() string { return os.Getenv(envStandIn) }

var buildTandem = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(envBinary); given != "" {
		return given, nil
	}
	path := filepath.Join(workDir, "tandem")
	out, err := exec.Command("go", "build", "-o", path, "tandem/cmd/tandem").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build tandem/cmd/tandem: %w\n%s", err, out)
	}
	return path, nil
})

// executable is tandem's executable.
func executable(t testing.TB) string {
	t.Helper()
	path, err := buildTandem()
	require.NoError(t, err)
	return path
}

// tandem runs a command of the executable to its end.
func tandem(t testing.TB, args ...string) (out string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := cluster.Run(ctx, cluster.Spec{Name: "tandem " + args[0], Path: executable(t), Args: args})
	var failed *cluster.RunError
	if errors.As(err, &failed) {
		return out, failed.Exit.Code
	}
	require.NoError(t, err)
	return out, 0
}

// versions of Apache RocketMQ that tandem is held against.
var versions = []string{"5.5.0", "4.9.7"}

// apacheKit is one version's jars and our helper programs compiled against them.
type apacheKit struct {
	cluster.Apache
	classes string
}

var fetchApache = sync.OnceValues(func() (map[string]apacheKit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cache := os.Getenv(envCache)
	if cache == "" {
		var err error
		if cache, err = cluster.DefaultCache(); err != nil {
			return nil, err
		}
	}
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoJDK, err)
	}
	sources, err := filepath.Glob("java/*.java")
	if err != nil {
		return nil, err
	}
	kits := map[string]apacheKit{}
	for _, v := range versions {
		a, err := cluster.FetchApache(ctx, v, cache)
		if err != nil {
			return nil, err
		}
		kit := apacheKit{a, filepath.Join(workDir, "classes-"+v)}
		if err := a.Compile(ctx, kit.classes, sources...); err != nil {
			return nil, err
		}
		kits[v] = kit
	}
	return kits, nil
})

var errNoJDK = errors.New("no Java compiler: `javac` is not in PATH")

// needApache gives the test Apache RocketMQ. Without JDK or Maven the test is left out, and named at the end of the run; with
// CI=true their absence is a failure. This is the only place that may leave out a test.
func needApache(t testing.TB) map[string]apacheKit {
	t.Helper()
	kits, err := fetchApache()
	absent := errors.Is(err, cluster.ErrNoJava) || errors.Is(err, cluster.ErrNoMaven) || errors.Is(err, errNoJDK)
	if absent && os.Getenv("CI") != "true" {
		leaveOut(t.Name(), err)
		t.Skipf("left out: %v", err)
	}
	require.NoError(t, err, "Apache RocketMQ is needed")
	return kits
}

var leftOut struct {
	sync.Mutex
	names []string
	why   error
}

func leaveOut(name string, why error) {
	leftOut.Lock()
	defer leftOut.Unlock()
	leftOut.names, leftOut.why = append(leftOut.names, name), why
}

func reportLeftOut() {
	leftOut.Lock()
	defer leftOut.Unlock()
	if len(leftOut.names) > 0 {
		fmt.Printf("LEFT OUT (%v):\n  %s\n", leftOut.why, strings.Join(leftOut.names, "\n  "))
	}
}
