package codec

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// StoredAnswers writes the answers to stored sends as AppendSendResponse does, for the one broker it was made for: what is the same in
// all of them is kept as bytes. Any goroutine may use it.
type StoredAnswers struct {
	host         netip.AddrPort
	json, packed []byte // the frame from its beginning to the offset in the message id

	// The texts below as arrays: those are copied without a call.
	queue  [len(storedQueue)]byte
	key    [len(storedKey)]byte
	opaque [len(storedOpaque)]byte
	end    [len(storedEnd)]byte
}

// NewStoredAnswers is for the broker whose messages have host in their ids.
func NewStoredAnswers(host netip.AddrPort) *StoredAnswers {
	whole := SendResponse{StoreHost: host}
	return &StoredAnswers{
		host: host, json: headOf(JSON, &whole), packed: headOf(Binary, &whole),
		queue:  [len(storedQueue)]byte([]byte(storedQueue)),
		key:    [len(storedKey)]byte([]byte(storedKey)),
		opaque: [len(storedOpaque)]byte([]byte(storedOpaque)),
		end:    [len(storedEnd)]byte([]byte(storedEnd)),
	}
}

func headOf(s Serialize, r *SendResponse) []byte {
	id := AppendMessageID(nil, r.StoreHost, 0)
	frame := AppendSendResponse(nil, s, 0, Success, r)
	at := bytes.Index(frame, id)
	return slices.Clip(frame[:at+len(id)-offsetDigits])
}

// What stands behind the offset in a JSON answer. The queue's number takes the place of the zero.
const (
	storedQueue  = `","queueId":"0","queueOffset":"`
	queueDigit   = len(`","queueId":"`)
	storedKey    = `","transactionId":"`
	storedOpaque = `"},"flag":1,"language":"GO","opaque":`
	storedEnd    = `,"serializeTypeCurrentRPC":"JSON","version":513}`
)

// The same of a packed one, in which the length of a value stands before it.
const (
	packedQueue = "\x00\x07queueId\x00\x00\x00\x010\x00\x0bqueueOffset\x00\x00\x00\x00"
	packedDigit = len("\x00\x07queueId\x00\x00\x00\x01")
	packedKey   = "\x00\x0dtransactionId\x00\x00\x00\x00"
	packedExt   = frameHead + binaryFixed - 4 // where the length of extFields stands in the frame
)

const (
	offsetDigits = 16  // of a message id
	longestKey   = 256 // of an answer that is written here
	// storedRoom is more than any answer has behind its head, in either form.
	storedRoom = offsetDigits + len(storedQueue) + 2*decimalRoom + len(storedKey) + longestKey + len(storedOpaque) + len(storedEnd)
)

// Append appends what AppendSendResponse would with r.StoreHost being the broker's; r's own is not looked at. It allocates nothing if
// dst has room for half a kilobyte.
func (a *StoredAnswers) Append(dst []byte, s Serialize, opaque int32, code ResponseCode, r *SendResponse) []byte {
	usual := code == Success && r.Remark == "" && len(r.BatchOffsets) == 0 && uint32(r.QueueID) <= 9 && r.QueueOffset >= 0 &&
		len(r.TransactionID) <= longestKey
	switch {
	case usual && s == Binary:
		return a.appendPacked(dst, opaque, r)
	case usual && opaque >= 0 && plainJSON(r.TransactionID):
		return a.appendJSON(dst, opaque, r)
	}
	full := *r
	full.StoreHost = a.host
	return AppendSendResponse(dst, s, opaque, code, &full)
}

func (a *StoredAnswers) appendJSON(dst []byte, opaque int32, r *SendResponse) []byte {
	start := len(dst)
	dst = slices.Grow(dst, len(a.json)+storedRoom)
	dst = append(dst, a.json...)
	b := dst[len(dst) : len(dst)+storedRoom]
	putHex(b, uint64(r.PhysicalOffset))
	n := offsetDigits
	*(*[len(storedQueue)]byte)(b[n:]) = a.queue
	b[n+queueDigit] = '0' + byte(r.QueueID)
	n += len(a.queue)
	n += putDecimal(b[n:], uint64(r.QueueOffset))
	if len(r.TransactionID) > 0 {
		*(*[len(storedKey)]byte)(b[n:]) = a.key
		n += len(a.key)
		n += copy(b[n:], r.TransactionID)
	}
	*(*[len(storedOpaque)]byte)(b[n:]) = a.opaque
	n += len(a.opaque)
	n += putDecimal(b[n:], uint64(opaque))
	*(*[len(storedEnd)]byte)(b[n:]) = a.end
	n += len(a.end)
	dst = dst[:len(dst)+n]
	endHeader(dst, start, JSON, 0)
	return dst
}

func (a *StoredAnswers) appendPacked(dst []byte, opaque int32, r *SendResponse) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = slices.Grow(dst, len(a.packed)+storedRoom)
	dst = append(dst, a.packed...)
	b := dst[len(dst) : len(dst)+storedRoom]
	putHex(b, uint64(r.PhysicalOffset))
	n := offsetDigits
	n += copy(b[n:], packedQueue)
	b[n-len(packedQueue)+packedDigit] += byte(r.QueueID)
	digits := putDecimal(b[n:], uint64(r.QueueOffset))
	be.PutUint32(b[n-4:], uint32(digits))
	n += digits
	if size := len(r.TransactionID); size > 0 {
		n += copy(b[n:], packedKey)
		be.PutUint32(b[n-4:], uint32(size))
		n += copy(b[n:], r.TransactionID)
	}
	dst = dst[:len(dst)+n]
	frame := dst[start:]
	be.PutUint32(opaqueOf(frame[frameHead:]), uint32(opaque))
	be.PutUint32(frame[packedExt:], uint32(len(frame)-packedExt-4))
	endHeader(dst, start, Binary, 0)
	return dst
}
