package engine

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const childVar = "ENGINE_TEST_CHILD"

// holdDescriptors takes all descriptors at the word "take", gives them back at "give", and returns at the input's end.
func holdDescriptors() {
	var files []*os.File
	for {
		var word string
		if _, err := fmt.Scanln(&word); err != nil {
			return
		}
		for word == "take" {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			files = append(files, f)
		}
		if word == "give" {
			for _, f := range files {
				_ = f.Close()
			}
			files = nil
		}
		fmt.Println(word)
	}
}

// runChild is a server in a process of its own with few descriptors. It exits when its input ends.
func runChild() int {
	limit := syscall.Rlimit{Cur: 40, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := Listen(Options{Addrs: []string{"127.0.0.1:0"}, MaxConns: 1000}, &testHandler{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.Addrs()[0])
	holdDescriptors()
	st := s.Stats()
	stop(s)
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	fmt.Println(st.RefusedConns > 0, limit.Cur)
	return 0
}

func TestRunningOutOfDescriptorsRefusesAndNeverStops(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var addr string
	_, err = fmt.Fscanln(out, &addr)
	require.NoError(t, err)

	first := dialAddr(t, addr)
	first.call(0)
	for round := range 3 {
		var open, refused []*peer
		for i := range int32(100) {
			p := dialAddr(t, addr)
			if _, err := p.Write(request(codeEcho, i, nil)); err == nil {
				if _, err = p.tryNext(); err == nil {
					open = append(open, p)
					continue
				}
			}
			refused = append(refused, p)
		}
		require.NotEmpty(t, open, "round %d", round)
		require.NotEmpty(t, refused, "round %d", round)
		first.call(1)
		for _, p := range append(open, refused...) {
			_ = p.Close()
		}
		eventually(t, func() bool { return answers(addr) }, "it takes connections again")
	}

	say := func(word string) {
		_, err := fmt.Fprintln(in, word)
		require.NoError(t, err)
		var echo string
		_, err = fmt.Fscanln(out, &echo)
		require.NoError(t, err)
	}
	say("take") // now not even one is left to accept with
	for range 3 {
		dialAddr(t, addr).ended()
		first.call(2)
	}
	say("give")
	eventually(t, func() bool { return answers(addr) }, "it takes connections again")
	first.call(3)

	require.NoError(t, in.Close())
	var wasRefused bool
	var limit int
	_, err = fmt.Fscanln(out, &wasRefused, &limit)
	require.NoError(t, err)
	require.True(t, wasRefused, "refusals are counted")
	require.Equal(t, 64, limit, "the soft limit was raised to the hard one")
	require.NoError(t, cmd.Wait())
}

func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(request(codeEcho, 1, nil))
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}
