package bench

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/bench/part"
	"tandem/codec"
)

// serve runs a part until the test ends, and returns the address that it tells.
func serve(t *testing.T, p part.Part) string {
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, in) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return line[len(part.ReadyLine) : len(line)-1]
}

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

func TestSizesAreThoseOfARealExchange(t *testing.T) {
	small, err := SizesOf("TandemBench", 128)
	require.NoError(t, err)
	large, err := SizesOf("TandemBench", 1024)
	require.NoError(t, err)
	require.Equal(t, Sizes{small.Request + 896, small.Answer, small.Record + 896}, large)
	require.Greater(t, small.Request, 300, "a header in JSON")
	require.Greater(t, small.Answer, 200)
	f, err := newFrame(message{topic: "TandemBench", nums: 4, wait: true, body: payload(128)})
	require.NoError(t, err)
	var v codec.View
	var born stamp
	born.set(time.Now().UnixMilli())
	require.NoError(t, v.Parse(f.append(nil, 1, &born, 1)))
	var h codec.SendHeader
	require.NoError(t, h.Decode(&v))
	require.Equal(t, 91+128+len("TandemBench")+len(h.Properties), small.Record)
}

func TestPingMeasuresOverTwoHopsAndOverFour(t *testing.T) {
	third := serve(t, part.Echo{Listen: "127.0.0.1:0", Request: 12 + 300, Answer: 8})
	two := serve(t, part.Echo{Listen: "127.0.0.1:0", Request: 500, Answer: 250})
	four := serve(t, part.Echo{Listen: "127.0.0.1:0", Request: 500, Answer: 250, Next: third, NextRequest: 312, NextAnswer: 8})
	for _, addr := range []string{two, four} {
		r, err := Ping(t.Context(), PingOptions{Addr: addr, Label: "x", Request: 500, Answer: 250, Warmup: 10 * time.Millisecond, Duration: 300 * time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.Positive(t, r.Acked)
		require.Positive(t, r.RoundTrip.P50)
		require.Positive(t, r.GeneratorNs)
		require.NotEmpty(t, r.Curve)
	}
}

func TestPingWithNobodyNamesTheAddress(t *testing.T) {
	addr := freeAddr(t)
	_, err := Ping(t.Context(), PingOptions{Addr: addr, Request: 1, Answer: 1, Duration: time.Second})
	require.ErrorContains(t, err, addr)
}

func TestAPeerThatHangsUpEndsThePing(t *testing.T) {
	addr := serve(t, part.Echo{Listen: "127.0.0.1:0", Request: 8, Answer: 8, Next: freeAddr(t)}) // has nobody to ask
	_, err := Ping(t.Context(), PingOptions{Addr: addr, Request: 8, Answer: 8, Duration: time.Minute})
	require.ErrorContains(t, err, addr)
}

func TestTheStubAnswersEveryMessageOfTheGenerator(t *testing.T) {
	addr := serve(t, part.Stub{Listen: freeAddr(t)})
	for _, size := range []int{1, 128, 200_000} { // the last one is larger than what is read at once
		r, err := Send(t.Context(), SendOptions{Addr: addr, NoTopic: true, Size: size, Conns: 3, Depth: 16, Messages: 600, Duration: time.Minute})
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.EqualValues(t, 600, r.Acked)
	}
}
