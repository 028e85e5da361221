package engine

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tandem/codec"
)

// smallSockets makes a server's connections have send buffers of a few kilobytes.
func smallSockets(c Conn) {
	if err := unix.SetsockoptInt(c.(*conn).gc.Fd(), unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10); err != nil {
		panic(err)
	}
}

// slowReader reads now a little, now a lot, and rests now and then.
type slowReader struct {
	io.Reader
	rng *rand.Rand
}

func (r *slowReader) Read(b []byte) (int, error) {
	if r.rng.IntN(8) == 0 {
		time.Sleep(time.Duration(r.rng.IntN(2000)) * time.Microsecond)
	}
	return r.Reader.Read(b[:min(len(b), 1+r.rng.IntN(32<<10))])
}

func TestVectorsAndOutputKeepTheirOrderOnAnySocket(t *testing.T) {
	for _, small := range []bool{false, true} {
		t.Run(fmt.Sprint("small buffers ", small), func(t *testing.T) {
			h := &testHandler{}
			if small {
				h.onOpen = smallSockets
			}
			s := serve(t, h, Options{SoftOut: 32 << 20})
			const rounds = 400
			rng := rand.New(rand.NewPCG(7, 7))
			p := dialServer(t, s)
			if small {
				require.NoError(t, p.Conn.(*net.TCPConn).SetReadBuffer(32<<10))
			}
			p.r.Reset(&slowReader{p.Conn, rand.New(rand.NewPCG(8, 8))})
			sizes := make([]int, rounds)
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range int32(rounds) {
					n, piece := rng.IntN(64), 1+rng.IntN(50)
					code := int32(codeVec)
					switch rng.IntN(4) {
					case 0:
						n = rng.IntN(60_000) // up to thousands of slices
					case 1:
						n, piece = rng.IntN(120_000), 1+rng.IntN(60_000)
					case 2:
						n, code = rng.IntN(20_000), codeSize
					}
					sizes[i] = n
					if _, err := p.Write(request(code, i, nil, "n", fmt.Sprint(n), "piece", fmt.Sprint(piece))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for i := range int32(rounds) {
				got := p.next()
				require.Equal(t, i, got.Opaque)
				require.EqualValues(t, codec.Success, got.Code)
				require.Equal(t, pattern(i, len(got.Body)), got.Body)
				sizes[i] -= len(got.Body)
			}
			wg.Wait()
			require.Equal(t, make([]int, rounds), sizes)
			eventually(t, func() (empty bool) {
				onLoop(s.Loops()[0], func() {
					(*ticker)(s.Loops()[0]).RunOnLoop(s.Loops()[0])
					empty = s.Loops()[0].queued == 0 && len(s.Loops()[0].backlog) == 0
				})
				return empty
			}, "nothing queued any more")
		})
	}
}

func TestABigVectorIsNotCopiedIntoTheTurn(t *testing.T) {
	var grew atomic.Bool
	body := pattern(1, 100_000)
	h := &testHandler{onFrame: func(c Conn, v *codec.View) bool {
		frame := answer(v.Opaque, body)
		head := frame[:len(frame)-len(body)]
		appendAnswer(c, v.Opaque-1, nil)
		pieces := cut(body, 10)
		c.WriteVec(head, pieces)
		grew.Store(len(*c.Out()) > 0)
		for i := range pieces {
			assert.Len(t, pieces[i], 10)
		}
		return true
	}}
	s := serve(t, h, Options{})
	p := dialServer(t, s)
	p.send(request(1, 8, nil))
	require.EqualValues(t, 7, p.next().Opaque)
	got := p.next()
	require.EqualValues(t, 8, got.Opaque)
	require.Equal(t, body, got.Body)
	require.False(t, grew.Load())
}

func TestMoreInFlightThanAllowedIsAnsweredBusy(t *testing.T) {
	var holds inbox[*held]
	s := serve(t, &testHandler{onHold: holds.put}, Options{MaxInFlight: 10})
	p, other := dialServer(t, s), dialServer(t, s)
	for i := range int32(15) {
		p.send(request(codeHold, i, nil))
	}
	p.send(oneway(codeEcho, nil))
	for i := range int32(5) {
		got := p.next()
		require.Equal(t, 10+i, got.Opaque)
		require.EqualValues(t, codec.SystemBusy, got.Code)
		require.Regexp(t, `^\[OVERLOAD\]`, got.Remark)
	}
	other.call(1)
	for _, w := range holds.get() {
		s.Loops()[0].Post(w)
	}
	for i := range int32(10) {
		require.Equal(t, i, p.next().Opaque)
	}
	p.call(99)
	require.EqualValues(t, 5, s.Stats().BusyAnswers)
	require.EqualValues(t, 1, s.Stats().DroppedOneway)
}

func TestAPeerThatDoesNotReadCostsLittleMemoryAndNobodyElse(t *testing.T) {
	h := &testHandler{onOpen: smallSockets}
	const soft, size = 1 << 20, 100_000
	s := serve(t, h, Options{SoftOut: soft})
	p, other := dialServer(t, s), dialServer(t, s)
	const n = 2000 // 200 MB of answers
	for i := range int32(n) {
		p.send(request(codeSize, i, nil, "n", fmt.Sprint(size)))
	}
	eventually(t, func() bool { return s.Stats().BusyAnswers > 0 && h.frames.Load()+int64(s.Stats().BusyAnswers) == n }, "all looked at")
	onLoop(s.Loops()[0], func() {
		assert.Less(t, s.Loops()[0].queued, soft+size+n*300)
	})
	other.call(1)
	served, busy := 0, 0
	for range n {
		switch got := p.next(); got.Code {
		case codec.Success:
			served++
			require.Equal(t, pattern(got.Opaque, size), got.Body)
		default:
			busy++
		}
	}
	require.EqualValues(t, busy, s.Stats().BusyAnswers)
	require.EqualValues(t, served+1, h.frames.Load(), "what was not served was answered busy")
	p.call(1)
}

func TestOutputBeyondTheHardLimitClosesTheConnection(t *testing.T) {
	var reason inbox[error]
	h := &testHandler{onOpen: smallSockets, onClose: func(_ Conn, err error) { reason.put(err) }}
	s := serve(t, h, Options{SoftOut: 1 << 20, HardOut: 4 << 20})
	p := dialServer(t, s)
	p.send(request(codeSize, 1, nil, "n", fmt.Sprint(12<<20)))
	eventually(t, func() bool { return reason.len() == 1 }, "closed")
	require.ErrorIs(t, reason.get()[0], ErrOutputLimit)
	require.EqualValues(t, 1, s.Stats().Overflowed)
}

func TestBeyondTheTotalLimitOnlyBacklogsAreBusy(t *testing.T) {
	h := &testHandler{onOpen: smallSockets}
	s := serve(t, h, Options{SoftOut: 8 << 20, TotalOut: 1 << 20})
	p, q, fast := dialServer(t, s), dialServer(t, s), dialServer(t, s)
	for _, x := range []*peer{p, q} { // neither is above its own soft mark
		x.send(request(codeSize, 1, nil, "n", fmt.Sprint(3<<20/4+500_000)))
	}
	eventually(t, func() bool { return h.frames.Load() == 2 }, "both served")
	p.send(request(codeEcho, 2, nil))
	eventually(t, func() bool { return s.Stats().BusyAnswers == 1 }, "busy")
	fast.call(1)
	for _, x := range []*peer{p, q} {
		require.NoError(t, x.Close())
	}
	eventually(t, func() bool { return s.Stats().Conns == 1 }, "both gone")
	onLoop(s.Loops()[0], func() {
		assert.Zero(t, s.Loops()[0].queued, "what waited for them counts no more")
		assert.Empty(t, s.Loops()[0].backlog)
	})
}

func TestAStalledReaderIsClosedAndASlowOneIsNot(t *testing.T) {
	log, logs := logged()
	var reason inbox[error]
	h := &testHandler{onOpen: smallSockets, onClose: func(_ Conn, err error) { reason.put(err) }}
	const limit = time.Second
	s := serve(t, h, Options{StallTimeout: limit, Logger: log})
	stalled, slow := dialServer(t, s), dialServer(t, s)
	require.NoError(t, slow.Conn.(*net.TCPConn).SetReadBuffer(32<<10))
	const size = 12 << 20
	stalled.send(request(codeSize, 1, nil, "n", fmt.Sprint(size)))
	slow.send(request(codeSize, 2, nil, "n", fmt.Sprint(size)))

	total := len(answer(2, nil)) + size
	var got []byte
	b := make([]byte, 64<<10)
	for start := time.Now(); len(got) < total; { // for three times the limit little by little, then the rest
		n, err := slow.Read(b)
		require.NoError(t, err)
		got = append(got, b[:n]...)
		if time.Since(start) < 3*limit {
			time.Sleep(limit / 50)
		}
	}
	eventually(t, func() bool { return reason.len() == 1 }, "the stalled one was closed")
	require.ErrorIs(t, reason.get()[0], ErrStalled)
	require.Equal(t, answer(2, pattern(2, size)), got)
	line := logs.FilterMessageSnippet("takes no output").All()
	require.Len(t, line, 1)
	require.Equal(t, stalled.LocalAddr().String(), line[0].ContextMap()["peer"])
	slow.call(3)
}

func TestVectorAdvanceDropsWhatWasWritten(t *testing.T) {
	v := [][]byte{[]byte("abc"), {}, []byte("de"), []byte("f")}
	for n, want := range []string{"abcdef", "bcdef", "cdef", "def", "ef", "f", ""} {
		var got []byte
		rest := advance(append([][]byte(nil), v...), n)
		for _, b := range rest {
			got = append(got, b...)
		}
		if len(rest) > 0 {
			require.NotEmpty(t, rest[0], "what was written is gone")
		}
		require.Equal(t, want, string(got), n)
	}
}
