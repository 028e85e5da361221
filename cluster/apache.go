package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNoJava and ErrNoMaven say that a tool for running Apache RocketMQ is not installed.
var (
	ErrNoJava  = errors.New("no Java runtime: `java` is not in PATH")
	ErrNoMaven = errors.New("no Maven: `mvn` is not in PATH")
)

// Apache runs Apache RocketMQ from a directory of its jars; see FetchApache. The zero values of Java and Heap are usable.
type Apache struct {
	Version string // "4.9.7", "5.5.0"
	Jars    string // directory with RocketMQ's jars and all they need
	Java    string // the java command; "" is "java"
	Heap    string // each process's heap, as in "256m"; "" is 256m
}

// What the jars need of Java 17 and up: buffers are unmapped and cleaned through internals.
var javaOpens = [...]string{
	"--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
	"--add-opens=java.base/java.nio=ALL-UNNAMED",
	"--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
}

// javaReadyTimeout is a Java process's ReadyTimeout: a loaded machine takes its time.
const javaReadyTimeout = 2 * time.Minute

// logback is enough of a logging configuration for 4.9.7, which does not start without one.
const logback = `<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
`

// NameServer implements Flavour.
func (a Apache) NameServer(port int, dir string) (Spec, error) {
	if err := a.home(dir); err != nil {
		return Spec{}, err
	}
	conf := Conf{"listenPort": strconv.Itoa(port), "bindAddress": "127.0.0.1"}
	file, err := conf.write(dir, "namesrv.conf")
	if err != nil {
		return Spec{}, fmt.Errorf("settings of a name server: %w", err)
	}
	s := a.JavaMain("namesrv", dir, "org.apache.rocketmq.namesrv.NamesrvStartup", nil, "-c", file)
	s.Ready = []Probe{TCP(Local(port))}
	return s, nil
}

// Broker implements Flavour. Settings that conf does not name are chosen so that the role means what it says: version 5
// waits for no slave as SYNC_MASTER unless inSyncReplicas is at least 2, so it gets 2 here.
func (a Apache) Broker(conf Conf, dir string) (Spec, error) {
	if err := a.home(dir); err != nil {
		return Spec{}, err
	}
	root := filepath.Join(dir, "store")
	if own, ok := conf["storePathRootDir"]; ok {
		root = own
	}
	file, err := a.defaults(conf["brokerRole"], root).With(conf).write(dir, "broker.conf")
	if err != nil {
		return Spec{}, fmt.Errorf("settings of a broker: %w", err)
	}
	s := a.JavaMain("broker", dir, "org.apache.rocketmq.broker.BrokerStartup", nil, "-c", file)
	s.Ready = []Probe{TCP(conf.addr())}
	return s, nil
}

func (a Apache) defaults(role, root string) Conf {
	c := Conf{"storePathRootDir": root, "storePathCommitLog": filepath.Join(root, "commitlog")}
	if strings.HasPrefix(a.Version, "4.") {
		return c
	}
	c["timerWheelEnable"] = "false"
	if role == "SYNC_MASTER" {
		c["inSyncReplicas"], c["totalReplicas"] = "2", "2"
	}
	return c
}

// MQAdmin runs RocketMQ's admin tool to its end and returns what it printed. dir is its home, as of any process.
func (a Apache) MQAdmin(ctx context.Context, dir string, args ...string) (string, error) {
	if err := a.home(dir); err != nil {
		return "", err
	}
	return Run(ctx, a.JavaMain("mqadmin", dir, "org.apache.rocketmq.tools.command.MQAdminStartup", nil, args...))
}

// JavaMain is the spec of any main class over the jars, with classpath (directories or jars) put before them. dir becomes
// the process's home and working directory.
func (a Apache) JavaMain(name, dir, class string, classpath []string, args ...string) Spec {
	heap := a.Heap
	if heap == "" {
		heap = "256m"
	}
	java := []string{"-Xms" + heap, "-Xmx" + heap, "-XX:-UsePerfData", "-Duser.home=" + dir, "-Drocketmq.home.dir=" + dir}
	java = append(java, javaOpens[:]...)
	java = append(java, "-cp", a.classpath(classpath), class)
	return Spec{
		Name: name, Path: a.java(), Args: append(java, args...), Dir: dir,
		LogFile: filepath.Join(dir, name+".log"), ReadyTimeout: javaReadyTimeout,
	}
}

// Compile compiles Java sources against the jars into outDir.
func (a Apache) Compile(ctx context.Context, outDir string, sources ...string) error {
	args := append([]string{"-nowarn", "-d", outDir, "-cp", a.classpath(nil)}, sources...)
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	out, err := Run(ctx, Spec{Name: "javac", Path: "javac", Args: args})
	if err != nil {
		return fmt.Errorf("compile %v: %w\n%s", sources, err, out)
	}
	return nil
}

func (a Apache) java() string {
	if a.Java == "" {
		return "java"
	}
	return a.Java
}

func (a Apache) classpath(first []string) string {
	return strings.Join(append(append([]string{}, first...), filepath.Join(a.Jars, "*")), string(os.PathListSeparator))
}

// home makes dir usable as rocketmq.home.dir.
func (a Apache) home(dir string) error {
	if _, err := exec.LookPath(a.java()); err != nil {
		return fmt.Errorf("%w: %w", ErrNoJava, err)
	}
	conf := filepath.Join(dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return fmt.Errorf("home of an Apache process: %w", err)
	}
	for _, name := range [...]string{"broker", "namesrv", "tools"} {
		file := filepath.Join(conf, "logback_"+name+".xml")
		if err := os.WriteFile(file, []byte(logback), 0o644); err != nil {
			return fmt.Errorf("home of an Apache process: %w", err)
		}
	}
	return nil
}
