package codec

import (
	"encoding/binary"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendJSONString appends s as a JSON string. Only what JSON asks for is
// escaped; bytes that are no UTF-8 become U+FFFD.
func appendJSONString[T ~string | ~[]byte](dst []byte, s T) []byte {
	n := len(dst) + 1
	dst = append(append(append(dst, '"'), s...), '"')
	if plainJSON(dst[n : n+len(s)]) {
		return dst
	}
	return appendEscapedString(dst[:n-1], s)
}

// plainJSON tells whether text can stand between quotes as it is, or perhaps not.
func plainJSON(b []byte) bool {
	var bad uint64
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		low := (w - ones*' ') &^ w // top bit: below the blank, or a borrow from one that is
		bad |= (low | w | zeroByte(w^ones*'"') | zeroByte(w^ones*'\\')) & tops
	}
	for _, c := range b {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return bad == 0
}

func appendEscapedString[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	plain := 0 // start of the run not written yet
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = decodeRune(s, i); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		dst = appendEscaped(dst, c)
		i += size
		plain = i
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}

// decodeRune decodes the rune at s[i:] through a small copy, so that it works
// on strings and byte slices alike without allocating.
func decodeRune[T ~string | ~[]byte](s T, i int) (rune, int) {
	var buf [utf8.UTFMax]byte
	n := copy(buf[:], s[i:min(i+utf8.UTFMax, len(s))])
	return utf8.DecodeRune(buf[:n])
}

func appendEscaped(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c == '\t':
		return append(dst, '\\', 't')
	case c < ' ':
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(dst, "\ufffd"...)
}
