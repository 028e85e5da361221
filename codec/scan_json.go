package codec

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// maxJSONDepth bounds nesting in headers and bodies; real ones stay below ten.
const maxJSONDepth = 128

// scanner walks JSON text in place. It takes what RFC 8259 allows plus what
// fastjson writes or accepts in headers; it copies nothing and never reads
// beyond b. Its zero value with b set is ready.
type scanner struct {
	b []byte
	i int
}

// token is one scanned value. raw aliases the text: of a string without its
// quotes, of anything else as it stands.
type token struct {
	raw     []byte
	from    uint32 // where raw begins in the scanned text
	kind    tokenKind
	escaped bool // a string with backslashes: raw must go through appendUnescaped
}

// span is where the token lies in the scanned text.
func (t *token) span() span { return span{t.from, t.from + uint32(len(t.raw))} }

type tokenKind byte

const (
	tokenString tokenKind = iota + 1
	tokenScalar           // number, true, false
	tokenNull
	tokenNested // object or array
)

func (s *scanner) skipSpace() {
	for s.i < len(s.b) && isSpace(s.b[s.i]) {
		s.i++
	}
}

func isSpace(c byte) bool { return c <= ' ' && (c == ' ' || c == '\n' || c == '\t' || c == '\r') }

// take consumes c after white space, and says whether it stood there.
func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c { // there hardly ever is white space
		s.i++
		return true
	}
	return s.takeLater(c)
}

