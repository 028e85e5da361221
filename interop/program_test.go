package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
)

// line is one JSON line of a client program.
type line struct {
	Status   string `json:"status"`
	Error    string `json:"error"`
	MsgID    string `json:"msgId"`
	Sum      uint32 `json:"crc"`
	Size     int    `json:"size"`
	Tags     string `json:"tags"`
	Keys     string `json:"keys"`
	Ready    bool   `json:"ready"`
	Done     bool   `json:"done"`
	Distinct int    `json:"distinct"`
}

// program is a running client program: real RocketMQ clients, in Java or Go.
type program struct {
	*cluster.Process
	log string
}

// goClient is the client of github.com/apache/rocketmq-client-go/v2; a version stands for the Java client of that version.
const goClient = "go"

var programNumber atomic.Int64

// program starts Produce or Consume on the client, with key=value arguments.
func (s *site) program(client, class string, args ...string) program {
	s.t.Helper()
	dir := filepath.Join(s.dir, fmt.Sprintf("client-%d", programNumber.Add(1)))
	args = append([]string{"namesrv=" + s.namesrv}, args...)
	spec := cluster.Spec{Name: class + " (Go client)", Path: os.Args[0], Args: args, Env: []string{envHelper + "=" + class}, Dir: dir,
		LogFile: filepath.Join(dir, "program.log")}
	if client != goClient {
		kit := needApache(s.t)[client]
		kit.Heap = "128m"
		spec = kit.JavaMain(class+"-"+client, dir, class, []string{kit.classes}, args...)
	}
	return program{s.launch(spec), spec.LogFile}
}

// lines is what the program printed so far.
func (p program) lines() []line {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	var all []line
	for _, l := range strings.Split(string(text), "\n") {
		var one line
		if strings.HasPrefix(l, "{") && json.Unmarshal([]byte(l), &one) == nil {
			all = append(all, one)
		}
	}
	return all
}

// sums maps message id to checksum of all lines that carry a message.
func (p program) sums() map[string]uint32 {
	all := map[string]uint32{}
	for _, l := range p.lines() {
		if l.MsgID != "" {
			all[l.MsgID] = l.Sum
		}
	}
	return all
}

// produce runs a producer to its end; every message must be stored. It returns checksums by message id.
func (s *site) produce(client, topic string, count, size int, more ...string) map[string]uint32 {
	s.t.Helper()
	args := append([]string{"topic=" + topic, fmt.Sprintf("count=%d", count), fmt.Sprintf("size=%d", size)}, more...)
	p := s.program(client, "Produce", args...)
	eventually(s.t, 2*patience, func() bool { return !p.Running() }, "the producer is done")
	for _, l := range p.lines() {
		if l.Status != "" {
			require.Equal(s.t, "SEND_OK", l.Status, "a send of the %s client: %s", client, l.Error)
		}
	}
	sums := p.sums()
	require.Len(s.t, sums, count, "messages stored by the %s client:\n%s", client, p.LogTail(20))
	return sums
}

// requireConsumed waits until the program has delivered exactly these messages, each with its checksum.
func requireConsumed(t testing.TB, p program, want map[string]uint32, who string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %d of %d messages consumed", who, len(p.sums()), len(want))
		}
	}()
	eventually(t, 2*patience, func() bool { return len(p.sums()) >= len(want) || !p.Running() }, "%s: all messages consumed", who)
	require.Equal(t, want, p.sums(), "%s: messages and their checksums", who)
}
