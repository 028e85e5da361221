package cluster

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// ErrNoRedis says that Redis is not installed.
var ErrNoRedis = errors.New("no redis-server: `redis-server` is not in PATH")

// Redis is the spec of a Redis server that keeps everything in memory, on 127.0.0.1:port, with its log in dir. With a master's port
// above 0 it is that one's replica. Without redis-server the error is ErrNoRedis.
func Redis(name string, port, master int, dir string) (Spec, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return Spec{}, fmt.Errorf("%w: %w", ErrNoRedis, err)
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
	}
	if master > 0 {
		args = append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(master))
	}
	return Spec{
		Name: name, Path: path, Args: args, Dir: dir, LogFile: filepath.Join(dir, name+".log"), Ready: []Probe{TCP(Local(port))},
	}, nil
}
