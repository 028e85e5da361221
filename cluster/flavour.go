package cluster

import (
	"fmt"
	"path/filepath"
)

// Flavour knows how to run the processes of one implementation. dir is the process's own directory for its settings, log
// and (unless the settings say otherwise) store; it is made if it is missing and never removed.
type Flavour interface {
	// NameServer runs a name server on 127.0.0.1:port.
	NameServer(port int, dir string) (Spec, error)
	// Broker writes dir/broker.conf and runs a broker with it. conf must have listenPort.
	Broker(conf Conf, dir string) (Spec, error)
}

// Tandem runs our own processes.
type Tandem struct {
	Binary string // path of the executable
}

// NameServer implements Flavour.
func (t Tandem) NameServer(port int, dir string) (Spec, error) {
	s := t.spec("namesrv", dir, "namesrv", fmt.Sprintf("--listenPort=%d", port), "--bindAddress=127.0.0.1")
	s.Ready = []Probe{TCP(Local(port))}
	return s, nil
}

// Broker implements Flavour.
func (t Tandem) Broker(conf Conf, dir string) (Spec, error) {
	conf = Conf{"storePathRootDir": filepath.Join(dir, "store")}.With(conf)
	file, err := conf.write(dir, "broker.conf")
	if err != nil {
		return Spec{}, fmt.Errorf("settings of a broker: %w", err)
	}
	s := t.spec("broker", dir, "broker", "-c", file)
	s.Ready = []Probe{TCP(conf.addr())}
	return s, nil
}

func (t Tandem) spec(name, dir string, args ...string) Spec {
	return Spec{Name: name, Path: t.Binary, Args: args, Dir: dir, LogFile: filepath.Join(dir, name+".log")}
}
