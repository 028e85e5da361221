package part

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"tandem/codec"
)

func TestMain(m *testing.M) {
	// The network library starts goroutines of its own when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// serving is a part that runs until the test ends or it does.
type serving struct {
	addr  string
	ended chan error
	stop  context.CancelFunc
}

func serve(t *testing.T, p Part) *serving {
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{ended: make(chan error, 1), stop: cancel}
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := p.Serve(ctx, in)
		in.CloseWithError(errors.Join(io.EOF, err))
		s.ended <- err
	}()
	t.Cleanup(func() { cancel(); <-done })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, "^"+ReadyLine, line)
	s.addr = line[len(ReadyLine) : len(line)-1]
	return s
}

func dial(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAPartEndsWithItsContextWhileConnectionsAreOpen(t *testing.T) {
	for name, p := range map[string]Part{
		"echo":     Echo{Listen: "127.0.0.1:0", Request: 4, Answer: 4},
		"receiver": Receiver{Listen: "127.0.0.1:0", File: filepath.Join(t.TempDir(), "f"), Bytes: 1000},
	} {
		s := serve(t, p)
		dial(t, s.addr)
		s.stop()
		require.NoError(t, <-s.ended, name)
	}
}

func TestAPartThatCannotListenSaysWhere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	addr := ln.Addr().String()
	for name, p := range map[string]Part{
		"echo": Echo{Listen: addr}, "stub": Stub{Listen: addr}, "sink": Sink{Master: "127.0.0.1:1"},
		"receiver": Receiver{Listen: addr, File: filepath.Join(t.TempDir(), "f"), Bytes: 1},
	} {
		require.Error(t, p.Serve(t.Context(), io.Discard), name)
	}
}

func TestAnEchoAsksTheNextOneFirst(t *testing.T) {
	asked := make(chan int, 10)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := make([]byte, 100)
		for {
			n, err := io.ReadFull(c, in)
			if err != nil {
				return
			}
			asked <- n
			if _, err := c.Write(make([]byte, 8)); err != nil {
				return
			}
		}
	}()
	s := serve(t, Echo{Listen: "127.0.0.1:0", Request: 50, Answer: 20, Next: ln.Addr().String(), NextRequest: 100, NextAnswer: 8})
	c := dial(t, s.addr)
	in := make([]byte, 20)
	for range 3 {
		require.NoError(t, RoundTrip(c, make([]byte, 50), in))
		require.Equal(t, 100, <-asked)
	}
	require.Empty(t, asked)
}

func TestTheStubPutsTheRequestsOpaqueInItsAnswer(t *testing.T) {
	h, err := newStubHandler("", io.Discard)
	require.NoError(t, err)
	loop := &stubLoop{memory: make([]byte, 1<<20)}
	var in []byte
	for _, opaque := range []int32{1_000_000_007, 1_999_999_999} {
		req := codec.NewRequest(codec.ReqSendMessageV2, map[string]string{"b": "T"}, []byte("body"))
		req.Opaque = opaque
		in = codec.AppendFrame(in, req)
	}
	whole := len(in)
	in = append(in, in[:20]...)
	used, err := h.take(loop, in)
	require.NoError(t, err)
	require.Equal(t, whole, used, "what is no whole frame is left")
	require.Equal(t, in[:whole], loop.memory[:whole])
	first := loop.out[:4+binary.BigEndian.Uint32(loop.out)]
	for i, b := range [][]byte{first, loop.out[len(first):]} {
		var v codec.View
		require.NoError(t, v.Parse(b))
		require.Equal(t, []int32{1_000_000_007, 1_999_999_999}[i], v.Opaque)
		require.Equal(t, codec.Success, v.Code)
		require.Contains(t, v.Ext(), "msgId")
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { _, err = h.take(loop, in) }))
}

func TestTheStubRefusesWhatItCannotAnswer(t *testing.T) {
	h, err := newStubHandler("", io.Discard)
	require.NoError(t, err)
	for _, in := range [][]byte{{0xff, 0, 0, 0, 1}, {0, 0, 0, 2, '{', '}'}, append([]byte{0, 0, 0, 12}, `"opaque":123`...)} {
		_, err := h.take(&stubLoop{memory: make([]byte, 1<<10)}, in)
		require.ErrorIs(t, err, errStubFrame)
	}
}

