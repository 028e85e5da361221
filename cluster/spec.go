package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Defaults of a Spec's zero durations.
const (
	DefaultReadyTimeout = 60 * time.Second
	DefaultStopTimeout  = 20 * time.Second
)

// Spec says how to start one process. The zero values of the optional fields are usable.
type Spec struct {
	Name string   // what reports and errors call it, e.g. "broker-0 master"
	Path string   // executable: a path, or a name that is looked up in PATH
	Args []string // without the executable itself
	Env  []string // added to this process's environment, "KEY=value"
	Dir  string   // working directory, made if it is missing; "" is this process's own

	LogFile string  // standard output and error are appended to it; "" discards both
	Ready   []Probe // all must hold before WaitReady returns

	ReadyTimeout time.Duration // limit of WaitReady; 0 is DefaultReadyTimeout
	StopTimeout  time.Duration // time between SIGTERM and SIGKILL; 0 is DefaultStopTimeout
}

func (s Spec) withDefaults() Spec {
	if s.ReadyTimeout <= 0 {
		s.ReadyTimeout = DefaultReadyTimeout
	}
	if s.StopTimeout <= 0 {
		s.StopTimeout = DefaultStopTimeout
	}
	return s
}

// Probe asks whether a started process is ready. Check is called again and again, never twice at once; it must return
// within about a second and leave nothing behind. String names what is waited for, in the words of an error text.
type Probe interface {
	Check(ctx context.Context, p *Process) bool
	String() string
}

// TCP is ready when addr ("host:port") takes a connection, which is closed again at once.
func TCP(addr string) Probe { return tcpProbe(addr) }

// LogLine is ready when the process has written text to its log since this start. The Spec must have a LogFile.
func LogLine(text string) Probe { return logProbe(text) }

type tcpProbe string

func (a tcpProbe) String() string { return "a connection to " + string(a) }

func (a tcpProbe) Check(ctx context.Context, _ *Process) bool {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", string(a))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

type logProbe string

func (t logProbe) String() string { return fmt.Sprintf("the line %q in its log", string(t)) }

func (t logProbe) Check(_ context.Context, p *Process) bool {
	return bytes.Contains(p.output(), []byte(t))
}

// readFrom returns what stands in the file from offset on, at most max bytes of its end; nil if it cannot be read.
func readFrom(path string, offset, max int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	if size := st.Size(); size-offset > max {
		offset = size - max
	}
	b, err := io.ReadAll(io.NewSectionReader(f, offset, max))
	if err != nil {
		return nil
	}
	return b
}
