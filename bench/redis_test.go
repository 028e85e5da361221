package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startRedis answers each pair of commands with a text, over the plain network; what was asked comes through the channel once.
func startRedis(t *testing.T, answer string) (addr string, first <-chan []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan []string, 1+redisKeys/redisBatch+1)
	var once sync.Once
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for {
				set, err := readRedis(in)
				if err != nil {
					break
				}
				if set[0] == "UNLINK" {
					asked <- set
					io.WriteString(c, ":1\r\n")
					continue
				}
				wait, err := readRedis(in)
				if err != nil {
					break
				}
				once.Do(func() { asked <- append(set, wait...) })
				if _, err := io.WriteString(c, answer); err != nil {
					break
				}
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String(), asked
}

func readRedis(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

func TestAValueIsStoredAndAReplicaWaitedFor(t *testing.T) {
	addr, asked := startRedis(t, redisAnswer)
	r, err := Redis(t.Context(), RedisOptions{Addr: addr, Label: "redis", Size: 100, Duration: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Positive(t, r.Acked)
	require.Positive(t, r.RoundTrip.P50)
	words := <-asked
	require.Equal(t, []string{"SET", RedisPrefix + "00000001", string(payload(100)), "WAIT", "1", "0"}, words)
	require.Equal(t, []string{"UNLINK", RedisPrefix + "00000000", RedisPrefix + "00000001"}, (<-asked)[:3], "what was written is removed")
}

func TestWhatIsNoStoredValueIsAnError(t *testing.T) {
	for _, answer := range []string{"+OK\r\n:0\r\n", "-ERR unknown command\r\n-ERR\r\n", "+NO\r\n:1\r\n", strings.Repeat("x", 9)} {
		addr, _ := startRedis(t, answer)
		_, err := Redis(t.Context(), RedisOptions{Addr: addr, Size: 1, Duration: time.Second})
		require.ErrorIs(t, err, ErrRedis, answer)
		require.ErrorIs(t, ReplicaOf(t.Context(), addr, time.Millisecond), ErrRedis, answer)
	}
	addr, _ := startRedis(t, "+OK\r\n:2\r\n")
	require.NoError(t, ReplicaOf(t.Context(), addr, time.Millisecond), "more replicas are as good")
}
