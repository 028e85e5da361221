package codec

import (
	"encoding/binary"
	"fmt"
)

// View is one parsed frame of the hot paths. Its slices alias the frame and
// live exactly as long as it does; parsing allocates nothing. A View may be
// used again for the next frame.
type View struct {
	Code, Version, Opaque, Flag int32
	Language                    byte
	Serialize                   Serialize
	Body                        []byte

	ext    []byte // JSON: the object with its braces; packed: the row of fields. nil if absent
	remark token

	// The first extFields, so that they are scanned once. Beyond count the array
	// holds what earlier frames left.
	header []byte // what the index points into
	index  [indexedFields]field
	count  int // -1: more than the index takes, scan ext again

	shape   shape
	shaped  bool // the fields above are those of shape
	lastLen int  // of the header before
	extSpan span // of a header read in the usual way
}

// indexedFields is enough for a send with everything a client may add.
const indexedFields = 20

// field is one member of extFields: where name and value lie in the header,
// without their quotes.
type field struct {
	name, value   span
	kind          tokenKind // of the value
	escaped       bool      // the value is
	escapedInName bool
}

// span is the bytes [from, to) of a header, whose length has 24 bits.
type span struct{ from, to uint32 }

func (s span) of(header []byte) []byte { return header[s.from:s.to:s.to] }

func (f *field) tokens(header []byte) (name, value token) {
	name = token{raw: f.name.of(header), from: f.name.from, kind: tokenString, escaped: f.escapedInName}
	value = token{raw: f.value.of(header), from: f.value.from, kind: f.kind, escaped: f.escaped}
	return name, value
}

// Parse reads a whole frame, length field included. Errors are ErrFrame and
// ErrFrameTooLarge, with what was wrong; the View then holds nothing of use.
func (v *View) Parse(frame []byte) error {
	s, header, body, err := splitFrame(frame)
	if err != nil {
		return err
	}
	v.Serialize, v.Body, v.header = s, body, header
	if s == v.shape.form && v.parseLike(header) {
		return nil
	}
	v.Code, v.Version, v.Opaque, v.Flag, v.Language = 0, 0, 0, 0, LanguageJava
	v.ext, v.remark, v.count, v.shaped = nil, token{}, 0, false
	if s == Binary {
		return v.parseBinary(header)
	}
	return v.parseJSON(header)
}

// IsResponse says whether the frame answers a request of ours.
func (v *View) IsResponse() bool { return v.Flag&flagResponse != 0 }

// IsOneway says whether the sender expects no answer.
func (v *View) IsOneway() bool { return v.Flag&flagOneway != 0 }

// Remark is the header's remark, empty if there is none. It allocates.
func (v *View) Remark() string { return v.remark.text() }

// Ext is the header's extFields as a map, nil if there are none. It allocates.
// Of a name that stands twice the last value counts; null values are left out.
func (v *View) Ext() map[string]string {
	var ext map[string]string
	r := v.fields()
	for {
		name, value, ok := r.next()
		if !ok {
			return ext
		}
		if value.kind == tokenNull {
			continue
		}
		if ext == nil {
			ext = make(map[string]string, 8)
		}
		ext[name.text()] = value.text()
	}
}

// ExtValue is one extFields value by name, without allocating unless the value
// is written with escapes (then it is a copy). ok is false if it is absent or
// null. It scans the header: to read many fields, use Ext.
func (v *View) ExtValue(name string) (value []byte, ok bool) {
	r := v.fields()
	for {
		key, t, more := r.next()
		if !more {
			return value, ok
		}
		if t.kind == tokenNull || !key.is(name) {
			continue
		}
		if value, ok = t.raw, true; t.escaped {
			value = appendUnescaped(make([]byte, 0, len(t.raw)), t.raw)
		}
	}
}

// text is the token's text as a string of its own.
func (t token) text() string {
	if !t.escaped {
		return string(t.raw)
	}
	return string(appendUnescaped(make([]byte, 0, len(t.raw)), t.raw))
}

