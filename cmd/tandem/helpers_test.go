package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

func port(a net.Addr) string {
	_, p, _ := net.SplitHostPort(a.String())
	return p
}

// logBuffer gathers a process's output; readers wait for lines.
type logBuffer struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // closed and replaced at each write
}

func newLogBuffer() *logBuffer { return &logBuffer{written: make(chan struct{})} }

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.written)
	b.written = make(chan struct{})
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// line waits for a line with text in it, until the process has ended or time is up.
func (b *logBuffer) line(text string, ended <-chan struct{}, timeUp <-chan time.Time) (string, bool) {
	for {
		b.mu.Lock()
		all, more := b.text.String(), b.written
		b.mu.Unlock()
		for line := range strings.Lines(all) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return line, true
			}
		}
		select {
		case <-more:
		case <-ended:
			return "", false
		case <-timeUp:
			return "", false
		}
	}
}

// answers tells what a stand-in for a broker or a name server answers to each request code; REQUEST_CODE_NOT_SUPPORTED to others.
type answers map[codec.RequestCode]string

// serveAnswers answers requests on a loopback port until the test ends, and returns its address.
func serveAnswers(t *testing.T, a answers) string {
	t.Helper()
	ln := listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go a.serve(c)
		}
	}()
	return ln.Addr().String()
}

func (a answers) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		head, err := in.Peek(4)
		if err != nil {
			return
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head))
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		request, err := codec.DecodeFrame(frame)
		if err != nil {
			return
		}
		answer := codec.Command{Code: codec.RequestCodeNotSupported, Opaque: request.Opaque, Version: request.Version}
		if body, ok := a[request.Code]; ok {
			answer.Code, answer.Body = codec.Success, []byte(body)
		}
		answer.MarkResponse()
		if _, err := c.Write(codec.AppendFrame(nil, &answer)); err != nil {
			return
		}
	}
}
