package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Serialize is the form of a frame's header: byte 4 of the frame.
type Serialize byte

const (
	// JSON is a header of JSON text, what all clients send by default.
	JSON Serialize = 0
	// Binary is the packed header RocketMQ calls "ROCKETMQ".
	Binary Serialize = 1
)

// MaxFrameSize is the largest value of a frame's length field that is taken.
const MaxFrameSize = 16 << 20

// Bits of a header's flag.
const (
	flagResponse int32 = 1 << 0
	flagOneway   int32 = 1 << 1
)

// Sizes of a frame's and of a packed header's fixed parts.
const (
	frameHead     = 8 // length 4, form 1, header length 3
	maxHeaderSize = 1<<24 - 1
	binaryFixed   = 21 // code 2, language 1, version 2, opaque 4, flag 4, remark length 4, ext length 4
)

// Command is one remoting command as a value, for the cold paths. Strings are
// copies; Body aliases the frame it was decoded from.
type Command struct {
	Code      int32
	Language  byte
	Version   int32
	Opaque    int32
	Flag      int32
	Remark    string // empty is absent
	Serialize Serialize
	Ext       map[string]string // nil and empty are the same
	Body      []byte
}

// IsResponse says whether the command answers a request of ours.
func (c *Command) IsResponse() bool { return c.Flag&flagResponse != 0 }

// IsOneway says whether the sender expects no answer.
func (c *Command) IsOneway() bool { return c.Flag&flagOneway != 0 }

// MarkResponse sets the response bit.
func (c *Command) MarkResponse() { c.Flag |= flagResponse }

// MarkOneway sets the one-way bit.
func (c *Command) MarkOneway() { c.Flag |= flagOneway }

// NewRequest is a request of ours, with a JSON header. The caller (or the
// client that sends it) sets Opaque. ext and body are kept, not copied.
func NewRequest(code RequestCode, ext map[string]string, body []byte) *Command {
	return &Command{Code: code, Language: LanguageGo, Version: VersionV5_5_0, Ext: ext, Body: body}
}

// Respond is an answer to v: its opaque, its header form, the response bit.
func Respond(v *View, code ResponseCode, remark string) *Command {
	return &Command{
		Code: code, Language: LanguageGo, Version: VersionV5_5_0,
		Opaque: v.Opaque, Flag: flagResponse, Remark: remark, Serialize: v.Serialize,
	}
}

// AppendFrame appends c as a whole frame, length field included. A packed
// header holds code and version in 16 bits and a field's name in 65535 bytes;
// what is above is cut, as in Java.
func AppendFrame(dst []byte, c *Command) []byte {
	start := len(dst)
	dst = beginFrame(dst)
	if c.Serialize == Binary {
		dst = appendBinaryHeader(dst, c)
	} else {
		dst = appendJSONHeader(dst, c)
	}
	endHeader(dst, start, c.Serialize, len(c.Body))
	return append(dst, c.Body...)
}

// DecodeFrame reads a whole frame, length field included. Body aliases frame;
// strings are copies. Unknown JSON fields are ignored, and a header field's
// value may be any scalar. Errors are ErrFrame and ErrFrameTooLarge.
func DecodeFrame(frame []byte) (Command, error) {
	var v View
	if err := v.Parse(frame); err != nil {
		return Command{}, err
	}
	return Command{
		Code: v.Code, Language: v.Language, Version: v.Version, Opaque: v.Opaque, Flag: v.Flag,
		Remark: v.Remark(), Serialize: v.Serialize, Ext: v.Ext(), Body: v.Body,
	}, nil
}

// beginFrame reserves length and header length.
func beginFrame(dst []byte) []byte { return append(dst, 0, 0, 0, 0, 0, 0, 0, 0) }

// endHeader fills in both lengths of the frame that began at start, whose
// header ends where dst ends and whose body will have bodyLen bytes.
func endHeader(dst []byte, start int, s Serialize, bodyLen int) {
	header := len(dst) - start - frameHead
	binary.BigEndian.PutUint32(dst[start:], uint32(4+header+bodyLen))
	binary.BigEndian.PutUint32(dst[start+4:], uint32(s)<<24|uint32(header)&maxHeaderSize)
}

func appendJSONHeader(dst []byte, c *Command) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	dst = append(dst, `,"extFields":{`...)
	for i, name := range slices.Sorted(maps.Keys(c.Ext)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, c.Ext[name])
	}
	dst = append(dst, `},"flag":`...)
	dst = strconv.AppendInt(dst, int64(c.Flag), 10)
	dst = append(dst, `,"language":"`...)
	dst = append(dst, LanguageName(c.Language)...)
	dst = append(dst, `","opaque":`...)
	dst = strconv.AppendInt(dst, int64(c.Opaque), 10)
	if c.Remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendJSONString(dst, c.Remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(c.Version), 10)
	return append(dst, '}')
}

func appendBinaryHeader(dst []byte, c *Command) []byte {
	dst = appendBinaryFixed(dst, c.Code, c.Language, c.Version, c.Opaque, c.Flag)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.Remark)))
	dst = append(dst, c.Remark...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, name := range slices.Sorted(maps.Keys(c.Ext)) {
		dst = appendBinaryField(dst, name, c.Ext[name])
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendBinaryFixed(dst []byte, code int32, language byte, version, opaque, flag int32) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = append(dst, language)
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(opaque))
	return binary.BigEndian.AppendUint32(dst, uint32(flag))
}

func appendBinaryField(dst []byte, name, value string) []byte {
	if len(name) > 1<<16-1 {
		name = name[:1<<16-1]
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// splitFrame checks a frame's lengths and cuts it into header and body.
func splitFrame(frame []byte) (s Serialize, header, body []byte, err error) {
	if len(frame) < frameHead {
		return 0, nil, nil, fmt.Errorf("%w: %d bytes, need at least %d", ErrFrame, len(frame), frameHead)
	}
	length := binary.BigEndian.Uint32(frame)
	if length > MaxFrameSize {
		return 0, nil, nil, fmt.Errorf("%w: length field %d, at most %d is taken", ErrFrameTooLarge, length, MaxFrameSize)
	}
	if int(length) != len(frame)-4 {
		return 0, nil, nil, fmt.Errorf("%w: length field %d, but %d bytes follow it", ErrFrame, length, len(frame)-4)
	}
	word := binary.BigEndian.Uint32(frame[4:])
	s, size := Serialize(word>>24), int(word&maxHeaderSize)
	if s > Binary {
		return 0, nil, nil, fmt.Errorf("%w: header form %d, known are 0 (JSON) and 1 (ROCKETMQ)", ErrFrame, s)
	}
	if size > len(frame)-frameHead {
		return 0, nil, nil, fmt.Errorf("%w: header of %d bytes in a frame with %d left", ErrFrame, size, len(frame)-frameHead)
	}
	return s, frame[frameHead : frameHead+size : frameHead+size], frame[frameHead+size:], nil
}
