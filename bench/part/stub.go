package part

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"sync"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"tandem/codec"
)

// Stub is the least that a broker on gnet could do for a message: it finds the frame, copies it to memory, and answers with one
// and the same JSON header, in which only the opaque is the request's. Requests must have JSON headers with an opaque of ten digits.
type Stub struct {
	Listen string
	Loops  int // event loops; 0: half of the processors
}

// stubMemory is the piece of memory that a loop copies frames to, over and over: larger than the processor's own.
const stubMemory = 64 << 20

const opaqueDigits = 10

var opaqueField = []byte(`"opaque":`)

var errStubFrame = errors.New("no frame that a stub can answer")

// Serve implements Part.
func (s Stub) Serve(ctx context.Context, out io.Writer) error {
	if s.Loops == 0 {
		s.Loops = max(1, runtime.NumCPU()/2)
	}
	h, err := newStubHandler(s.Listen, out)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- gnet.Run(h, "tcp://"+s.Listen, gnet.WithNumEventLoop(s.Loops), gnet.WithLogLevel(logging.ErrorLevel))
	}()
	select {
	case err = <-ended:
		return errors.Join(err, h.failed)
	case <-ctx.Done():
	}
	select {
	case <-h.booted: // before that there is nothing to be stopped
		err = h.engine.Stop(context.WithoutCancel(ctx))
	case err = <-ended:
		return err
	}
	return errors.Join(err, <-ended)
}

type stubHandler struct {
	gnet.BuiltinEventEngine
	out      io.Writer
	listen   string
	engine   gnet.Engine
	booted   chan struct{}
	failed   error
	answer   []byte
	opaqueAt int
	memory   sync.Map // gnet.EventLoop → *stubLoop
}

// stubLoop belongs to one loop.
type stubLoop struct {
	memory []byte
	at     int
	out    []byte
}

func newStubHandler(listen string, out io.Writer) (*stubHandler, error) {
	const opaque = 1_000_000_000
	answer := codec.AppendSendResponse(nil, codec.JSON, opaque, codec.Success, &codec.SendResponse{
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"), PhysicalOffset: 1 << 33, QueueOffset: 1_234_567,
	})
	at := bytes.Index(answer, opaqueField)
	if at < 0 {
		return nil, fmt.Errorf("%w: the answer names no opaque", errStubFrame)
	}
	return &stubHandler{
		out: out, listen: listen, booted: make(chan struct{}), answer: answer, opaqueAt: at + len(opaqueField),
	}, nil
}

func (h *stubHandler) OnBoot(eng gnet.Engine) gnet.Action {
	h.engine = eng
	if h.failed = ready(h.out, h.listen); h.failed != nil {
		return gnet.Shutdown
	}
	close(h.booted)
	return gnet.None
}

func (h *stubHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	loop, _ := h.memory.LoadOrStore(c.EventLoop(), &stubLoop{})
	c.SetContext(loop)
	return nil, gnet.None
}

func (h *stubHandler) OnTraffic(c gnet.Conn) gnet.Action {
	loop := c.Context().(*stubLoop)
	if loop.memory == nil {
		loop.memory = make([]byte, stubMemory)
	}
	in, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	used, err := h.take(loop, in)
	if err != nil {
		return gnet.Close
	}
	if used == 0 {
		return gnet.None // to discard 0 bytes would be to discard all
	}
	if _, err := c.Discard(used); err != nil {
		return gnet.Close
	}
	if _, err := c.Write(loop.out); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// take copies all whole frames of in, makes their answers, and tells how many bytes they had.
func (h *stubHandler) take(loop *stubLoop, in []byte) (int, error) {
	loop.out = loop.out[:0]
	used := 0
	for {
		rest := in[used:]
		if len(rest) < 4 {
			return used, nil
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if n > codec.MaxFrameSize+4 {
			return used, errStubFrame
		}
		if len(rest) < n {
			return used, nil
		}
		frame := rest[:n]
		loop.store(frame)
		at := bytes.Index(frame, opaqueField) + len(opaqueField)
		if at < len(opaqueField) || at+opaqueDigits > n {
			return used, errStubFrame
		}
		start := len(loop.out)
		loop.out = append(loop.out, h.answer...)
		copy(loop.out[start+h.opaqueAt:], frame[at:at+opaqueDigits])
		used += n
	}
}

func (l *stubLoop) store(frame []byte) {
	if l.at+len(frame) > len(l.memory) {
		l.at = 0
	}
	l.at += copy(l.memory[l.at:], frame)
}
