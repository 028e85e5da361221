package bench

import (
	"bytes"
	"encoding/binary"

	"tandem/codec"
)

// answerShape knows where the last JSON header had what a SUCCESS answer must say, because a broker's next header mostly looks
// the same. Nothing is taken on trust: each answer is compared at these places, and one that differs is parsed in full.
type answerShape struct {
	code, flag, opaque int // from the header's start; 0: not known
}

// What a header has in these places. A quote within a JSON string stands behind a backslash, so that only a field's name
// follows a comma or a brace.
const (
	codeSuccess  = `"code":0`
	flagResponse = `"flag":1`
	opaqueName   = `"opaque":`
	opaqueDigits = 10
	headStart    = 8 // length of the frame 4, of the header 4
)

// success returns the opaque of an answer that says SUCCESS. ok is false for anything else, and for what it cannot read.
func (s *answerShape) success(frame []byte) (opaque int32, ok bool) {
	head := headOf(frame)
	if head == nil {
		return 0, false
	}
	if codec.Serialize(frame[4]) == codec.Binary {
		return packedSuccess(head)
	}
	if opaque, ok = s.read(head); ok {
		return opaque, true
	}
	*s = shapeOf(head) // a number before them has got another digit, as the queue's offset does now and then
	return s.read(head)
}

// headOf is a frame's header; nil if the frame does not hold it whole.
func headOf(frame []byte) []byte {
	if len(frame) < headStart {
		return nil
	}
	n := int(binary.BigEndian.Uint32(frame[4:]) & 0xffffff)
	if n > len(frame)-headStart {
		return nil
	}
	return frame[headStart : headStart+n]
}

func shapeOf(head []byte) answerShape {
	return answerShape{code: nameIn(head, codeSuccess), flag: nameIn(head, flagResponse), opaque: nameIn(head, opaqueName)}
}

func (s *answerShape) read(head []byte) (opaque int32, ok bool) {
	if !standsAt(head, s.code, codeSuccess) || !standsAt(head, s.flag, flagResponse) {
		return 0, false
	}
	return opaqueAt(head, s.opaque)
}

// nameIn finds where text stands as a field, at least 1; 0 if it does not.
func nameIn(head []byte, text string) int {
	for from := 0; ; {
		at := bytes.Index(head[from:], []byte(text))
		if at < 0 {
			return 0
		}
		at += from
		if startsField(head, at) {
			return at
		}
		from = at + 1
	}
}

func startsField(head []byte, at int) bool { return at > 0 && (head[at-1] == ',' || head[at-1] == '{') }

// standsAt tells whether the field's whole text stands at a place: what follows must end its value.
func standsAt(head []byte, at int, text string) bool {
	end := at + len(text)
	return at > 0 && end < len(head) && string(head[at:end]) == text && startsField(head, at) && endsValue(head[end])
}

func endsValue(c byte) bool { return c == ',' || c == '}' }

// opaqueAt reads an opaque of the usual ten digits.
func opaqueAt(head []byte, at int) (int32, bool) {
	from := at + len(opaqueName)
	end := from + opaqueDigits
	if at <= 0 || end >= len(head) || string(head[at:from]) != opaqueName || !startsField(head, at) || !endsValue(head[end]) {
		return 0, false
	}
	n := int64(0)
	for _, c := range head[from:end] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return int32(n), n < 1<<31
}

// packedSuccess reads a header in the ROCKETMQ form: code 2, language 1, version 2, opaque 4, flag 4.
func packedSuccess(head []byte) (int32, bool) {
	const opaqueFrom, flagFrom, least = 5, 9, 13
	if len(head) < least || binary.BigEndian.Uint16(head) != uint16(codec.Success) || head[flagFrom+3]&1 == 0 {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(head[opaqueFrom:])), true
}
