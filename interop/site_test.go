package interop

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
	"tandem/codec"
)

// maker says whose process it is: "tandem", or a version of Apache RocketMQ.
type maker string

const tandemMade maker = "tandem"

// ours is tandem, or what stands in for it.
func ours() maker {
	if v := standIn(); v != "" {
		return maker(v)
	}
	return tandemMade
}

func (m maker) flavour(t testing.TB) cluster.Flavour {
	t.Helper()
	if m == tandemMade {
		return cluster.Tandem{Binary: executable(t)}
	}
	return needApache(t)[string(m)].Apache
}

// apache tells which Apache version a maker is, "" for tandem.
func (m maker) apache() string {
	if m == tandemMade {
		return ""
	}
	return string(m)
}

const (
	segment16M = "16777216"
	segment1M  = "1048576"

	// patientTimeout is the slaveTimeout of masters in tests that do not measure time: a busy machine must not turn an
	// acknowledgement into a time-out.
	patientTimeout = 6 * time.Second
)

// apachePatience keeps a Java broker on a busy machine from answering SYSTEM_BUSY to what waited for 200 ms.
var apachePatience = cluster.Conf{
	"waitTimeMillsInSendQueue": "20000", "waitTimeMillsInPullQueue": "20000", "osPageCacheBusyTimeOutMills": "20000",
}

// site is one test's directory, name server and brokers. Everything in it ends with the test.
type site struct {
	t       testing.TB
	dir     string
	wire    *wire
	namesrv string // address
}

func newSite(t testing.TB, namesrv maker) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), wire: newWire(t)}
	lease, err := cluster.LeasePort(0)
	require.NoError(t, err)
	t.Cleanup(lease.Release)
	spec, err := namesrv.flavour(t).NameServer(lease.Port, filepath.Join(s.dir, "namesrv"))
	require.NoError(t, err)
	s.namesrv = lease.Addr()
	s.run(spec)
	return s
}

// run starts a process that ends with the test; a failed test shows its last lines.
func (s *site) run(spec cluster.Spec) *cluster.Process {
	s.t.Helper()
	p := s.launch(spec)
	require.NoError(s.t, p.WaitReady(context.Background()))
	return p
}

func (s *site) launch(spec cluster.Spec) *cluster.Process {
	s.t.Helper()
	p, err := cluster.Start(spec)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		requireNoCrash(s.t, spec)
		if s.t.Failed() {
			s.t.Logf("last lines of %s (%s):\n%s", spec.Name, spec.Dir, p.LogTail(25))
			showJavaLogs(s.t, spec.Dir)
		}
		_ = p.Resume()
		_ = p.Kill()
	})
	return p
}

// requireNoCrash fails the test when a process of ours panicked, or (built with -race) saw a data race, at any time.
func requireNoCrash(t testing.TB, spec cluster.Spec) {
	text, err := os.ReadFile(spec.LogFile)
	if err != nil || spec.Path == "java" {
		return
	}
	for _, sign := range []string{"\npanic: ", "\nfatal error: ", "WARNING: DATA RACE"} {
		if at := strings.Index(string(text), sign); at >= 0 {
			t.Errorf("%s crashed:\n%s", spec.Name, text[at:min(len(text), at+4000)])
		}
	}
}

