package part

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Part is a process's whole work. Serve writes "ready ADDRESS" to out once, and returns nil when the context has ended.
type Part interface {
	Serve(ctx context.Context, out io.Writer) error
}

// ReadyLine is how the line begins that a part writes when it can be used.
const ReadyLine = "ready "

func ready(out io.Writer, what any) error {
	_, err := fmt.Fprintf(out, "%s%v\n", ReadyLine, what)
	return err
}

// listen listens on addr and says so. The listener is closed when the context ends, or by the returned function.
func listen(ctx context.Context, addr string, out io.Writer) (net.Listener, func(), error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	if err := ready(out, ln.Addr()); err != nil {
		stop()
		ln.Close()
		return nil, nil, err
	}
	return ln, func() { stop(); ln.Close() }, nil
}

// serveEach runs serve for each connection of ln, each on its own goroutine, until ln is closed. Connections end with the context.
// One connection's error concerns nobody else: its peer sees the end of the stream.
func serveEach(ctx context.Context, ln net.Listener, serve func(net.Conn) error) error {
	var inside sync.WaitGroup
	defer inside.Wait()
	for {
		c, err := ln.Accept()
		if err != nil {
			return ended(ctx, err)
		}
		inside.Go(func() {
			stop := closeWith(ctx, c)
			defer stop()
			_ = serve(c)
		})
	}
}

// closeWith closes c when the context ends; the returned function closes it before.
func closeWith(ctx context.Context, c io.Closer) func() {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return func() { stop(); c.Close() }
}

// ended is nil for an error that comes of the context's end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, net.ErrClosed) || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}
