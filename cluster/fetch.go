package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

const lockPoll = 50 * time.Millisecond

var pom = template.Must(template.New("pom").Parse(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tandem</groupId>
  <artifactId>apache-rocketmq</artifactId>
  <version>1</version>
  <dependencies>{{range .Artifacts}}
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>{{.}}</artifactId><version>{{$.Version}}</version></dependency>{{end}}
  </dependencies>
</project>
`))

var artifacts = []string{"rocketmq-broker", "rocketmq-namesrv", "rocketmq-tools", "rocketmq-client"}

// DefaultCache is the directory in which FetchApache keeps the jars unless it is given another: one per user.
func DefaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache for Apache RocketMQ: %w", err)
	}
	return filepath.Join(dir, "tandem", "apache-rocketmq"), nil
}

// FetchApache brings a version of Apache RocketMQ by Maven into cacheDir/version, or finds it there from an earlier call.
// Callers in several processes may ask at once: one fetches and the others wait. Without Maven or Java the error is
// ErrNoMaven or ErrNoJava.
func FetchApache(ctx context.Context, version, cacheDir string) (Apache, error) {
	a := Apache{Version: version, Jars: filepath.Join(cacheDir, version)}
	if _, err := exec.LookPath(a.java()); err != nil {
		return Apache{}, fmt.Errorf("%w: %w", ErrNoJava, err)
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return Apache{}, fmt.Errorf("fetch Apache RocketMQ %s: %w", version, err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cacheDir, version+".lock"))
	if err != nil {
		return Apache{}, fmt.Errorf("fetch Apache RocketMQ %s: %w", version, err)
	}
	defer unlock()
	if _, err := os.Stat(a.Jars); err == nil {
		return a, nil // it gets its name only when it is complete
	}
	if err := fetch(ctx, version, a.Jars); err != nil {
		return Apache{}, fmt.Errorf("fetch Apache RocketMQ %s: %w", version, err)
	}
	return a, nil
}

func fetch(ctx context.Context, version, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoMaven, err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetch-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := writePom(filepath.Join(work, "pom.xml"), version); err != nil {
		return err
	}
	lib := filepath.Join(work, "lib")
	args := []string{"-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=" + lib}
	if _, err := Run(ctx, Spec{Name: "mvn", Path: mvn, Args: args, Dir: work}); err != nil {
		return err
	}
	return os.Rename(lib, dir)
}

func writePom(path, version string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = pom.Execute(f, map[string]any{"Version": version, "Artifacts": artifacts})
	return errors.Join(err, f.Close())
}

// lockFile takes an exclusive lock on path, waiting for whoever holds it. The lock ends with the returned function or with
// this process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
