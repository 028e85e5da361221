package bench

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

// script is a broker of the tests: it answers by the functions given, over the plain network of the standard library.
type script struct {
	t    *testing.T
	addr string

	// answer decides about one send: the code, and whether to answer at all. nil: SUCCESS. n counts the sends of all
	// connections, from 1; the tries before a run are not counted.
	answer func(n int, h *codec.SendHeader) (code codec.ResponseCode, silent bool)
	// hangUp closes the connection instead of answering the n-th send.
	hangUp func(n int) bool
	// write is the whole answer to a send, in the place of ours.
	write func(opaque int32) []byte
	// reverse answers what was read at once in reverse order.
	reverse bool
	// topics that exist, by name, with their number of queues. nil: all, with any number.
	topics map[string]int
	// cluster is the body of the answer to "who is in the cluster".
	cluster []byte

	mu      sync.Mutex
	n       int
	conns   map[net.Conn]bool
	created []string
	keys    map[string]int // message keys seen
	bodies  map[int]int    // body sizes seen
	queues  map[int32]int
	waits   map[string]int // WAIT properties seen
	running sync.WaitGroup
	ln      net.Listener
}

func startScript(t *testing.T, s *script) *script {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.t, s.ln, s.addr = t, ln, ln.Addr().String()
	s.conns = map[net.Conn]bool{}
	s.keys, s.bodies, s.queues, s.waits = map[string]int{}, map[int]int{}, map[int32]int{}, map[string]int{}
	s.running.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *script) stop() {
	s.ln.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *script) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.running.Go(func() { s.serve(c) })
	}
}

func (s *script) serve(c net.Conn) {
	defer c.Close()
	in := newFrameReader(c, 64)
	var group [][]byte
	for in.fill() == nil {
		for {
			frame, err := in.next()
			if err != nil || frame == nil {
				break
			}
			var v codec.View
			if v.Parse(frame) != nil {
				return
			}
			out, ok := s.handle(&v)
			if !ok {
				return
			}
			if out != nil {
				group = append(group, out)
			}
		}
		if s.reverse {
			slices.Reverse(group)
		}
		if _, err := c.Write(slices.Concat(group...)); err != nil {
			return
		}
		group = group[:0]
	}
}

// handle returns the answer, if there is one, and whether to go on.
func (s *script) handle(v *codec.View) (out []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch v.Code {
	case codec.ReqSendMessageV2:
		return s.send(v)
	case codec.ReqUpdateAndCreateTopic:
		s.created = append(s.created, v.Ext()["topic"])
		if s.topics != nil {
			s.topics[v.Ext()["topic"]] = 1000
		}
		return codec.AppendResponse(nil, v.Serialize, v.Opaque, codec.Success, ""), true
	case codec.ReqGetBrokerClusterInfo:
		c := codec.Respond(v, codec.Success, "")
		c.Body = s.cluster
		return codec.AppendFrame(nil, c), true
	}
	return codec.AppendResponse(nil, v.Serialize, v.Opaque, codec.RequestCodeNotSupported, ""), true
}

func (s *script) send(v *codec.View) (out []byte, ok bool) {
	var h codec.SendHeader
	if err := h.Decode(v); err != nil {
		return codec.AppendResponse(nil, v.Serialize, v.Opaque, codec.SystemError, err.Error()), true
	}
	if queues, there := s.topics[string(h.Topic)]; s.topics != nil && (!there || int(h.QueueID) >= queues) {
		return codec.AppendResponse(nil, v.Serialize, v.Opaque, codec.TopicNotExist, "no topic of this name"), true
	}
	if string(v.Body) == "is the topic there?" {
		return codec.AppendSendResponse(nil, v.Serialize, v.Opaque, codec.Success, s.place()), true
	}
	s.n++
	key, _ := codec.Property(h.Properties, "UNIQ_KEY")
	wait, _ := codec.Property(h.Properties, "WAIT")
	s.keys[string(key)]++
	s.waits[string(wait)]++
	s.bodies[len(v.Body)]++
	s.queues[h.QueueID]++
	if s.hangUp != nil && s.hangUp(s.n) {
		return nil, false
	}
	code := codec.Success
	if s.answer != nil {
		var silent bool
		if code, silent = s.answer(s.n, &h); silent {
			return nil, true
		}
	}
	if s.write != nil {
		return s.write(v.Opaque), true
	}
	return codec.AppendSendResponse(nil, v.Serialize, v.Opaque, code, s.place()), true
}

func (s *script) place() *codec.SendResponse {
	return &codec.SendResponse{StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"), QueueOffset: int64(s.n)}
}

// now is the script after all that it has done: the race detector does not see what the generator's sockets order.
func (s *script) now() *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s
}

// count reads one of the counters.
func (s *script) count(f func(*script) int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f(s)
}