func showJavaLogs(t testing.TB, dir string) {
	for _, name := range []string{"broker.log", "store.log", "storeerror.log"} {
		text, err := os.ReadFile(filepath.Join(dir, "logs", "rocketmqlogs", name))
		if err != nil || len(text) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("last lines of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
	}
}

// node is a broker of the site: a place with ports, settings and a store, over which processes can be started again and again.
type node struct {
	site  *site
	maker maker
	name  string
	addr  string
	ha    string
	store string
	conf  cluster.Conf
	proc  *cluster.Process
}

// newNode prepares a broker without starting it.
func (s *site) newNode(m maker, name string, conf ...cluster.Conf) *node {
	s.t.Helper()
	lease, err := cluster.LeaseBroker(0)
	require.NoError(s.t, err)
	s.t.Cleanup(lease.Release)
	n := &node{site: s, maker: m, name: name, addr: lease.Addr(), ha: cluster.Local(lease.HA()), store: filepath.Join(s.dir, name, "store")}
	n.conf = cluster.Conf{
		"brokerClusterName": "C", "brokerName": "b1", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "namesrvAddr": s.namesrv,
		"listenPort": strconv.Itoa(lease.Port), "haListenPort": strconv.Itoa(lease.HA()),
		"storePathRootDir": n.store, "mappedFileSizeCommitLog": segment16M,
		"slaveTimeout": strconv.FormatInt(patientTimeout.Milliseconds(), 10),
	}.With(conf...)
	maps.DeleteFunc(n.conf, func(_, v string) bool { return v == "" }) // "" takes a setting back
	return n
}

// master starts a master; role is SYNC_MASTER or ASYNC_MASTER.
func (s *site) master(m maker, role string, conf ...cluster.Conf) *node {
	s.t.Helper()
	n := s.newNode(m, "master", append([]cluster.Conf{{"brokerId": "0", "brokerRole": role}}, conf...)...)
	n.start()
	return n
}

// newSlave prepares a slave with the given id.
func (s *site) newSlave(m maker, id int, conf ...cluster.Conf) *node {
	s.t.Helper()
	base := cluster.Conf{"brokerId": strconv.Itoa(id), "brokerRole": "SLAVE"}
	if m.apache() != "" {
		base["slaveReadEnable"] = "true" // a 5.x slave refuses every pull without it
	}
	return s.newNode(m, "slave"+strconv.Itoa(id), append([]cluster.Conf{base}, conf...)...)
}

func (s *site) slave(m maker, id int, conf ...cluster.Conf) *node {
	s.t.Helper()
	n := s.newSlave(m, id, conf...)
	n.start()
	return n
}

// home is the process's own directory: one per maker, so that two makers in turn over one store keep their logs apart.
func (n *node) home() string { return filepath.Join(n.site.dir, n.name, string(n.maker)) }

func (n *node) spec() cluster.Spec {
	n.site.t.Helper()
	conf := n.conf
	if n.maker.apache() != "" {
		conf = apachePatience.With(conf)
	}
	spec, err := n.maker.flavour(n.site.t).Broker(conf, n.home())
	require.NoError(n.site.t, err)
	spec.Name = n.name + " (" + string(n.maker) + ")"
	spec.StopTimeout = time.Minute
	return spec
}

// start starts the broker and waits until it answers requests.
func (n *node) start() {
	n.site.t.Helper()
	n.proc = n.site.run(n.spec())
	eventually(n.site.t, patience, func() bool {
		_, err := n.site.wire.runtimeInfo(n.addr)
		return err == nil
	}, "%s answers requests", n.name)
}

// stop ends the broker in an orderly way.
func (n *node) stop() {
	n.site.t.Helper()
	require.NoError(n.site.t, n.proc.Stop())
	require.NoFileExists(n.site.t, filepath.Join(n.store, "abort"), "%s: an orderly stop removes the abort file", n.name)
}

// kill ends the broker with SIGKILL.
func (n *node) kill() {
	n.site.t.Helper()
	require.NoError(n.site.t, n.proc.Kill())
}

// pause stops the broker where it is and waits until each of its threads stands still: the signal alone returns earlier.
func (n *node) pause() {
	n.site.t.Helper()
	pause(n.site.t, n.proc)
}

func (n *node) resume() { require.NoError(n.site.t, n.proc.Resume()) }

func pause(t testing.TB, p *cluster.Process) {
	t.Helper()
	require.NoError(t, p.Pause())
	eventually(t, patience, func() bool { return allStopped(p.PID()) }, "every thread of %s stopped", p.Name())
}

// allStopped looks for the state T behind the name in the stat line of each thread.
func allStopped(pid int) bool {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended
		}
		if at := strings.LastIndexByte(string(text), ')'); at < 0 || !strings.HasPrefix(string(text[at:]), ") T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// config is the text of a file in the store's config directory, "" when there is none.
func (n *node) config(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.store, "config", name))
	return string(text)
}

// joined waits until a send to the sync master is acknowledged: a slave follows.
func (s *site) joined(l *ledger, master *node, topic string) {
	s.t.Helper()
	n := 0
	var last sent
	defer func() {
		if s.t.Failed() {
			s.t.Logf("last send to %s: %v", master.name, last)
		}
	}()
	eventually(s.t, 2*patience, func() bool {
		n++
		m := message{Topic: topic, ID: "join-" + strconv.Itoa(n) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), Body: []byte("is anybody there?")}
		last = l.send(s.wire, master.addr, m)
		return last.Err == nil && last.Code == codec.Success
	}, "a send to %s acknowledged by a slave", master.name)
}

// caughtUp waits until the logs of all nodes end where the first one's does.
func (s *site) caughtUp(first *node, others ...*node) {
	s.t.Helper()
	for _, n := range others {
		eventually(s.t, 2*patience, func() bool {
			end := s.wire.logEnd(first.addr)
			return end > 0 && s.wire.logEnd(n.addr) == end
		}, "%s has all of %s", n.name, first.name)
	}
}
