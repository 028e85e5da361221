package codec

import "encoding/binary"

// shape is a JSON header a View has read before, as a pattern for those to come: a producer's headers differ in a
// few bytes of their values and in the opaque, and where they do in nothing else, the places of all fields are known.
//
// A byte of a value is loose: any byte that needs no escape may stand there. All others must be as they were, those of escapes
// among them.
type shape struct {
	header []byte // as it was; empty: no shape is known
	loose  []byte // per byte of header: 0xFF or 0
	opaque span

	code, version, flag int32
	language            byte
	ext                 span
	index               [indexedFields]field
	count               int

	matches int // since it was learned
	rest    int // headers to pass before another one is learned
}

const (
	shapeLimit = 1 << 10 // bytes of a header that is worth it
	// A shape that served fewer than shapeWorth headers was not worth its making; none is made for shapeRest headers then.
	shapeWorth = 4
	shapeRest  = 64
)

// fits tells whether header is like the learned one.
func (p *shape) fits(header []byte) bool {
	n := len(header)
	if n != len(p.header) || n == 0 {
		return false
	}
	was, loose := p.header[:n], p.loose[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		w := binary.LittleEndian.Uint64(header[i:])
		differs := w ^ binary.LittleEndian.Uint64(was[i:])
		if differs == 0 {
			continue
		}
		free := binary.LittleEndian.Uint64(loose[i:])
		if differs&^free != 0 || (zeroByte(w^ones*'"')|zeroByte(w^ones*'\\'))&free != 0 {
			return false
		}
	}
	for ; i < n; i++ {
		if c := header[i]; c != was[i] && (loose[i] == 0 || c == '"' || c == '\\') {
			return false
		}
	}
	return true
}

// parseLike reads a header that has the learned shape. false: it has not.
func (v *View) parseLike(header []byte) bool {
	p := &v.shape
	if !p.fits(header) {
		return false
	}
	opaque, ok := plainNumber(p.opaque.of(header))
	if !ok {
		return false
	}
	if !v.shaped {
		v.Code, v.Version, v.Flag, v.Language = p.code, p.version, p.flag, p.language
		v.index, v.count = p.index, p.count
		v.shaped = true
	}
	v.Opaque = opaque
	v.remark = token{}
	v.ext = p.ext.of(header)
	p.matches++
	return true
}

// learn makes the header that has just been read, in the usual way, the shape, if the one before had its length. opaque is where its
// opaque stands.
func (v *View) learn(header []byte, opaque span) {
	p := &v.shape
	if p.rest > 0 {
		p.rest--
		return
	}
	if v.count < 0 || len(header) != v.lastLen || len(header) > shapeLimit {
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
	p.opaque, p.matches = opaque, 0
	p.code, p.version, p.flag, p.language = v.Code, v.Version, v.Flag, v.Language
	p.index, p.count = v.index, v.count
	p.ext = v.extSpan
	v.shaped = true
}

func (p *shape) loosen(s span) {
	for i := s.from; i < s.to; i++ {
		p.loose[i] = 0xFF
	}
}

// loosenPlain loosens a value but for its escapes, the six bytes of \uXXXX or the two of another one.
func (p *shape) loosenPlain(s span) {
	for i := s.from; i < s.to; {
		if p.header[i] != '\\' {
			p.loose[i] = 0xFF
			i++
			continue
		}
		if i+1 < s.to && p.header[i+1] == 'u' {
			i += 4
		}
		i += 2
	}
}
