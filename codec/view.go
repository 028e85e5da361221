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

	// The first fields of a JSON header, so that extFields are scanned once.
	// Beyond count the array holds what earlier frames left.
	index [indexedFields]field
	count int // -1: more than the index takes, scan ext again
}

// indexedFields is enough for a send with everything a client may add.
const indexedFields = 20

// field is one member of extFields.
type field struct{ name, value token }

// Parse reads a whole frame, length field included. Errors are ErrFrame and
// ErrFrameTooLarge, with what was wrong; the View then holds nothing of use.
func (v *View) Parse(frame []byte) error {
	s, header, body, err := splitFrame(frame)
	if err != nil {
		return err
	}
	v.Code, v.Version, v.Opaque, v.Flag, v.Language = 0, 0, 0, 0, LanguageJava
	v.Serialize, v.Body, v.ext, v.remark, v.count = s, body, nil, token{}, 0
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

func (v *View) badHeader(s *scanner, what string) error {
	return fmt.Errorf("%w: JSON header, %s at byte %d of %d", ErrFrame, what, s.i, len(s.b))
}

// scanExt checks the extFields object member by member, and keeps its span and
// where its members lie.
func (v *View) scanExt(s *scanner) bool {
	v.ext, v.count = nil, 0
	s.skipSpace()
	start := s.i
	if !s.open() {
		t, ok := s.value()
		return ok && t.kind == tokenNull
	}
	for n := 0; ; n++ {
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
	if n >= indexedFields {
		v.count = -1
		return
	}
	v.index[n] = field{name: name, value: value}
	v.count = n + 1
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
	if !ok || !validBinaryExt(ext) {
		return fmt.Errorf("%w: packed header, extFields do not fit their lengths", ErrFrame)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: packed header, %d bytes after extFields", ErrFrame, len(rest))
	}
	v.ext = ext
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

func validBinaryExt(ext []byte) bool {
	for len(ext) > 0 {
		var ok bool
		if _, _, ext, ok = cutField(ext); !ok {
			return false
		}
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
	kept   []field // JSON: what the index holds
	json   scanner // JSON: the object, if the index does not hold it all
	first  bool
	binary []byte // packed: what is left
}

func (v *View) fields() fieldReader {
	if v.Serialize == Binary {
		return fieldReader{binary: v.ext}
	}
	if v.count >= 0 {
		return fieldReader{kept: v.index[:v.count]}
	}
	r := fieldReader{json: scanner{b: v.ext}, first: true}
	r.json.open()
	return r
}

// next is the next name and value; ok is false at the end.
func (r *fieldReader) next() (name, value token, ok bool) {
	if len(r.kept) > 0 {
		f := &r.kept[0]
		r.kept = r.kept[1:]
		return f.name, f.value, true
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