func (s *scanner) takeLater(c byte) bool {
	s.skipSpace()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// open enters an object: white space and '{'.
func (s *scanner) open() bool { return s.take('{') }

// nextKey is the key of the object's next member, with the colon consumed.
// done is true at the closing brace. first says that no member was read yet.
func (s *scanner) nextKey(first bool) (key token, done, ok bool) {
	if s.take('}') {
		return key, true, true
	}
	if !first && !s.take(',') {
		return key, false, false
	}
	s.skipSpace()
	if key, ok = s.str(); !ok {
		return key, false, false
	}
	return key, false, s.take(':')
}

// str scans a double-quoted string at the cursor.
func (s *scanner) str() (token, bool) { return s.quoted('"') }

// quoted scans a string in the given quotes at the cursor.
func (s *scanner) quoted(quote byte) (token, bool) {
	if s.i >= len(s.b) || s.b[s.i] != quote {
		return token{}, false
	}
	start := s.i + 1
	end, escaped, ok := stringEnd(s.b, start, quote)
	if !ok {
		return token{}, false
	}
	s.i = end + 1
	return token{raw: s.b[start:end], from: uint32(start), kind: tokenString, escaped: escaped}, true
}

// stringEnd is where the closing quote stands of the string whose text begins at b[i:], and whether the text has escapes.
func stringEnd(b []byte, i int, quote byte) (end int, escaped, ok bool) {
	for ; ; escaped = true {
		i += skipPlain(b[i:], quote)
		if i >= len(b) {
			return 0, false, false
		}
		if b[i] == quote {
			return i, escaped, true
		}
		if i += 2; i > len(b) {
			return 0, false, false
		}
	}
}

// skipPlain is the number of bytes before the first quote or backslash, looked
// for eight bytes at a time.
func skipPlain(b []byte, quote byte) int {
	quotes, backslashes := ones*uint64(quote), ones*uint64('\\')
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if hit := zeroByte(w^quotes) | zeroByte(w^backslashes); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(b) && b[i] != quote && b[i] != '\\' {
		i++
	}
	return i
}

// ones and tops are words whose bytes are all 1, and have all their top bit set.
const ones, tops = 0x0101010101010101, 0x8080808080808080

// zeroByte has the top bit set of the lowest byte of w that is zero, and no bit
// below it.
func zeroByte(w uint64) uint64 {
	return (w - ones) &^ w & tops
}

// value scans any value. Nested ones are checked for balance and returned raw.
func (s *scanner) value() (token, bool) {
	s.skipSpace()
	if s.i >= len(s.b) {
		return token{}, false
	}
	switch s.b[s.i] {
	case '"':
		return s.str()
	case '{', '[':
		return s.nested()
	}
	return s.scalar()
}

// scalar scans a number, true, false or null.
func (s *scanner) scalar() (token, bool) {
	start := s.i
	for s.i < len(s.b) && isScalarByte(s.b[s.i]) {
		s.i++
	}
	raw := s.b[start:s.i]
	if !validScalar(raw) {
		return token{}, false
	}
	if raw[0] == 'n' {
		return token{raw: raw, from: uint32(start), kind: tokenNull}, true
	}
	return token{raw: raw, from: uint32(start), kind: tokenScalar}, true
}

func isScalarByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func validScalar(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	if digits(raw) == len(raw) { // what nearly all of them are
		return true
	}
	switch raw[0] {
	case 't':
		return string(raw) == "true"
	case 'f':
		return string(raw) == "false"
	case 'n':
		return string(raw) == "null"
	}
	return validNumber(raw)
}

// validNumber takes JSON numbers, and leading zeros as Java does.
func validNumber(raw []byte) bool {
	i := 0
	if raw[0] == '-' {
		i++
	}
	n := digits(raw[i:])
	if n == 0 {
		return false
	}
	i += n
	if i < len(raw) && raw[i] == '.' {
		n = digits(raw[i+1:])
		if n == 0 {
			return false
		}
		i += 1 + n
	}
	if i < len(raw) && (raw[i] == 'e' || raw[i] == 'E') {
		i++
		if i < len(raw) && (raw[i] == '+' || raw[i] == '-') {
			i++
		}
		n = digits(raw[i:])
		if n == 0 {
			return false
		}
		i += n
	}
	return i == len(raw)
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

// nested skips an object or array whose brackets balance, down to
// maxJSONDepth. What stands between the brackets is checked only as far as
// strings go: nobody reads it.
func (s *scanner) nested() (token, bool) {
	start := s.i
	var closers [maxJSONDepth]byte
	depth := 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if _, ok := s.str(); !ok {
				return token{}, false
			}
			continue
		case '{', '[':
			if depth == maxJSONDepth {
				return token{}, false
			}
			closers[depth] = c + 2 // '{'+2 is '}', '['+2 is ']'
			depth++
		case '}', ']':
			depth--
			if closers[depth] != c {
				return token{}, false
			}
			if depth == 0 {
				s.i++
				return token{raw: s.b[start:s.i], from: uint32(start), kind: tokenNested}, true
			}
		}
		s.i++
	}
	return token{}, false
}

// appendUnescaped appends the text of a string token's raw bytes. The result is
// never longer than raw. An escape nobody knows stands for the character after
// the backslash; half a surrogate pair becomes U+FFFD.
func appendUnescaped(dst, raw []byte) []byte {
	dst = slices.Grow(dst, len(raw)+8)
	for {
		dst, raw = moveRun(dst, raw)
		if len(raw) < 2 {
			return append(dst, raw...)
		}
		if raw[1] == 'u' && len(raw) >= 6 && raw[2] == '0' && raw[3] == '0' && raw[4] < '8' && isDecimal(raw[4]) && isDecimal(raw[5]) {
			dst = append(dst, (raw[4]-'0')<<4|(raw[5]-'0')) // a control character, such as those between properties
			raw = raw[6:]
			continue
		}
		n := 0
		dst, n = appendEscape(dst, raw)
		raw = raw[n:]
	}
}

// appendEscape appends what the escape means that raw, of at least two bytes, begins with, and tells how many bytes it took.
func appendEscape(dst, raw []byte) ([]byte, int) {
	if raw[1] != 'u' {
		return append(dst, simpleEscape(raw[1])), 2
	}
	r, n := unicodeEscape(raw)
	return utf8.AppendRune(dst, r), n
}

