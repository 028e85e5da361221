package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Options of a Cluster. Dir and Master are required.
type Options struct {
	Dir    string // all nodes' directories are made below it; the caller removes it
	Name   string // brokerClusterName; "" is "tandem"
	Pairs  int    // masters; 0 is 1
	Slaves int    // slaves of each master
	Role   string // the masters' brokerRole; "" is SYNC_MASTER

	Master     Flavour
	Slave      Flavour // nil: as Master
	NameServer Flavour // nil: as Master

	Conf       Conf // settings of every broker, over those that the cluster chooses
	MasterConf Conf // more, of masters only
	SlaveConf  Conf // more, of slaves only

	NameServerPort int // preferred; 0 or taken: any free one
	BrokerPort     int // the first broker's preferred listenPort, the next ones at steps of 10
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "tandem"
	}
	if o.Pairs == 0 {
		o.Pairs = 1
	}
	if o.Role == "" {
		o.Role = "SYNC_MASTER"
	}
	if o.Slave == nil {
		o.Slave = o.Master
	}
	if o.NameServer == nil {
		o.NameServer = o.Master
	}
	return o
}

// Pair is a master and its slaves.
type Pair struct {
	Master *Node
	Slaves []*Node
}

// Cluster is a name server and one or more masters, each with its slaves, on this machine.
type Cluster struct {
	NameServer *Node
	Pairs      []Pair
}

// New lays out a cluster and leases its ports. Nothing runs before Start, but Close must be called.
func New(o Options) (*Cluster, error) {
	o = o.withDefaults()
	c := &Cluster{}
	port, err := LeasePort(o.NameServerPort)
	if err != nil {
		return nil, fmt.Errorf("port of the name server: %w", err)
	}
	c.NameServer = &Node{Name: "namesrv", Flavour: o.NameServer, Dir: filepath.Join(o.Dir, "namesrv"), Ports: port}
	for i := range o.Pairs {
		if err := c.addPair(o, i); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) addPair(o Options, i int) error {
	brokerName := "broker-" + strconv.Itoa(i)
	master, err := c.broker(o, i*(1+o.Slaves), brokerName, o.Master, Conf{
		"brokerName": brokerName, "brokerId": "0", "brokerRole": o.Role,
	}.With(o.Conf, o.MasterConf))
	if err != nil {
		return err
	}
	c.Pairs = append(c.Pairs, Pair{Master: master})
	pair := &c.Pairs[i]
	for id := 1; id <= o.Slaves; id++ {
		name := fmt.Sprintf("%s-slave-%d", brokerName, id)
		slave, err := c.broker(o, i*(1+o.Slaves)+id, name, o.Slave, Conf{
			"brokerName": brokerName, "brokerId": strconv.Itoa(id), "brokerRole": "SLAVE",
		}.With(o.Conf, o.SlaveConf))
		if err != nil {
			return err
		}
		pair.Slaves = append(pair.Slaves, slave)
	}
	return nil
}

// broker lays out the n-th broker of the cluster.
func (c *Cluster) broker(o Options, n int, name string, f Flavour, conf Conf) (*Node, error) {
	prefer := 0
	if o.BrokerPort > 0 {
		prefer = o.BrokerPort + 10*n
	}
	ports, err := LeaseBroker(prefer)
	if err != nil {
		return nil, fmt.Errorf("ports of %s: %w", name, err)
	}
	dir := filepath.Join(o.Dir, name)
	base := Conf{
		"brokerClusterName": o.Name,
		"listenPort":        strconv.Itoa(ports.Port),
		"haListenPort":      strconv.Itoa(ports.HA()),
		"brokerIP1":         "127.0.0.1",
		"brokerIP2":         "127.0.0.1",
		"namesrvAddr":       c.NameServer.Addr(),
		"storePathRootDir":  filepath.Join(dir, "store"),
	}
	return &Node{Name: name, Flavour: f, Conf: base.With(conf), Dir: dir, Ports: ports}, nil
}

// Start starts the name server, then all masters, then all slaves, and waits each time until they are ready: ports are
// open, nothing more. If one fails, its error is returned and the others go on until Close.
func (c *Cluster) Start(ctx context.Context) error {
	for _, wave := range [][]*Node{{c.NameServer}, c.Masters(), c.Slaves()} {
		g, ctx := errgroup.WithContext(ctx)
		for _, n := range wave {
			g.Go(func() error { return n.Start(ctx) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady waits until every node that runs is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, n := range c.Nodes() {
		p := n.Process()
		if p == nil {
			return fmt.Errorf("%s: %w", n.Name, ErrNotStarted)
		}
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Masters of all pairs, in order.
func (c *Cluster) Masters() []*Node {
	var out []*Node
	for _, p := range c.Pairs {
		out = append(out, p.Master)
	}
	return out
}

// Slaves of all pairs, in order.
func (c *Cluster) Slaves() []*Node {
	var out []*Node
	for _, p := range c.Pairs {
		out = append(out, p.Slaves...)
	}
	return out
}

// Nodes are the name server, the masters and the slaves.
func (c *Cluster) Nodes() []*Node {
	return append(append([]*Node{c.NameServer}, c.Masters()...), c.Slaves()...)
}

// Watch blocks until the context ends, which is no error, or until a process of a node that ran at the call ends: the error
// is then ErrExited, with the node's name and the end of its log.
func (c *Cluster) Watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	for _, n := range c.Nodes() {
		p := n.Process()
		if p == nil {
			continue
		}
		g.Go(func() error {
			select {
			case <-ctx.Done():
				return nil
			case <-p.Done():
				cancel()
				return fmt.Errorf("%s: %w: it %v\n%s", n.Name, ErrExited, p.Wait(), p.LogTail(20))
			}
		})
	}
	return g.Wait()
}

// Close stops what runs: masters first, while their slaves can still acknowledge, then slaves, then the name server. It
// returns the ports. Its error names the nodes that had to be killed.
func (c *Cluster) Close() error {
	var errs []error
	for _, wave := range [][]*Node{c.Masters(), c.Slaves(), {c.NameServer}} {
		errs = append(errs, stopAll(wave))
	}
	for _, n := range c.Nodes() {
		n.Ports.Release()
	}
	return errors.Join(errs...)
}

func stopAll(nodes []*Node) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
