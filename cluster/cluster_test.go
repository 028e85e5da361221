package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func newCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	o.Dir = t.TempDir()
	if o.Master == nil {
		o.Master = testFlavour{}
	}
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestAClusterIsLaidOutAsAsked(t *testing.T) {
	c := newCluster(t, Options{
		Name: "C", Pairs: 2, Slaves: 2, Conf: Conf{"slaveTimeout": "500"},
		MasterConf: Conf{"inSyncReplicas": "3"}, SlaveConf: Conf{"haJoinFrom": "oldest"},
	})
	require.Len(t, c.Nodes(), 7)
	require.Len(t, c.Pairs[1].Slaves, 2)
	ports := map[string]bool{}
	for _, n := range c.Nodes()[1:] {
		require.Equal(t, "C", n.Conf["brokerClusterName"])
		require.Equal(t, "500", n.Conf["slaveTimeout"])
		require.Equal(t, c.NameServer.Addr(), n.Conf["namesrvAddr"])
		require.Equal(t, "127.0.0.1:"+n.Conf["listenPort"], n.Addr())
		require.True(t, strings.HasPrefix(n.Store(), n.Dir))
		for _, key := range []string{"listenPort", "haListenPort"} {
			require.False(t, ports[n.Conf[key]], "port %s is given twice", n.Conf[key])
			ports[n.Conf[key]] = true
		}
	}
	master, slave := c.Pairs[1].Master, c.Pairs[1].Slaves[1]
	require.Equal(t, "broker-1", master.Conf["brokerName"])
	require.Equal(t, []string{"0", "SYNC_MASTER", "3", ""}, values(master.Conf))
	require.Equal(t, "broker-1", slave.Conf["brokerName"])
	require.Equal(t, []string{"2", "SLAVE", "", "oldest"}, values(slave.Conf))
}

func values(c Conf) []string {
	return []string{c["brokerId"], c["brokerRole"], c["inSyncReplicas"], c["haJoinFrom"]}
}

func TestAClusterStartsAndStops(t *testing.T) {
	c := newCluster(t, Options{Slaves: 1})
	require.Error(t, c.WaitReady(t.Context()), "nothing runs yet")
	require.NoError(t, c.Start(t.Context()))
	require.NoError(t, c.WaitReady(t.Context()))
	for _, n := range c.Nodes() {
		conn, err := net.Dial("tcp", n.Addr())
		require.NoError(t, err)
		conn.Close()
	}
	require.NoError(t, c.Close())
	for _, n := range c.Nodes() {
		require.Equal(t, 0, n.Process().Wait().Code, "%s was asked to stop, and not killed", n.Name)
	}
	require.NoError(t, c.Close(), "closing twice is no error")
}

func TestANodeCanBeKilledAndStartedAgain(t *testing.T) {
	c := newCluster(t, Options{})
	require.ErrorIs(t, c.Pairs[0].Master.Kill(), ErrNotStarted)
	require.NoError(t, c.Start(t.Context()))
	m := c.Pairs[0].Master
	first := m.Process()
	require.ErrorIs(t, m.Start(t.Context()), ErrRunning)
	require.NoError(t, m.Pause())
	require.NoError(t, m.Resume())
	require.NoError(t, m.Kill())
	require.NoError(t, m.Start(t.Context()))
	require.NotEqual(t, first.PID(), m.Process().PID())
}

func TestAClusterThatDoesNotStartSaysWhichNodeAndWhy(t *testing.T) {
	c := newCluster(t, Options{Slaves: 1, Slave: testFlavour{failing: "SLAVE"}})
	err := c.Start(t.Context())
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "broker-0-slave-1")
	require.ErrorContains(t, err, "cannot listen")
}

func TestWatchReportsTheNodeThatEnds(t *testing.T) {
	c := newCluster(t, Options{Slaves: 1})
	require.NoError(t, c.Start(t.Context()))
	watched := make(chan error)
	go func() { watched <- c.Watch(t.Context()) }()
	require.NoError(t, c.Pairs[0].Slaves[0].Kill())
	err := <-watched
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "broker-0-slave-1")
}

func TestWatchEndsWithItsContext(t *testing.T) {
	c := newCluster(t, Options{})
	require.NoError(t, c.Start(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Watch(ctx))
}

func TestLeasesNeverOverlap(t *testing.T) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	taken := map[int]bool{}
	for range 8 {
		wg.Go(func() {
			l, err := LeaseBroker(20000) // all want the same
			require.NoError(t, err)
			t.Cleanup(l.Release)
			mu.Lock()
			defer mu.Unlock()
			for _, p := range []int{l.Port - 2, l.Port, l.HA()} {
				require.False(t, taken[p])
				taken[p] = true
			}
		})
	}
	wg.Wait()
}

func TestAPortInUseIsNotLeased(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	l, err := LeasePort(ln.Addr().(*net.TCPAddr).Port)
	require.NoError(t, err)
	defer l.Release()
	require.NotEqual(t, ln.Addr().(*net.TCPAddr).Port, l.Port)
}

func TestConfIsWrittenAsProperties(t *testing.T) {
	base := Conf{"b": "1", "a": `C:\x`}
	c := base.With(Conf{"b": "2"}, Conf{"c": "two\nlines"})
	require.Equal(t, "a=C:\\\\x\nb=2\nc=two\\nlines\n", c.String())
	require.Equal(t, "1", base["b"], "With copies")
}

func TestTandemSpecs(t *testing.T) {
	dir := t.TempDir()
	f := Tandem{Binary: "/bin/tandem"}
	ns, err := f.NameServer(9876, dir)
	require.NoError(t, err)
	require.Equal(t, []string{"namesrv", "--listenPort=9876", "--bindAddress=127.0.0.1"}, ns.Args)

	b, err := f.Broker(Conf{"listenPort": "10911"}, dir)
	require.NoError(t, err)
	require.Equal(t, []string{"broker", "-c", filepath.Join(dir, "broker.conf")}, b.Args)
	text, err := os.ReadFile(filepath.Join(dir, "broker.conf"))
	require.NoError(t, err)
	require.Equal(t, "listenPort=10911\nstorePathRootDir="+filepath.Join(dir, "store")+"\n", string(text))
}
