package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ErrNoPort says that no free port was found.
var ErrNoPort = errors.New("no free port")

// Ports are taken below the range from which the kernel gives ports to outgoing connections, so that no client of this
// machine can sit on one between its choice and its use.
const (
	lowestPort  = 12000
	highestPort = 32000
	portTries   = 500
)

// Lease is a set of TCP ports of 127.0.0.1 that were free when they were chosen and that no other Lease of this machine
// names until Release, or until this process ends.
type Lease struct {
	Port int // the first one: listenPort of a broker or name server

	marks []net.Listener
}

// HA is the port after Port: a broker's haListenPort. (RocketMQ 4.9.7 takes that one whatever its settings say.)
func (l *Lease) HA() int { return l.Port + 1 }

// Addr is "127.0.0.1:Port".
func (l *Lease) Addr() string { return Local(l.Port) }

// Release lets others choose the ports again.
func (l *Lease) Release() {
	for _, m := range l.marks {
		m.Close()
	}
	l.marks = nil
}

// Local is "127.0.0.1:port".
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// LeasePort finds one free port, prefer if that is free (0: any).
func LeasePort(prefer int) (*Lease, error) { return lease(prefer, 0) }

// LeaseBroker finds the ports of one broker: Port-2 (Java's second remoting port), Port, and Port+1 for replication;
// around prefer if those are free (0: any).
func LeaseBroker(prefer int) (*Lease, error) { return lease(prefer, -2, 0, 1) }

func lease(prefer int, offsets ...int) (*Lease, error) {
	if prefer > 0 {
		if l, ok := tryLease(prefer, offsets); ok {
			return l, nil
		}
	}
	for range portTries {
		base := lowestPort + rand.IntN(highestPort-lowestPort)
		if l, ok := tryLease(base, offsets); ok {
			return l, nil
		}
	}
	return nil, fmt.Errorf("%w of %d..%d after %d tries", ErrNoPort, lowestPort, highestPort, portTries)
}

func tryLease(base int, offsets []int) (*Lease, bool) {
	l := &Lease{Port: base}
	for _, off := range offsets {
		mark, err := markPort(base + off)
		if err != nil {
			l.Release()
			return nil, false
		}
		l.marks = append(l.marks, mark)
	}
	return l, true
}

// markPort tries the port, and keeps an abstract Unix socket of its name as the mark that it is spoken for: the kernel
// removes it with this process, and unlike the port itself the child can take what it stands for.
func markPort(port int) (net.Listener, error) {
	mark, err := net.Listen("unix", "@tandem-port-"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	probe, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // all addresses: brokers bind those
	if err != nil {
		mark.Close()
		return nil, err
	}
	probe.Close()
	return mark, nil
}
