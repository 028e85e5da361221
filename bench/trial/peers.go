package trial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"tandem/bench"
	"tandem/bench/remote"
	"tandem/cluster"
)

// LabelRedis is a Redis master with a replica, each value stored by SET and WAIT 1.
const LabelRedis = "Redis SET + WAIT 1"

// RedisHere asks for a Redis master and replica of our own, in the place of an address.
const RedisHere = "here"

const (
	apacheHeap   = "1g"
	jvmWarmup    = 20 * time.Second // until the Java brokers' code is compiled
	peerTimeout  = 3 * time.Second
	replicaLimit = 20 * time.Second
)

// LabelApache is an Apache pair of a version that replicates before it answers.
func LabelApache(version string) string { return "Apache " + version }

// startApache starts an Apache master that waits for its slave, and loads it until it is warm.
func (s Setup) startApache(ctx context.Context, version string, warmup time.Duration) (_ Peer, stop func() error, err error) {
	label := LabelApache(version)
	s.progress(0, 1, label+" is fetched and started")
	none := func() error { return nil }
	cache, err := cluster.DefaultCache()
	if err != nil {
		return Peer{}, none, absent{err}
	}
	apache, err := cluster.FetchApache(ctx, version, cache)
	if err != nil {
		return Peer{}, none, absent{err}
	}
	apache.Heap = apacheHeap
	p, err := s.startPair(ctx, pairOptions{label: label, dir: "apache", role: "SYNC_MASTER", slaves: 1, flavour: apache})
	if err != nil {
		return Peer{}, none, err
	}
	sent, err := bench.Send(ctx, bench.SendOptions{
		Addr: p.master.Addr(), Topic: topic, Conns: fullConns, Depth: fullDepth, Duration: warmup,
		Progress: func(g bench.Progress) { s.progress(int(g.Elapsed), int(g.Total), label+" warms up") },
	})
	if err == nil && sent.Acked == 0 { // a cold broker refuses some, and what counts is judged in the rounds
		err = sent.Err()
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return Peer{}, none, errors.Join(absent{fmt.Errorf("warm-up: %w", err)}, p.Close())
	}
	return Peer{Label: label, Addr: p.master.Addr(), watch: p.watch}, p.Close, nil
}

// absent marks an error as one that leaves out a peer and no more.
type absent struct{ error }

func (a absent) Is(target error) bool { return target == errAbsent }
func (a absent) Unwrap() error        { return a.error }

// checkPeers tells which of the peers that should run already do not take connections.
func checkPeers(ctx context.Context, peers []Peer, redis string) error {
	if redis != "" && redis != RedisHere {
		peers = append(slices.Clone(peers), Peer{Label: LabelRedis, Addr: redis})
	}
	var errs []error
	for _, p := range peers {
		d := net.Dialer{Timeout: peerTimeout}
		c, err := d.DialContext(ctx, "tcp", p.Addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Label, err))
			continue
		}
		c.Close()
	}
	return errors.Join(errs...)
}

// redis is a Redis master that is measured.
type redis struct {
	addr  string
	watch []bench.Watched
}

// startRedis starts a master and a replica that keep nothing on disk, or takes the master that runs at addr, and waits until a
// replica follows it.
func (s Setup) startRedis(ctx context.Context, addr string) (_ *redis, stop func() error, err error) {
	r := &redis{addr: addr}
	var parts []*running
	stop = func() error { return stopAll(parts) }
	if addr == RedisHere {
		if parts, err = s.redisPair(ctx); err != nil {
			return nil, stop, err
		}
		r.addr = parts[0].addr
		for _, p := range parts {
			r.watch = append(r.watch, p.watched())
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, replicaLimit, fmt.Errorf("redis %s: no replica follows it", r.addr))
	defer cancel()
	err = remote.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := bench.ReplicaOf(ctx, r.addr, time.Second)
		return err == nil, err
	})
	return r, stop, err
}

// redisPair starts a master, then its replica. What it returns must be stopped, also after an error.
func (s Setup) redisPair(ctx context.Context) (parts []*running, err error) {
	master := 0
	for _, name := range []string{"redis master", "redis replica"} {
		port, err := cluster.LeasePort(0)
		if err != nil {
			return parts, fmt.Errorf("port of %s: %w", name, err)
		}
		defer port.Release()
		spec, err := cluster.Redis(name, port.Port, master, filepath.Join(s.Dir, "redis"))
		if err != nil {
			return parts, err
		}
		p, err := cluster.Start(spec)
		if err != nil {
			return parts, err
		}
		parts = append(parts, &running{Process: p, name: name, addr: port.Addr()})
		if err := p.WaitReady(ctx); err != nil {
			return parts, err
		}
		master = port.Port
	}
	return parts, nil
}

func redisSide(size int, r *redis) *side {
	return &side{label: LabelRedis, loads: []string{LoadSingle}, measure: func(ctx context.Context, _ load, warmup, run time.Duration) (bench.SendReport, error) {
		return bench.Redis(ctx, bench.RedisOptions{
			Addr: r.addr, Label: LabelRedis, Size: size, Warmup: warmup, Duration: run, Watch: r.watch,
		})
	}}
}
