package codec

import "fmt"

// SendHeader is the header of a send: codes 10 (long names), 310 and 320
// (one-letter names), in both header forms. Decode allocates nothing once the
// value is warm; use one per loop. Slices alias the frame, or where JSON escapes
// had to be resolved the value's own scratch or the View, so they live until the
// frame dies, the View reads another one, or the next Decode, whichever is first.
type SendHeader struct {
	ProducerGroup, Topic, DefaultTopic, Properties []byte
	DefaultTopicQueueNums                          int32
	QueueID                                        int32 // negative: the broker picks
	SysFlag, Flag                                  int32
	ReconsumeTimes                                 int32
	MaxReconsumeTimes                              int32 // -1 if absent
	BornTimestamp                                  int64 // ms since 1970
	UnitMode, Batch                                bool  // Batch is always true for code 320
	HasProperties                                  bool  // the field was there, be it empty
	Marks                                          Marks // of Properties

	scratch []byte
}

// Decode reads the extFields of v in one pass. Only the topic must be there:
// what else is absent is zero, or as the field's comment says. Errors are
// ErrField, with the field's name and value.
func (h *SendHeader) Decode(v *View) error {
	if v.shaped && v.shape.send.known && v.Code == v.shape.code && h.decodeLike(v) {
		return nil
	}
	return h.decodeFields(v)
}

// shortNames says which sends have fields with names of one letter.
func shortNames(code RequestCode) bool {
	return code == ReqSendMessageV2 || code == ReqSendBatchMessage || code == ReqSendReplyMessageV2
}

func isSend(code RequestCode) bool { return code == ReqSendMessage || shortNames(code) }

// decodeFields is Decode for a header of any shape.
func (h *SendHeader) decodeFields(v *View) error {
	*h = SendHeader{MaxReconsumeTimes: -1, Batch: v.Code == ReqSendBatchMessage, scratch: roomFor(h.scratch, v.ext)}
	short := shortNames(v.Code)
	if v.count >= 0 {
		for i := range v.index[:v.count] {
			name, value := v.index[i].tokens(v.header)
			if short && len(name.raw) == 1 && len(value.raw) == 1 && h.setDigit(name.raw[0], value.raw[0]) {
				continue
			}
			if err := h.take(name, value, short); err != nil {
				return err
			}
		}
	} else if err := h.takeAll(v.fields(), short); err != nil {
		return err
	}
	if len(h.Topic) == 0 {
		return missing("topic")
	}
	h.Marks = ReadMarks(h.Properties)
	return nil
}

func (h *SendHeader) takeAll(r fieldReader, short bool) error {
	for {
		name, value, ok := r.next()
		if !ok {
			return nil
		}
		if err := h.take(name, value, short); err != nil {
			return err
		}
	}
}

func (h *SendHeader) take(name, value token, short bool) error {
	if value.kind == tokenNull {
		return nil
	}
	return h.set(sendField(name.raw, short), value)
}

// sendField is the one-letter name of a field, 0 for one that is of no use here.
func sendField(name []byte, short bool) byte {
	if short {
		if len(name) != 1 || name[0] < 'a' || name[0] > 'm' {
			return 0
		}
		return name[0]
	}
	switch string(name) {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	}
	return 0
}

func (h *SendHeader) set(field byte, value token) error {
	ok := true
	switch field {
	case 'a':
		h.ProducerGroup = h.text(value)
	case 'b':
		h.Topic = h.text(value)
	case 'c':
		h.DefaultTopic = h.text(value)
	case 'i':
		h.Properties, h.HasProperties = h.text(value), true
	case 'd':
		h.DefaultTopicQueueNums, ok = value.int32()
	case 'e':
		h.QueueID, ok = value.int32()
	case 'f':
		h.SysFlag, ok = value.int32()
	case 'g':
		h.BornTimestamp, ok = value.int64()
	case 'h':
		h.Flag, ok = value.int32()
	case 'j':
		h.ReconsumeTimes, ok = value.int32()
	case 'l':
		h.MaxReconsumeTimes, ok = value.int32()
	case 'k':
		h.UnitMode = value.bool()
	case 'm':
		h.Batch = h.Batch || value.bool()
	}
	if !ok {
		return badNumber(sendFieldName(field), value)
	}
	return nil
}

// setDigit takes a number of one digit, which most are. false: it is something else.
func (h *SendHeader) setDigit(field, digit byte) bool {
	n := int32(digit) - '0'
	if n < 0 || n > 9 {
		return false
	}
	switch field {
	case 'd':
		h.DefaultTopicQueueNums = n
	case 'e':
		h.QueueID = n
	case 'f':
		h.SysFlag = n
	case 'h':
		h.Flag = n
	case 'j':
		h.ReconsumeTimes = n
	case 'l':
		h.MaxReconsumeTimes = n
	default:
		return false
	}
	return true
}

func sendFieldName(field byte) string {
	switch field {
	case 'd':
		return "defaultTopicQueueNums"
	case 'e':
		return "queueId"
	case 'f':
		return "sysFlag"
	case 'g':
		return "bornTimestamp"
	case 'h':
		return "flag"
	case 'j':
		return "reconsumeTimes"
	}
	return "maxReconsumeTimes"
}

func (h *SendHeader) text(value token) []byte {
	if !value.escaped {
		return value.raw
	}
	var b []byte
	b, h.scratch = value.bytes(h.scratch)
	return b
}

// roomFor is scratch, emptied, with room for everything ext could unescape to and a word more (see moveRun).
func roomFor(scratch, ext []byte) []byte {
	if cap(scratch) < len(ext)+8 {
		return make([]byte, 0, len(ext)+256)
	}
	return scratch[:0]
}

// bytes is the token's text: a slice of the frame, or of scratch if there were
// escapes to resolve. scratch must have room; see roomFor.
func (t token) bytes(scratch []byte) (text, rest []byte) {
	if !t.escaped {
		return t.raw, scratch
	}
	n := len(scratch)
	scratch = appendUnescaped(scratch, t.raw)
	return scratch[n:len(scratch):len(scratch)], scratch
}

func (t token) int32() (int32, bool) {
	n, ok := parseInt(t.raw, 32)
	return int32(n), ok
}

func (t token) int64() (int64, bool) { return parseInt(t.raw, 64) }

// bool is Java's rule: "true" in any case, anything else is false.
func (t token) bool() bool {
	return len(t.raw) == 4 && t.raw[0]|0x20 == 't' && t.raw[1]|0x20 == 'r' && t.raw[2]|0x20 == 'u' && t.raw[3]|0x20 == 'e'
}

func missing(name string) error {
	return fmt.Errorf("%w: %s is missing", ErrField, name)
}

func badNumber(name string, value token) error {
	return fmt.Errorf("%w: %s is %.40q, not a number of its size", ErrField, name, value.raw)
}
