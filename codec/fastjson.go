package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Unmarshal reads a JSON body written by Java into v. Beyond standard JSON it
// takes what fastjson 1 and 2 write or tolerate: number and name keys without
// quotes, an object as a key, single quotes, commas too many, control
// characters in strings, NaN, and anything behind the first value. Unknown
// fields are ignored, absent ones keep v's defaults. The error is ErrJSON.
func Unmarshal(src []byte, v any) error {
	std, err := standardJSON(src)
	if err != nil {
		return err
	}
	if err = json.Unmarshal(std, v); err != nil {
		return fmt.Errorf("%w: %w", ErrJSON, err)
	}
	return nil
}

// jsonAppender is a body that encoding/json cannot write, or not well enough.
type jsonAppender interface {
	appendJSON(dst []byte) []byte
}

// Marshal writes a body the way Java's readers of all versions take it: no HTML
// escapes, null fields left out, number keys quoted, maps keyed by a queue with
// the raw object as key.
func Marshal(v any) ([]byte, error) {
	if a, ok := v.(jsonAppender); ok {
		return a.appendJSON(nil), nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// MarshalIndent is Marshal indented by tabs, as the files below config/ are.
// It does not take bodies with maps keyed by a queue.
func MarshalIndent(v any) ([]byte, error) {
	compact, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err = json.Indent(&buf, compact, "", "\t"); err != nil {
		return nil, fmt.Errorf("indent %T: %w", v, err)
	}
	return buf.Bytes(), nil
}

// standardJSON rewrites the first value of src as standard JSON.
func standardJSON(src []byte) ([]byte, error) {
	n := normalizer{s: scanner{b: src}, out: make([]byte, 0, len(src)+len(src)/8+16)}
	if !n.value(0) {
		return nil, fmt.Errorf("%w: at byte %d of %d", ErrJSON, n.s.i, len(src))
	}
	return n.out, nil
}

// normalizer copies JSON of any dialect to out as standard JSON.
type normalizer struct {
	s     scanner
	out   []byte
	inKey bool // an object in a key may not have an object as key again: each level would double the escapes
}

func (n *normalizer) value(depth int) bool {
	n.s.skipSpace()
	switch c := n.peek(); c {
	case '{':
		return depth < maxJSONDepth && n.object(depth+1)
	case '[':
		return depth < maxJSONDepth && n.array(depth+1)
	case '"', '\'':
		return n.string(c)
	}
	return n.bareValue()
}

// peek is the byte at the cursor, 0 at the end.
func (n *normalizer) peek() byte {
	if n.s.i < len(n.s.b) {
		return n.s.b[n.s.i]
	}
	return 0
}

func (n *normalizer) object(depth int) bool {
	n.s.i++
	n.out = append(n.out, '{')
	for first := true; ; first = false {
		n.skipCommas()
		if n.s.take('}') {
			n.out = append(n.out, '}')
			return true
		}
		if !first {
			n.out = append(n.out, ',')
		}
		if !n.key(depth) || !n.s.take(':') {
			return false
		}
		n.out = append(n.out, ':')
		if !n.value(depth) || !n.endOfMember('}') {
			return false
		}
	}
}

func (n *normalizer) array(depth int) bool {
	n.s.i++
	n.out = append(n.out, '[')
	for first := true; ; first = false {
		n.skipCommas()
		if n.s.take(']') {
			n.out = append(n.out, ']')
			return true
		}
		if !first {
			n.out = append(n.out, ',')
		}
		if !n.value(depth) || !n.endOfMember(']') {
			return false
		}
	}
}

// endOfMember checks that a comma or the closer follows, and consumes neither.
func (n *normalizer) endOfMember(closer byte) bool {
	n.s.skipSpace()
	c := n.peek()
	return c == ',' || c == closer
}

func (n *normalizer) skipCommas() {
	for n.s.take(',') {
	}
}

// key writes a member's name: quoted, bare, or an object whose text becomes
// the name.
func (n *normalizer) key(depth int) bool {
	n.s.skipSpace()
	switch c := n.peek(); c {
	case '"', '\'':
		return n.string(c)
	case '{':
		sub := normalizer{s: n.s, inKey: true}
		if n.inKey || depth >= maxJSONDepth || !sub.object(depth+1) {
			return false
		}
		n.s = sub.s
		n.out = appendJSONString(n.out, sub.out)
		return true
	}
	word := n.word()
	n.out = appendJSONString(n.out, word)
	return len(word) > 0
}

func (n *normalizer) string(quote byte) bool {
	t, ok := n.s.quoted(quote)
	if !ok {
		return false
	}
	text := t.raw
	if t.escaped {
		text = appendUnescaped(make([]byte, 0, len(t.raw)), t.raw)
	}
	n.out = appendJSONString(n.out, text)
	return true
}

// bareValue writes a number, true, false or null. What fastjson has no value
// for is null.
func (n *normalizer) bareValue() bool {
	word := n.word()
	switch string(word) {
	case "NaN", "Infinity", "-Infinity", "undefined":
		word = []byte("null")
	}
	n.out = append(n.out, word...)
	return validScalar(word)
}

func (n *normalizer) word() []byte {
	start := n.s.i
	for isWordByte(n.peek()) {
		n.s.i++
	}
	return n.s.b[start:n.s.i]
}

func isWordByte(c byte) bool {
	return isScalarByte(c) || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}
