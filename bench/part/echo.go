package part

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Echo answers each Request bytes of a connection with Answer bytes. With Next it first sends NextRequest bytes to another
// Echo and waits for that one's NextAnswer: this makes four hops of two. Go's network, no delay, one message at a time.
type Echo struct {
	Listen          string
	Request, Answer int

	Next                    string // address; "": nothing in between
	NextRequest, NextAnswer int
}

// Serve implements Part.
func (e Echo) Serve(ctx context.Context, out io.Writer) error {
	ln, stop, err := listen(ctx, e.Listen, out)
	if err != nil {
		return err
	}
	defer stop()
	return serveEach(ctx, ln, func(c net.Conn) error { return e.serve(ctx, c) })
}

func (e Echo) serve(ctx context.Context, c net.Conn) error {
	between := func() error { return nil }
	if e.Next != "" {
		var d net.Dialer
		next, err := d.DialContext(ctx, "tcp", e.Next)
		if err != nil {
			return fmt.Errorf("next: %w", err)
		}
		defer closeWith(ctx, next)()
		out, in := make([]byte, e.NextRequest), make([]byte, e.NextAnswer)
		between = func() error { return RoundTrip(next, out, in) }
	}
	in, answer := make([]byte, e.Request), make([]byte, e.Answer)
	for {
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if err := between(); err != nil {
			return err
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

// RoundTrip writes out and reads until in is full.
func RoundTrip(c net.Conn, out, in []byte) error {
	if _, err := c.Write(out); err != nil {
		return err
	}
	_, err := io.ReadFull(c, in)
	return err
}