// is compares the token's text without allocating. Names with escapes, which
// nobody sends, are compared through a small buffer.
func (t token) is(name string) bool {
	if !t.escaped {
		return string(t.raw) == name
	}
	var buf [256]byte
	return len(t.raw) <= len(buf) && string(appendUnescaped(buf[:0], t.raw)) == name
}

func (v *View) parseJSON(header []byte) error {
	if v.parseUsual(header) {
		return nil
	}
	return v.parseAny(header)
}

// parseAny reads a header in any order of fields and with any white space.
func (v *View) parseAny(header []byte) error {
	v.Code, v.Version, v.Opaque, v.Flag, v.Language = 0, 0, 0, 0, LanguageJava
	v.ext, v.count = nil, 0
	s := scanner{b: header}
	if !s.open() {
		return v.badHeader(&s, "no object")
	}
	for first := true; ; first = false {
		name, done, ok := s.nextKey(first)
		if !ok {
			return v.badHeader(&s, "no field name")
		}
		if done {
			break
		}
		if name.raw != nil && name.is("extFields") {
			if !v.scanExt(&s) {
				return v.badHeader(&s, "bad extFields")
			}
			continue
		}
		value, ok := s.value()
		if !ok {
			return v.badHeader(&s, "bad value")
		}
		if err := v.setField(name, value); err != nil {
			return err
		}
	}
	if s.skipSpace(); s.i != len(header) {
		return v.badHeader(&s, "text after the object")
	}
	return nil
}

// parseUsual reads a request's header as fastjson, and whoever copies it, writes
// it: these fields, in this order, without blanks. false is a header that is
// written otherwise or is bad.
func (v *View) parseUsual(b []byte) bool {
	l := literals{b: b}
	v.Code = l.number(`{"code":`)
	if l.skip(`,"extFields":{`) {
		start := l.i - 1
		l.i = v.indexPlain(b, l.i)
		if !l.skip(`}`) {
			return false
		}
		v.ext, v.extSpan = b[start:l.i], span{uint32(start), uint32(l.i)}
	}
	v.Flag = l.number(`,"flag":`)
	if !l.skip(`,"language":"JAVA"`) {
		if !l.skip(`,"language":"GO"`) {
			return false
		}
		v.Language = LanguageGo
	}
	v.Opaque = l.number(`,"opaque":`)
	opaque := span{uint32(l.i - l.digits), uint32(l.i)}
	l.bad = l.bad || !l.skip(`,"serializeTypeCurrentRPC":"JSON"`)
	v.Version = l.number(`,"version":`)
	if l.bad || !l.skip(`}`) || l.i != len(b) {
		return false
	}
	if v.ext != nil {
		v.learn(b, opaque)
	}
	return true
}

// literals compares text piece by piece.
type literals struct {
	b      []byte
	i      int
	digits int // of the last number
	bad    bool
}

// skip passes over text, if it stands at the cursor.
func (l *literals) skip(text string) bool {
	if !hasPrefix(l.b[l.i:], text) {
		return false
	}
	l.i += len(text)
	return true
}

func hasPrefix(b []byte, text string) bool {
	return len(b) >= len(text) && string(b[:len(text)]) == text
}

// number passes over text and a number of 31 bits behind it; anything else is bad.
func (l *literals) number(text string) int32 {
	if !l.skip(text) {
		l.bad = true
		return 0
	}
	l.digits = digits(l.b[l.i:])
	n, ok := plainNumber(l.b[l.i : l.i+l.digits])
	l.bad = l.bad || !ok
	l.i += l.digits
	return n
}

func (v *View) badHeader(s *scanner, what string) error {
	return fmt.Errorf("%w: JSON header, %s at byte %d of %d", ErrFrame, what, s.i, len(s.b))
}

