package part

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"tandem/codec"
)

// Sink follows a master from offset From on and acknowledges what comes, once for each read; it keeps nothing. It ends with
// an error when the master's stream does, or when the stream breaks the protocol's rules.
type Sink struct {
	Master string // the HA port
	From   int64  // first offset asked for; 0 means the master's newest segment
}

// ErrStream says that a master's frames do not follow one another.
var ErrStream = errors.New("the master's stream is broken")

const (
	sinkBuffer = 256 << 10
	sinkBody   = 4 << 20 // the longest body that a slave takes
)

// Serve implements Part.
func (s Sink) Serve(ctx context.Context, out io.Writer) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.Master)
	if err != nil {
		return fmt.Errorf("master: %w", err)
	}
	addr := c.LocalAddr()
	b, stop, err := block(ctx, c.(*net.TCPConn))
	if err != nil {
		return err
	}
	defer stop()
	if err := ready(out, addr); err != nil {
		return err
	}
	if err := s.follow(b); ctx.Err() == nil {
		return err
	}
	return nil
}

func (s Sink) follow(c io.ReadWriter) error {
	st := stream{end: s.From, whole: s.From, known: s.From != 0}
	if err := report(c, st.whole); err != nil {
		return err
	}
	buf := make([]byte, sinkBuffer)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return fmt.Errorf("master %s: %w", s.Master, err)
		}
		due, err := st.take(buf[:n])
		if err != nil {
			return err
		}
		if !due {
			continue
		}
		if err := report(c, st.whole); err != nil {
			return err
		}
	}
}

func report(c io.Writer, offset int64) error {
	var b [codec.HAReportSize]byte
	codec.PutHAReport(b[:], offset)
	_, err := c.Write(b[:])
	return err
}

// stream takes a master's bytes in pieces of any size.
type stream struct {
	end   int64 // of what came
	whole int64 // end of the last frame that is complete
	known bool  // end is no guess
	head  [codec.HAHeaderSize]byte
	has   int // bytes of head
	body  int // bytes of the body that are missing
}

// take tells whether a report is due: a frame has come to its end, be it a heartbeat.
func (s *stream) take(b []byte) (due bool, err error) {
	for len(b) > 0 {
		if s.body > 0 {
			n := min(s.body, len(b))
			s.body -= n
			s.end += int64(n)
			b = b[n:]
			due = s.complete() || due
			continue
		}
		n := copy(s.head[s.has:], b)
		s.has += n
		b = b[n:]
		if s.has < len(s.head) {
			break
		}
		s.has = 0
		if err := s.frame(codec.ParseHAHeader(s.head[:])); err != nil {
			return due, err
		}
		due = s.complete() || due
	}
	return due, nil
}

func (s *stream) complete() bool {
	if s.body > 0 {
		return false
	}
	s.whole = s.end
	return true
}

func (s *stream) frame(offset int64, n int32) error {
	if offset < 0 || n < 0 || n > sinkBody || (s.known && offset != s.end) {
		return fmt.Errorf("%w: a frame at %d of %d bytes; the one before ended at %d", ErrStream, offset, n, s.end)
	}
	s.end, s.known, s.body = offset, true, int(n)
	return nil
}
