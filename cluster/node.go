package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

var (
	// ErrRunning says that a node was started twice.
	ErrRunning = errors.New("already running")
	// ErrNotStarted says that a node has no process.
	ErrNotStarted = errors.New("not started")
)

// Node is a name server or a broker that can be started, stopped or killed, and started again over the same files and
// ports. Its methods are safe from any goroutine, but Start and Stop at once have no sensible meaning.
type Node struct {
	Name    string  // unique in its cluster: "namesrv", "broker-0", "broker-0-slave-1"
	Flavour Flavour // whose processes it runs
	Conf    Conf    // a broker's settings; read at each Start. Nil for a name server
	Dir     string  // its settings, log and store
	Ports   *Lease

	mu   sync.Mutex
	proc *Process
}

// Start starts the node's process and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	p, err := n.start()
	if err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func (n *Node) start() (*Process, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return nil, fmt.Errorf("start %s: %w", n.Name, ErrRunning)
	}
	spec, err := n.spec()
	if err != nil {
		return nil, err
	}
	p, err := Start(spec)
	if err != nil {
		return nil, err
	}
	n.proc = p
	return p, nil
}

func (n *Node) spec() (spec Spec, err error) {
	if n.Conf == nil {
		spec, err = n.Flavour.NameServer(n.Ports.Port, n.Dir)
	} else {
		spec, err = n.Flavour.Broker(n.Conf, n.Dir)
	}
	spec.Name = n.Name
	return spec, err
}

// Process is the node's latest process, running or ended; nil before the first Start.
func (n *Node) Process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Addr is where clients reach the node, "127.0.0.1:port".
func (n *Node) Addr() string { return n.Ports.Addr() }

// Store is a broker's store directory.
func (n *Node) Store() string { return n.Conf["storePathRootDir"] }

// Stop ends the process as Process.Stop does; a node without a process is stopped already.
func (n *Node) Stop() error {
	if p := n.Process(); p != nil {
		return p.Stop()
	}
	return nil
}

// Kill ends the process by SIGKILL and waits for its end.
func (n *Node) Kill() error { return n.on((*Process).Kill) }

// Pause stops the process where it is, by SIGSTOP.
func (n *Node) Pause() error { return n.on((*Process).Pause) }

// Resume lets a paused process go on.
func (n *Node) Resume() error { return n.on((*Process).Resume) }

func (n *Node) on(do func(*Process) error) error {
	p := n.Process()
	if p == nil {
		return fmt.Errorf("%s: %w", n.Name, ErrNotStarted)
	}
	return do(p)
}
