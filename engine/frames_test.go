package engine

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func TestAFrameMayBeCutAtEveryByte(t *testing.T) {
	h := &testHandler{}
	s := serve(t, h, Options{})
	l := s.Loops()[0]
	two := append(request(codeEcho, 1, pattern(1, 40)), request(codeEcho, 2, pattern(2, 50))...)
	for at := 1; at < len(two); at++ {
		p := dialServer(t, s)
		p.send(two[:at])
		eventually(t, func() (kept bool) { // the first part was read by itself
			onLoop(l, func() {
				kept = inputOf(l) > 0 || h.frames.Load() > 0
			})
			return kept
		}, "first part seen")
		p.send(two[at:])
		for i := int32(1); i <= 2; i++ {
			got := p.next()
			require.Equal(t, i, got.Opaque, "cut at %d", at)
			require.Equal(t, pattern(i, 30+10*int(i)), got.Body)
		}
		require.NoError(t, p.Close())
		eventually(t, func() bool { return s.Stats().Conns == 0 }, "gone")
		h.frames.Store(0)
	}
}

// inputOf is how much unfinished input a loop's connections hold. Loop only.
func inputOf(l *Loop) (n int) {
	for _, c := range l.conns {
		n += len(c.partial)
	}
	return n
}

func TestInputInAnyPiecesGivesTheSameFrames(t *testing.T) {
	sizes := []int{0, 1, 4085, 4096, 4097, 65536, 65537, 150_000, 0, 7}
	var stream []byte
	for i, n := range sizes {
		stream = append(stream, request(codeEcho, int32(i), pattern(int32(i), n))...)
	}
	for _, piece := range []int{1, 3, 7, 8, 9, 100, 4096, 65535, 65536, len(stream)} {
		var got []int32
		s := &Server{o: Options{}.withDefaults(), start: time.Now()}
		s.h = &testHandler{onFrame: func(_ Conn, v *codec.View) bool {
			require.Equal(t, pattern(v.Opaque, sizes[v.Opaque]), append([]byte{}, v.Body...), "piece %d", piece)
			got = append(got, v.Opaque)
			return true
		}}
		c := &conn{loop: newLoop(s, 0)}
		for at := 0; at < len(stream); at += piece {
			require.NoError(t, c.input(append([]byte(nil), stream[at:min(at+piece, len(stream))]...)))
		}
		require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, got)
		require.Nil(t, c.partial)
		require.Zero(t, c.need)
	}
}

func TestTheBiggestFrameIsServed(t *testing.T) {
	h := &testHandler{onFrame: func(c Conn, v *codec.View) bool {
		assert.Equal(t, pattern(v.Opaque, len(v.Body)), v.Body)
		appendAnswer(c, v.Opaque, nil)
		return true
	}}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	empty := len(request(codeEcho, 1, nil))
	for i := range int32(2) {
		f := request(codeEcho, i, pattern(i, 4+codec.MaxFrameSize-empty))
		require.EqualValues(t, codec.MaxFrameSize, binary.BigEndian.Uint32(f))
		p.send(f)
		require.Equal(t, i, p.next().Opaque)
	}
	p.send(request(codeEcho, 9, pattern(9, 5+codec.MaxFrameSize-empty))[:8])
	p.ended()
}

func TestAnAnnouncedLengthAllocatesNothing(t *testing.T) {
	s := serve(t, &testHandler{}, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	head := append([]byte{1, 0, 0, 0, 0, 0, 0, 50}, make([]byte, 70_000)...)
	for range 100 {
		dialServer(t, s).send(head)
	}
	eventually(t, func() (all bool) {
		onLoop(s.Loops()[0], func() { all = inputOf(s.Loops()[0]) == 100*len(head) })
		return all
	}, "all read")
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "100 frames of 16 MiB announced")
}

func TestGarbageClosesItsConnectionAlone(t *testing.T) {
	for name, b := range map[string][]byte{
		"HTTP":                   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS ClientHello":        {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"HAProxy preamble":       []byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"),
		"length 0":               {0, 0, 0, 0},
		"length 3":               {0, 0, 0, 3, 0, 0, 0},
		"length above the limit": {1, 0, 0, 1},
		"negative length":        {0xff, 0xff, 0xff, 0xff},
		"unknown form":           {0, 0, 0, 10, 2, 0, 0, 2, '{', '}'},
		"header beyond frame":    {0, 0, 0, 6, 0, 0, 0, 3, '{', '}'},
		"not JSON":               {0, 0, 0, 6, 0, 0, 0, 2, '{', '{'},
		"empty JSON header":      {0, 0, 0, 4, 0, 0, 0, 0},
		"short binary header":    {0, 0, 0, 6, 1, 0, 0, 2, 0, 0},
		"after a good frame":     append(request(codeEcho, 1, nil), "garbage"...),
		"split prefix":           nil, // sent below byte by byte
	} {
		t.Run(name, func(t *testing.T) {
			log, logs := logged()
			s := serve(t, &testHandler{}, Options{Logger: log})
			other, p := dialServer(t, s), dialServer(t, s)
			other.call(1)
			if b == nil {
				for _, x := range []byte{0, 0, 0, 3} {
					p.send([]byte{x})
				}
			} else {
				p.send(b)
			}
			p.ended()
			other.call(2)
			require.EqualValues(t, 1, s.Stats().BadFrames)
			require.Len(t, logs.FilterMessageSnippet("not this protocol").All(), 1)
		})
	}
}

func TestAPeerThatLeavesInMidFrameIsForgotten(t *testing.T) {
	h := &testHandler{}
	s := serve(t, h, Options{})
	for i := range 20 {
		p := dialServer(t, s)
		p.send(request(codeEcho, 1, pattern(1, 200_000))[:1+i*10_000])
		require.NoError(t, p.Close())
	}
	eventually(t, func() bool { return h.closes.Load() == 20 }, "all gone")
	require.Zero(t, h.frames.Load())
	require.Zero(t, s.Stats().BadFrames)
}

func TestResponsesOfAPeerReachTheHandler(t *testing.T) {
	got := make(chan int32, 1)
	s := serve(t, &testHandler{onFrame: func(_ Conn, v *codec.View) bool {
		if v.IsResponse() {
			got <- v.Opaque
		}
		return true
	}}, Options{})
	dialServer(t, s).send(answer(4711, nil))
	require.EqualValues(t, 4711, <-got)
}

func FuzzInput(f *testing.F) {
	f.Add(append(request(codeEcho, 1, []byte("x")), oneway(codeEcho, nil)...), 3)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 1)
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 50, '{', '}'}, 5)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		piece = 1 + max(piece, -piece)%64
		whole := framesOf(b, len(b)+1)
		require.Equal(t, whole, framesOf(b, piece))
	})
}

// framesOf is what input makes of b in pieces of n bytes.
func framesOf(b []byte, n int) (frames []string) {
	s := &Server{o: Options{}.withDefaults(), start: time.Now()}
	s.h = &testHandler{onFrame: func(_ Conn, v *codec.View) bool {
		frames = append(frames, fmt.Sprint(v.Code, v.Opaque, v.Flag, v.Body))
		return true
	}}
	c := &conn{loop: newLoop(s, 0)}
	for len(b) > 0 {
		n = min(n, len(b))
		if err := c.input(append([]byte(nil), b[:n]...)); err != nil {
			return append(frames, "closed")
		}
		b = b[n:]
	}
	return frames
}
