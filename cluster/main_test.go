package cluster

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the small process that the tests start: with this variable it is a server on the given port.
const serveEnv = "TANDEM_CLUSTER_TEST_SERVE"

func TestMain(m *testing.M) {
	if port := os.Getenv(serveEnv); port != "" {
		os.Exit(serve(port))
	}
	goleak.VerifyTestMain(m)
}

// serve listens on the port until SIGTERM. Asked for port "-1" it stops at once with status 3.
func serve(port string) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Println("cannot listen:", err)
		return 3
	}
	fmt.Println("listening on", ln.Addr())
	<-stop
	fmt.Println("stopping")
	return 0
}

// testFlavour runs the test binary's server in the place of brokers and name servers.
type testFlavour struct{ failing string } // name of the setting file's brokerRole that fails to start

func (testFlavour) NameServer(port int, dir string) (Spec, error) {
	return serveSpec(strconv.Itoa(port), dir), nil
}

func (f testFlavour) Broker(conf Conf, dir string) (Spec, error) {
	if _, err := conf.write(dir, "broker.conf"); err != nil {
		return Spec{}, err
	}
	if conf["brokerRole"] == f.failing {
		return serveSpec("-1", dir), nil
	}
	return serveSpec(conf["listenPort"], dir), nil
}

func serveSpec(port, dir string) Spec {
	return Spec{
		Name: "server", Path: os.Args[0], Env: []string{serveEnv + "=" + port, "GORACE=atexit_sleep_ms=0"}, Dir: dir, LogFile: dir + "/out.log",
		Ready: []Probe{TCP("127.0.0.1:" + port), LogLine("listening on")},
	}
}
