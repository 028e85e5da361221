package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/bench"
	"tandem/bench/part"
	"tandem/bench/remote"
	"tandem/cluster"
)

// Setup is what every trial needs. Binary and Dir are required.
type Setup struct {
	Binary string // our own executable
	Dir    string // the processes' files; stores are removed when they are done with, the rest is the caller's to remove

	Memory *Memory // fills the page cache before each run; nil: it is left as it is

	Progress func(done, total int64, what string) // before each step, and a few times a second in long ones; may be nil
}

func (s Setup) progress(done, total int, what string) {
	if s.Progress != nil {
		s.Progress(int64(done), int64(total), what)
	}
}

// patient gives brokers time to write their logs to the disk when they are stopped.
type patient struct{ cluster.Flavour }

const stopTimeout = 3 * time.Minute

func (p patient) Broker(conf cluster.Conf, dir string) (cluster.Spec, error) {
	spec, err := p.Flavour.Broker(conf, dir)
	spec.StopTimeout = stopTimeout
	return spec, err
}

// pair is a running master with slaves, and a client to ask them.
type pair struct {
	*cluster.Cluster
	label         string
	master        *cluster.Node
	slaves        []*cluster.Node
	client        *remote.Client
	watch         []bench.Watched
	removeOnClose []string
}

// pairOptions lay out a pair.
type pairOptions struct {
	label, dir, role string
	slaves           int
	conf, slaveConf  cluster.Conf
	masterOnly       bool            // the slaves are laid out but not started
	flavour          cluster.Flavour // nil: our own brokers
}

// startPair starts a master with its slaves and waits until they follow. The pair must be closed, unless there is an error.
func (s Setup) startPair(ctx context.Context, o pairOptions) (p *pair, err error) {
	if o.flavour == nil {
		o.flavour = cluster.Tandem{Binary: s.Binary}
	}
	c, err := cluster.New(cluster.Options{
		Dir: filepath.Join(s.Dir, o.dir), Name: "bench", Slaves: o.slaves, Role: o.role, Master: patient{o.flavour},
		Conf: o.conf, SlaveConf: o.slaveConf,
	})
	if err != nil {
		return nil, err
	}
	p = &pair{Cluster: c, label: o.label, master: c.Pairs[0].Master, slaves: c.Pairs[0].Slaves, client: remote.New(0, nil)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", o.label, err), p.Close())
		}
	}()
	for _, n := range append([]*cluster.Node{p.master}, p.slaves...) {
		if _, err := os.Stat(n.Store()); err == nil {
			return p, fmt.Errorf("there is a store already: %s; give an empty directory", n.Store())
		}
		p.removeOnClose = append(p.removeOnClose, n.Store())
	}
	if o.masterOnly {
		for _, n := range []*cluster.Node{p.NameServer, p.master} {
			if err := n.Start(ctx); err != nil {
				return p, err
			}
		}
		p.watch = []bench.Watched{watched("master", p.master)}
		return p, nil
	}
	if err := c.Start(ctx); err != nil {
		return p, err
	}
	for _, slave := range p.slaves {
		if err := p.client.WaitPair(ctx, p.master.Addr(), slave.Addr()); err != nil {
			return p, err
		}
	}
	p.watch = []bench.Watched{watched("master", p.master)}
	for i, slave := range p.slaves {
		p.watch = append(p.watch, watched(numbered("slave", i, len(p.slaves)), slave))
	}
	return p, nil
}

// Close stops the processes and removes their stores.
func (p *pair) Close() error {
	p.client.Close()
	errs := []error{p.Cluster.Close()}
	for _, store := range p.removeOnClose {
		errs = append(errs, os.RemoveAll(store))
	}
	return errors.Join(errs...)
}

func watched(name string, n *cluster.Node) bench.Watched {
	return bench.Watched{Name: name, PID: n.Process().PID()}
}

func numbered(name string, i, of int) string {
	if of == 1 {
		return name
	}
	return name + " " + strconv.Itoa(i+1)
}

// running is a part's process.
type running struct {
	*cluster.Process
	name string
	addr string // where it listens, if it does
}

// startPart starts a part of the given kind with these flags, and waits until it is ready. Without listens it listens nowhere.
func (s Setup) startPart(ctx context.Context, name, kind string, listens bool, flags ...string) (_ *running, err error) {
	args := []string{"bench", "part", kind}
	if listens {
		port, err := cluster.LeasePort(0)
		if err != nil {
			return nil, fmt.Errorf("port of %s: %w", name, err)
		}
		defer port.Release() // it is the part's by then
		args = append(args, "--listen="+port.Addr())
	}
	dir := filepath.Join(s.Dir, "parts")
	p, err := cluster.Start(cluster.Spec{
		Name: name, Path: s.Binary, Args: append(args, flags...), Dir: dir,
		LogFile: filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log"), Ready: []cluster.Probe{cluster.LogLine(part.ReadyLine)},
	})
	if err != nil {
		return nil, err
	}
	r := &running{Process: p, name: name}
	if err := p.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	if r.addr = readyAddr(p.LogTail(10)); r.addr == "" {
		return nil, errors.Join(fmt.Errorf("%s does not tell its address: %q", name, p.LogTail(10)), p.Stop())
	}
	return r, nil
}

// readyAddr finds the address in what a part has printed.
func readyAddr(log string) string {
	for line := range strings.Lines(log) {
		if addr, ok := strings.CutPrefix(line, part.ReadyLine); ok {
			return strings.TrimSpace(addr)
		}
	}
	return ""
}

func (r *running) watched() bench.Watched { return bench.Watched{Name: r.name, PID: r.PID()} }

// stopAll stops parts; the first one's peers first is what the caller's order says.
func stopAll(parts []*running) error {
	var errs []error
	for _, p := range parts {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}
