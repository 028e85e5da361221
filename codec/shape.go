package codec

import (
	"bytes"
	"encoding/binary"
	"math"
)

// shape is a header a View has read before, as a pattern for those to come: a producer's headers differ in a few bytes of their values
// and in the opaque, and where they do in nothing else, the places of all fields are known.
//
// A byte of a value is loose: any byte may stand there that needs no escape in JSON. All others must be as they were: those of escapes,
// control characters, and of a send what sendShape fixes besides.
type shape struct {
	header []byte // the last one that had the shape; empty: no shape is known
	loose  []byte // per byte of header: 0xFF or 0
	form   Serialize
	opaque span // JSON: its digits

	code, version, flag int32
	language            byte
	ext                 span
	index               [indexedFields]field
	count               int
	send                sendShape

	hot  [hotWords]uint16 // where words begin that changed since it was learned
	hots int

	matches int // since it was learned
	rest    int // headers to pass before another one is learned
}

const (
	shapeLimit = 1 << 10 // bytes of a header that is worth it
	// A shape that served fewer than shapeWorth headers was not worth its making; none is made for shapeRest headers then.
	shapeWorth = 4
	shapeRest  = 64
)

// fits tells whether header, which has its length, is like the learned one. If so p.header becomes it, which is as good a pattern: that way the words that
// change from one header to the next, the hot ones, are looked at one by one and all others are compared at once.
func (p *shape) fits(header []byte) bool {
	was, loose := p.header, p.loose[:len(header)]
	for _, at := range p.hot[:p.hots] {
		w := word(header[at:])
		if !fitsWord(w, word(was[at:]), word(loose[at:])) {
			return false
		}
		binary.LittleEndian.PutUint64(was[at:], w)
	}
	return string(header) == string(was) || p.fitsBeyond(header)
}

// hotWords is how many words are looked at one by one: a few numbers and a key.
const hotWords = 16

// fitsBeyond is fits for a header that differs in words that were not hot so far.
func (p *shape) fitsBeyond(header []byte) bool {
	n := len(header)
	was, loose := p.header[:n], p.loose[:n]
	for at := 0; at < n; at += 8 {
		at = min(at, n-8) // the last word overlaps the one before; no header is shorter than one
		w := word(header[at:])
		if w == word(was[at:]) {
			continue
		}
		if !fitsWord(w, word(was[at:]), word(loose[at:])) {
			return false
		}
		binary.LittleEndian.PutUint64(was[at:], w)
		if p.hots < hotWords {
			p.hot[p.hots] = uint16(at)
			p.hots++
		}
	}
	return true
}

// fitsWord tells whether the bytes of w that differ from was are loose, and all that are loose plain.
func fitsWord(w, was, free uint64) bool {
	control := (w - ones*' ') &^ w & tops // the top bit of a control character
	special := zeroByte(w^ones*'"') | zeroByte(w^ones*'\\') | control
	return (w^was)&^free|special&free == 0
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// parseLike reads a header that has the learned shape. false: it has not.
func (v *View) parseLike(header []byte) bool {
	p := &v.shape
	if len(header) != len(p.header) || len(header) == 0 {
		return false
	}
	if p.form == Binary {
		copy(opaqueOf(p.header), opaqueOf(header)) // any bytes may stand there
	}
	if !p.fits(header) {
		return false
	}
	opaque, ok := p.readOpaque(header)
	if !ok {
		return false
	}
	if !v.shaped {
		v.index, v.count = p.index, p.count
		v.remark = token{}
		v.shaped = true
	}
	v.Code, v.Version, v.Flag, v.Language, v.Opaque = p.code, p.version, p.flag, p.language, opaque
	v.ext = p.ext.of(header)
	p.matches++
	return true
}

func (p *shape) readOpaque(header []byte) (int32, bool) {
	if p.form == Binary {
		return int32(binary.BigEndian.Uint32(opaqueOf(header))), true
	}
	n, ok := p.opaque.number(header)
	return int32(n), ok && n <= math.MaxInt32
}

// opaqueOf is the opaque of a packed header.
func opaqueOf(header []byte) []byte { return header[5:9] }

// learn makes the header that has just been read, in the usual way, the shape, if the one before had its length. opaque is where its
// opaque stands in JSON.
func (v *View) learn(header []byte, opaque span) {
	p := &v.shape
	if p.rest > 0 {
		p.rest--
		return
	}
	if v.count < 0 || len(header) != v.lastLen || len(header) > shapeLimit || v.Serialize == JSON && !wholeEscapes(header) {
		v.lastLen = len(header)
		return
	}
	if len(p.header) > 0 && p.matches < shapeWorth {
		p.header, p.rest, p.matches = p.header[:0], shapeRest, 0
		return
	}
	p.header = append(p.header[:0], header...)
	p.loose = append(p.loose[:0], header...)
	clear(p.loose)
	p.loosen(opaque)
	for i := range v.index[:v.count] {
		p.loosenPlain(v.index[i].value)
	}
	p.form, p.opaque, p.matches, p.hots = v.Serialize, opaque, 0, 0
	p.code, p.version, p.flag, p.language = v.Code, v.Version, v.Flag, v.Language
	p.index, p.count = v.index, v.count
	p.ext = v.extSpan
	p.learnSend(v)
	v.shaped = true
}

// wholeEscapes tells whether each escape is one that JSON knows. What stands behind any other one is text here, which in another header
// may be an escape.
func wholeEscapes(header []byte) bool {
	for {
		i := bytes.IndexByte(header, '\\')
		switch {
		case i < 0:
			return true
		case i+1 == len(header):
			return false
		case bytes.IndexByte([]byte(`"\/bfnrt`), header[i+1]) >= 0:
			header = header[i+2:]
		default:
			if _, ok := hex4(header[i:]); !ok {
				return false
			}
			header = header[i+6:]
		}
	}
}

func (p *shape) loosen(s span) {
	for i := s.from; i < s.to; i++ {
		p.loose[i] = 0xFF
	}
}

// loosenPlain loosens a value but for control characters and what are escapes in JSON, the six bytes of \uXXXX or the two of another one.
func (p *shape) loosenPlain(s span) {
	for i := s.from; i < s.to; {
		switch c := p.header[i]; {
		case c < ' ':
			i++
		case c != '\\':
			p.loose[i] = 0xFF
			i++
		case i+1 < s.to && p.header[i+1] == 'u':
			i += 6
		default:
			i += 2
		}
	}
}
