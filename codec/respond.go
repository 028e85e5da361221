package codec

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// SendResponse is what a stored message's sender is told. The same fields go
// with Success, FlushDiskTimeout, SlaveNotAvailable and FlushSlaveTimeout: in
// all four the message is stored.
type SendResponse struct {
	StoreHost      netip.AddrPort // with PhysicalOffset it makes the message id
	PhysicalOffset int64
	BatchOffsets   []int64 // of a batch: one physical offset per message; the id is then a comma list
	TransactionID  []byte  // the client's UNIQ_KEY; empty is left out
	QueueID        int32
	QueueOffset    int64 // of a batch: the first message's
	Remark         string
}

// PullResponse is the header of a pull's answer, whatever its code.
type PullResponse struct {
	SuggestWhichBrokerID, NextBeginOffset, MinOffset, MaxOffset int64
	Remark                                                      string // the store status, "FOUND" with Success
}

// DefaultRegion is the MSG_REGION every broker without a region of its own names.
const DefaultRegion = "DefaultRegion"

// AppendSendResponse appends the whole frame that answers a send. It allocates
// nothing if dst has room. StoredAnswers is quicker.
func AppendSendResponse(dst []byte, s Serialize, opaque int32, code ResponseCode, r *SendResponse) []byte {
	w := beginResponse(dst, s, code, opaque, r.Remark)
	w.text("MSG_REGION", DefaultRegion)
	w.text("TRACE_ON", "true")
	w.openField("msgId")
	w.messageIDs(r)
	w.closeField()
	w.int("queueId", int64(r.QueueID))
	w.int("queueOffset", r.QueueOffset)
	if len(r.TransactionID) > 0 {
		w.bytes("transactionId", r.TransactionID)
	}
	return w.end(opaque, r.Remark, 0)
}

// AppendPullResponse appends the head of the frame that answers a pull: the
// length field counts bodyLen bytes, which the caller sends right behind it.
// It allocates nothing if dst has room.
func AppendPullResponse(dst []byte, s Serialize, opaque int32, code ResponseCode, r *PullResponse, bodyLen int) []byte {
	w := beginResponse(dst, s, code, opaque, r.Remark)
	w.int("suggestWhichBrokerId", r.SuggestWhichBrokerID)
	w.int("nextBeginOffset", r.NextBeginOffset)
	w.int("minOffset", r.MinOffset)
	w.int("maxOffset", r.MaxOffset)
	return w.end(opaque, r.Remark, bodyLen)
}

// AppendResponse appends a whole answer of just a code and a remark ("" for
// none). It allocates nothing if dst has room.
func AppendResponse(dst []byte, s Serialize, opaque int32, code ResponseCode, remark string) []byte {
	w := beginResponse(dst, s, code, opaque, remark)
	return w.end(opaque, remark, 0)
}

// AppendOffsetResponse appends a whole answer with one number: name is the
// field the request's code asks for, "offset" or "timestamp". It allocates
// nothing if dst has room.
func AppendOffsetResponse(dst []byte, s Serialize, opaque int32, code ResponseCode, name string, value int64, remark string) []byte {
	w := beginResponse(dst, s, code, opaque, remark)
	w.int(name, value)
	return w.end(opaque, remark, 0)
}

// responseWriter writes one response frame field by field, in either form.
type responseWriter struct {
	dst   []byte
	start int // of the frame
	ext   int // packed: where the extFields length stands
	value int // packed: where the open field's length stands
	s     Serialize
	first bool
}

func beginResponse(dst []byte, s Serialize, code ResponseCode, opaque int32, remark string) responseWriter {
	w := responseWriter{start: len(dst), s: s, first: true}
	dst = beginFrame(dst)
	if s == Binary {
		dst = appendBinaryFixed(dst, code, LanguageGo, VersionV5_5_0, opaque, flagResponse)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(remark)))
		dst = append(dst, remark...)
		w.ext = len(dst)
		w.dst = append(dst, 0, 0, 0, 0)
		return w
	}
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	w.dst = append(dst, `,"extFields":{`...)
	return w
}

// end closes the header and fills in the frame's lengths.
func (w *responseWriter) end(opaque int32, remark string, bodyLen int) []byte {
	if w.s == Binary {
		binary.BigEndian.PutUint32(w.dst[w.ext:], uint32(len(w.dst)-w.ext-4))
		endHeader(w.dst, w.start, w.s, bodyLen)
		return w.dst
	}
	w.dst = append(w.dst, `},"flag":1,"language":"GO","opaque":`...)
	w.dst = strconv.AppendInt(w.dst, int64(opaque), 10)
	if remark != "" {
		w.dst = append(w.dst, `,"remark":`...)
		w.dst = appendJSONString(w.dst, remark)
	}
	w.dst = append(w.dst, `,"serializeTypeCurrentRPC":"JSON","version":513}`...)
	endHeader(w.dst, w.start, w.s, bodyLen)
	return w.dst
}

// openField begins a field whose value needs no escaping in either form.
func (w *responseWriter) openField(name string) {
	if w.s == Binary {
		w.dst = binary.BigEndian.AppendUint16(w.dst, uint16(len(name)))
		w.dst = append(w.dst, name...)
		w.value = len(w.dst)
		w.dst = append(w.dst, 0, 0, 0, 0)
		return
	}
	w.jsonName(name)
	w.dst = append(w.dst, '"')
}

func (w *responseWriter) closeField() {
	if w.s == Binary {
		binary.BigEndian.PutUint32(w.dst[w.value:], uint32(len(w.dst)-w.value-4))
		return
	}
	w.dst = append(w.dst, '"')
}

func (w *responseWriter) jsonName(name string) {
	if !w.first {
		w.dst = append(w.dst, ',')
	}
	w.first = false
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, '"', ':')
}

func (w *responseWriter) text(name, plain string) {
	w.openField(name)
	w.dst = append(w.dst, plain...)
	w.closeField()
}

func (w *responseWriter) int(name string, value int64) {
	w.openField(name)
	w.dst = strconv.AppendInt(w.dst, value, 10)
	w.closeField()
}

// bytes writes a client's own text, which may hold anything.
func (w *responseWriter) bytes(name string, value []byte) {
	if w.s == Binary {
		w.openField(name)
		w.dst = append(w.dst, value...)
		w.closeField()
		return
	}
	w.jsonName(name)
	w.dst = appendJSONString(w.dst, value)
}

func (w *responseWriter) messageIDs(r *SendResponse) {
	if len(r.BatchOffsets) == 0 {
		w.dst = AppendMessageID(w.dst, r.StoreHost, r.PhysicalOffset)
		return
	}
	for i, offset := range r.BatchOffsets {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = AppendMessageID(w.dst, r.StoreHost, offset)
	}
}