// scanExt checks the extFields object member by member, and keeps its span and
// where its members lie. The scanner's text is the header.
func (v *View) scanExt(s *scanner) bool {
	v.ext, v.count = nil, 0
	s.skipSpace()
	start := s.i
	if !s.open() {
		t, ok := s.value()
		return ok && t.kind == tokenNull
	}
	s.i = v.indexPlain(s.b, s.i)
	for n := v.count; ; n++ {
		name, done, ok := s.nextKey(n == 0)
		if !ok {
			return false
		}
		if done {
			v.ext = s.b[start:s.i]
			return true
		}
		value, ok := s.value()
		if !ok {
			return false
		}
		v.keep(n, name, value)
	}
}

func (v *View) keep(n int, name, value token) {
	if n >= indexedFields || v.count < 0 {
		v.count = -1
		return
	}
	v.index[n] = field{
		name: name.span(), value: value.span(),
		kind: value.kind, escaped: value.escaped, escapedInName: name.escaped,
	}
	v.count = n + 1
}

// indexPlain takes members from b[i:] on that are written as all clients write
// them, a plain name and a string without blanks between, and returns where the
// last one ends. What it does not take, good or bad, is left to the caller.
func (v *View) indexPlain(b []byte, i int) int {
	for n := 0; n < indexedFields; n++ {
		at := i
		if n > 0 {
			if at >= len(b) || b[at] != ',' {
				break
			}
			at++
		}
		f := &v.index[n]
		end, ok := f.scanPlain(b, at)
		if !ok {
			break
		}
		i, v.count = end, n+1
	}
	return i
}

// scanPlain reads `"name":"value"` at b[at:]; end is behind it. The value may have
// escapes, the name not.
func (f *field) scanPlain(b []byte, at int) (end int, ok bool) {
	if at+6 > len(b) || b[at] != '"' {
		return 0, false
	}
	nameEnd := at + 2 // most names have one letter
	if b[nameEnd] != '"' || b[nameEnd-1] == '"' || b[nameEnd-1] == '\\' {
		nameEnd = at + 1 + skipPlain(b[at+1:], '"')
	}
	if nameEnd+3 > len(b) || b[nameEnd] != '"' || b[nameEnd+1] != ':' || b[nameEnd+2] != '"' {
		return 0, false
	}
	start := nameEnd + 3
	if start+1 < len(b) && b[start+1] == '"' && b[start] != '"' && b[start] != '\\' { // one character, as most numbers are
		f.place(at+1, nameEnd, start, start+1, false)
		return start + 2, true
	}
	valueEnd, escaped, ok := stringEnd(b, start, '"')
	if ok {
		f.place(at+1, nameEnd, start, valueEnd, escaped)
	}
	return valueEnd + 1, ok
}

// setField stores one header field; unknown ones are ignored.
func (v *View) setField(name, value token) error {
	if name.escaped {
		return nil
	}
	switch string(name.raw) {
	case "code":
		return setInt(&v.Code, "code", value)
	case "flag":
		return setInt(&v.Flag, "flag", value)
	case "opaque":
		return setInt(&v.Opaque, "opaque", value)
	case "version":
		return setInt(&v.Version, "version", value)
	case "language":
		v.Language = headerLanguage(value)
	case "remark":
		if v.remark = value; value.kind == tokenNull {
			v.remark = token{}
		}
	}
	return nil
}

func setInt(p *int32, name string, value token) error {
	if value.kind == tokenNull {
		return nil
	}
	n, ok := parseInt(value.raw, 32)
	if !ok {
		return fmt.Errorf("%w: header field %s is %.40q, not a number of 32 bits", ErrFrame, name, value.raw)
	}
	*p = int32(n)
	return nil
}

// headerLanguage takes the name, or the ordinal as some clients write it.
func headerLanguage(value token) byte {
	if value.kind == tokenNull {
		return LanguageJava
	}
	if n, ok := parseInt(value.raw, 32); ok && n >= 0 && n <= int64(LanguageNodeJS) {
		return byte(n)
	}
	return languageOf(value.raw)
}