// moveRun moves the bytes before the first backslash from raw to dst, which has room for them and 8 more: whole words are copied,
// and what is too much is written over later.
func moveRun(dst, raw []byte) (moved, rest []byte) {
	const backslashes = ones * '\\'
	n := len(dst)
	out := dst[:cap(dst)]
	for ; len(raw) >= 8; raw = raw[8:] {
		w := binary.LittleEndian.Uint64(raw)
		binary.LittleEndian.PutUint64(out[n:], w)
		if hit := zeroByte(w ^ backslashes); hit != 0 {
			k := bits.TrailingZeros64(hit) / 8
			return out[:n+k], raw[k:]
		}
		n += 8
	}
	for len(raw) > 0 && raw[0] != '\\' {
		out[n] = raw[0]
		n++
		raw = raw[1:]
	}
	return out[:n], raw
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }

func simpleEscape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'v':
		return '\v'
	}
	return c
}

// unicodeEscape reads \uXXXX, or two of them that form a surrogate pair, at
// the start of raw and says how many bytes it took.
func unicodeEscape(raw []byte) (rune, int) {
	hi, ok := hex4(raw)
	if !ok {
		return 'u', 2
	}
	if hi < 0xD800 || hi > 0xDFFF {
		return hi, 6
	}
	lo, ok := hex4(raw[6:])
	if !ok || hi > 0xDBFF || lo < 0xDC00 || lo > 0xDFFF {
		return utf8.RuneError, 6
	}
	return (hi-0xD800)<<10 + (lo - 0xDC00) + 0x10000, 12
}

// hex4 is the number of a \uXXXX at the start of raw.
func hex4(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range raw[2:6] {
		d := hexDigit(c)
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// number reads a number of digits alone that fits 63 bits. The span lies in header.
func (s span) number(header []byte) (int64, bool) {
	b := header[:s.to]
	n := s.to - s.from
	if n <= 8 && len(b) >= 8 {
		high, ok := eightDigits(leadingZeros(word(b[len(b)-8:]), n))
		return int64(high), ok && n > 0
	}
	if n < 8 || n > 16 {
		return parseDigits(b[s.from:])
	}
	low, lowOK := eightDigits(word(b[len(b)-8:]))
	high, highOK := eightDigits(leadingZeros(word(b[s.from:])<<(8*(16-n)), n-8))
	return int64(high*1e8 + low), lowOK && highOK
}

// leadingZeros makes all but the last n of the eight bytes of w the digit zero.
func leadingZeros(w uint64, n uint32) uint64 {
	keep := ^uint64(0) << (8 * (8 - n))
	return w&keep | ones*'0'&^keep
}

// eightDigits is the number that eight decimal digits make, the first of them in the lowest byte.
func eightDigits(w uint64) (n uint64, ok bool) {
	const high = ones * 0xF0
	ok = w&high == ones*'0' && (w+ones*6)&high == ones*'0'
	w -= ones * '0'
	w = w*10 + w>>8 // pairs, in every other byte
	w = ((w&0x000000FF000000FF)*(100+1000000<<32) + (w>>16&0x000000FF000000FF)*(1+10000<<32)) >> 32
	return w, ok
}

// parseDigits is parseInt for digits alone.
func parseDigits(b []byte) (int64, bool) {
	if digits(b) != len(b) {
		return 0, false
	}
	return parseInt(b, 64)
}

// plainNumber reads a number of 31 bits that is digits alone.
func plainNumber(b []byte) (int32, bool) {
	if digits(b) != len(b) {
		return 0, false
	}
	n, ok := parseInt(b, 32)
	return int32(n), ok
}

// parseInt reads a decimal number that may have a sign and surrounding blanks.
func parseInt(b []byte, bits uint) (int64, bool) {
	if n, ok := shortNumber(b); ok {
		return n, true
	}
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	limit := uint64(1) << (bits - 1) // magnitude of the smallest number
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' || n > limit/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if neg {
		return -int64(n), n <= limit
	}
	return int64(n), n < limit
}

// shortNumber reads a number of one to nine digits and nothing else.
func shortNumber(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}
