package commitlog

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary a broker's store that appends until it is killed.
const childEnv = "TANDEM_COMMITLOG_CHILD"

// runChild appends from several goroutines and prints where each message was stored.
func runChild(dir string) {
	o := testOptions(dir)
	s, err := Open(o)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	for g := range 4 {
		go func() {
			rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(g)))
			for {
				var l []*Append
				for range 1 + rnd.IntN(5) {
					l = append(l, item(s, message{topic: fmt.Sprint("T", rnd.IntN(3)), queue: int32(rnd.IntN(2)), body: strings.Repeat("z", rnd.IntN(2000)), tag: "TagA"}))
				}
				s.Append(l, nil)
				mu.Lock()
				for _, a := range l {
					fmt.Fprintln(out, a.Queue.topic, a.Queue.id, a.QueueOffset, a.Offset, a.End)
				}
				out.Flush()
				mu.Unlock()
			}
		}()
	}
	select {}
}

type stored struct {
	topic       string
	queue       int32
	number      int64
	offset, end int64
}

// killedChild runs a child on a store and kills it after some acknowledged messages.
func killedChild(t *testing.T, dir string, after int) (l []stored) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var m stored
		if n, _ := fmt.Sscan(lines.Text(), &m.topic, &m.queue, &m.number, &m.offset, &m.end); n != 5 {
			require.NotContains(t, lines.Text(), "error")
			break // cut by the kill
		}
		l = append(l, m)
		if len(l) == after {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	require.GreaterOrEqual(t, len(l), after)
	return l
}

func TestKillMinusNineLosesNoAcknowledgedMessage(t *testing.T) {
	dir := tempDir(t)
	var l []stored
	for round := range 20 {
		l = append(l, killedChild(t, dir, 1+rand.IntN(300))...)
		s, err := Open(testOptions(dir))
		require.NoError(t, err)
		require.False(t, s.Recovery().Clean)
		for _, m := range l {
			var u [1]Unit
			n, err := s.Queue(m.topic, m.queue).Read(m.number, u[:])
			require.NoError(t, err)
			require.Equal(t, 1, n, "round %d: %+v", round, m)
			require.Equal(t, m.offset, u[0].Offset)
			require.EqualValues(t, m.end-m.offset, u[0].Size)
		}
		require.GreaterOrEqual(t, readAllQueues(t, s), len(l))
		closeTest(t, s)
	}
}