func (v *View) parseBinary(header []byte) error {
	if len(header) < binaryFixed {
		return fmt.Errorf("%w: packed header of %d bytes, need at least %d", ErrFrame, len(header), binaryFixed)
	}
	v.Code = int32(int16(binary.BigEndian.Uint16(header)))
	v.Language = header[2]
	v.Version = int32(int16(binary.BigEndian.Uint16(header[3:])))
	v.Opaque = int32(binary.BigEndian.Uint32(header[5:]))
	v.Flag = int32(binary.BigEndian.Uint32(header[9:]))
	remark, rest, ok := cut32(header[13:])
	if !ok {
		return fmt.Errorf("%w: packed header, remark longer than the header", ErrFrame)
	}
	v.remark = token{raw: remark, kind: tokenString}
	ext, rest, ok := cut32(rest)
	if !ok || !v.indexBinary(ext, len(header)-len(rest)-len(ext)) {
		return fmt.Errorf("%w: packed header, extFields do not fit their lengths", ErrFrame)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: packed header, %d bytes after extFields", ErrFrame, len(rest))
	}
	v.ext = ext
	if len(ext) > 0 && len(remark) == 0 {
		v.extSpan = span{uint32(len(header) - len(ext)), uint32(len(header))}
		v.learn(header, span{})
	}
	return nil
}

// cut32 cuts a value with a 4-byte length in front off b.
func cut32(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// place notes a string under a plain name. Field by field: that is quicker than a composite value.
func (f *field) place(name, nameEnd, value, valueEnd int, escaped bool) {
	f.name.from, f.name.to = uint32(name), uint32(nameEnd)
	f.value.from, f.value.to = uint32(value), uint32(valueEnd)
	f.kind, f.escaped, f.escapedInName = tokenString, escaped, false
}

// indexBinary checks packed extFields, which begin at the header's byte at, and
// keeps where the first ones lie.
func (v *View) indexBinary(ext []byte, at int) bool {
	end := at + len(ext)
	for n := 0; len(ext) > 0; n++ {
		name, value, rest, ok := cutField(ext)
		if !ok {
			return false
		}
		if n < indexedFields {
			const valueLen = 4 // the length field between the two
			to := end - len(rest)
			from := to - len(value)
			v.index[n].place(from-valueLen-len(name), from-valueLen, from, to, false)
			v.count = n + 1
		} else {
			v.count = -1
		}
		ext = rest
	}
	return true
}

// cutField cuts name (2-byte length) and value (4-byte length) off b.
func cutField(b []byte) (name, value, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; n > len(b) {
		return nil, nil, nil, false
	}
	name = b[:n:n]
	value, rest, ok = cut32(b[n:])
	return name, value, rest, ok
}

// fieldReader walks the extFields of a parsed frame once.
type fieldReader struct {
	header []byte
	kept   []field // what the index holds
	json   scanner // JSON: the object, if the index does not hold it all
	first  bool
	binary []byte // packed: what is left, likewise
}

func (v *View) fields() fieldReader {
	if v.count >= 0 {
		return fieldReader{header: v.header, kept: v.index[:v.count]}
	}
	if v.Serialize == Binary {
		return fieldReader{binary: v.ext}
	}
	r := fieldReader{json: scanner{b: v.ext}, first: true}
	r.json.open()
	return r
}

// next is the next name and value; ok is false at the end.
func (r *fieldReader) next() (name, value token, ok bool) {
	if len(r.kept) > 0 {
		name, value = r.kept[0].tokens(r.header)
		r.kept = r.kept[1:]
		return name, value, true
	}
	if r.json.b == nil {
		return r.nextBinary()
	}
	name, done, ok := r.json.nextKey(r.first)
	if !ok || done {
		return name, value, false
	}
	r.first = false
	value, ok = r.json.value()
	return name, value, ok
}

func (r *fieldReader) nextBinary() (name, value token, ok bool) {
	if len(r.binary) == 0 {
		return name, value, false
	}
	n, val, rest, ok := cutField(r.binary)
	r.binary = rest
	return token{raw: n, kind: tokenString}, token{raw: val, kind: tokenString}, ok
}