func TestAReceiverTakesTheStreamAndRemovesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	const size = 3<<20 + 17
	s := serve(t, Receiver{Listen: "127.0.0.1:0", File: path, Bytes: size})
	require.FileExists(t, path)
	c := dial(t, s.addr)
	_, err := c.Write(bytes.Repeat([]byte{7}, size))
	require.NoError(t, err)
	told := make([]byte, 8)
	_, err = io.ReadFull(c, told)
	require.NoError(t, err)
	require.EqualValues(t, size, binary.BigEndian.Uint64(told))
	require.NoError(t, <-s.ended)
	require.NoFileExists(t, path)
}

func TestAStreamThatEndsEarlyIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := serve(t, Receiver{Listen: "127.0.0.1:0", File: path, Bytes: 100})
	c := dial(t, s.addr)
	_, err := c.Write(make([]byte, 40))
	require.NoError(t, err)
	c.Close()
	require.ErrorIs(t, <-s.ended, io.EOF)
	require.NoFileExists(t, path)
	require.ErrorIs(t, Receiver{File: path}.Serve(t.Context(), io.Discard), ErrSize)
}

func TestWhatIsReadStandsInTheMappedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	memory, remove, err := mapNew(path, 5)
	require.NoError(t, err)
	copy(memory, "hello")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	_, _, err = mapNew(path, 5)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, remove())
}

// frames is what a master sends: bodies that follow one another from start on.
func frames(start int64, bodies ...int) []byte {
	var out []byte
	for _, n := range bodies {
		head := make([]byte, codec.HAHeaderSize)
		codec.PutHAHeader(head, start, int32(n))
		out = append(append(out, head...), make([]byte, n)...)
		start += int64(n)
	}
	return out
}

func TestASinkAcknowledgesWholeFramesHoweverTheStreamIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 20).Draw(t, "bodies")
		from := rapid.Int64Range(1, 1000).Draw(t, "from")
		in := frames(from, bodies...)
		s := stream{end: from, whole: from, known: true}
		ends := []int64{from}
		for _, n := range bodies {
			ends = append(ends, ends[len(ends)-1]+int64(n))
		}
		reports := 0
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(t, "read")
			due, err := s.take(in[:n])
			require.NoError(t, err)
			require.True(t, slices.Contains(ends, s.whole), "%d is inside of a frame", s.whole)
			if due {
				reports++
			}
			in = in[n:]
		}
		require.Equal(t, ends[len(ends)-1], s.whole)
		require.Positive(t, reports)
	})
}

func TestASinkFollowsAMaster(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	s := serve(t, Sink{Master: ln.Addr().String(), From: 500})
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	next := func() int64 {
		b := make([]byte, codec.HAReportSize)
		_, err := io.ReadFull(c, b)
		require.NoError(t, err)
		return codec.ParseHAReport(b)
	}
	require.EqualValues(t, 500, next())
	_, err = c.Write(frames(500, 100))
	require.NoError(t, err)
	require.EqualValues(t, 600, next())
	_, err = c.Write(frames(600, 0))
	require.NoError(t, err)
	require.EqualValues(t, 600, next(), "a heartbeat is answered")
	_, err = c.Write(frames(700, 1))
	require.NoError(t, err)
	require.ErrorIs(t, <-s.ended, ErrStream, "a gap")
}

func TestFramesThatMakeNoSenseEndASink(t *testing.T) {
	head := func(offset int64, n int32) []byte {
		b := make([]byte, codec.HAHeaderSize)
		codec.PutHAHeader(b, offset, n)
		return b
	}
	for _, b := range [][]byte{head(-1, 5), head(0, -1), head(0, sinkBody+1)} {
		s := stream{}
		_, err := s.take(b)
		require.ErrorIs(t, err, ErrStream)
	}
	s := stream{} // asked for the newest segment, wherever that begins
	_, err := s.take(head(1<<30, 4))
	require.NoError(t, err)
}
