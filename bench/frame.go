package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"

	"tandem/codec"
)

// Opaques have ten digits always, so that they can be patched into a JSON header.
const (
	opaqueBase = 1_000_000_000
	maxDepth   = 1 << 20

	bornDigits = 13 // milliseconds since 1970 have 13 digits from 2001 to 2286
	keyDigits  = 8  // of the message key's 32 hex digits, those that are patched
	keyPrefix  = "7F00000126C47C53A9EB9A4C"

	opaqueOfBinary = 13 // where a packed header has its opaque: frame head 8, code 2, language 1, version 2
)

// message says what is sent.
type message struct {
	topic string
	queue int
	nums  int // defaultTopicQueueNums, for a topic that is made by its first message
	wait  bool
	form  codec.Serialize
	body  []byte
}

// frame is an encoded SEND_MESSAGE_V2 request in two parts: its head, with places for what changes from one send to the
// next, and the body, which frames share. It is read only.
type frame struct {
	head, body              []byte
	form                    codec.Serialize
	opaqueAt, bornAt, keyAt int
}

// keyMarker stands where a message key is patched.
const keyMarker = "FEDCBA98"

func (m message) properties() []byte {
	props := codec.AppendProperty(nil, "UNIQ_KEY", keyPrefix+keyMarker)
	return codec.AppendProperty(props, "WAIT", strconv.FormatBool(m.wait))
}

// newFrame encodes m with markers in the places that change, and notes where they are.
func newFrame(m message) (*frame, error) {
	const born = "8765432109876"
	req := codec.NewRequest(codec.ReqSendMessageV2, map[string]string{
		"a": "tandem_bench", "b": m.topic, "c": "TBW102", "d": strconv.Itoa(m.nums), "e": strconv.Itoa(m.queue),
		"f": "0", "g": born, "h": "0", "i": string(m.properties()), "j": "0", "k": "false", "l": "0", "m": "false",
	}, m.body)
	req.Opaque, req.Serialize = opaqueBase, m.form
	head := codec.AppendFrame(nil, req)
	head = head[:len(head)-len(m.body)]

	f := &frame{head: head, body: m.body, form: m.form, opaqueAt: opaqueOfBinary}
	var err error
	if m.form == codec.JSON {
		f.opaqueAt, err = only(head, strconv.Itoa(opaqueBase), err)
	}
	f.bornAt, err = only(head, born, err)
	f.keyAt, err = only(head, keyMarker, err)
	return f, err
}

// only finds the one place where text stands.
func only(b []byte, text string, err error) (int, error) {
	if err == nil && bytes.Count(b, []byte(text)) != 1 {
		err = fmt.Errorf("bench: the encoded message has %q %d times, once was expected", text, bytes.Count(b, []byte(text)))
	}
	return bytes.Index(b, []byte(text)), err
}

func (f *frame) size() int { return len(f.head) + len(f.body) }

// append appends the frame with slot as opaque, born as time, and serial in the message key.
func (f *frame) append(dst []byte, slot int32, born *stamp, serial uint32) []byte {
	start := len(dst)
	dst = append(append(dst, f.head...), f.body...)
	head := dst[start : start+len(f.head)]
	if f.form == codec.Binary {
		binary.BigEndian.PutUint32(head[f.opaqueAt:], uint32(opaqueBase+slot))
	} else {
		putDigits(head[f.opaqueAt+1:f.opaqueAt+10], uint64(slot)) // the first digit is the base's
	}
	copy(head[f.bornAt:], born.text[:])
	putHex(head[f.keyAt:f.keyAt+keyDigits], serial)
	return dst
}

// stamp is a time in milliseconds as text, made anew only when the millisecond changes.
type stamp struct {
	ms   int64
	text [bornDigits]byte
}

func (s *stamp) set(ms int64) {
	if ms != s.ms {
		s.ms = ms
		putDigits(s.text[:], uint64(ms))
	}
}

// putDigits writes n in decimal over all of b, with leading zeros.
func putDigits(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

func putHex(b []byte, n uint32) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789ABCDEF"[n&15]
		n >>= 4
	}
}

// payload is size bytes that do not compress, the same each time.
func payload(size int) []byte {
	b := make([]byte, size)
	rng := rand.NewPCG(1, 2)
	for i := range b {
		b[i] = byte(rng.Uint64())
	}
	return b
}
