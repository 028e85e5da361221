package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"slices"
)

// Magic numbers of a commit-log entry (Apache class MessageVersion and CommitLog).
const (
	MagicV1    int32 = -626843481 // 0xDAA320A7: topic length in one byte
	MagicV2    int32 = -626843477 // 0xDAA320AB: topic length in two bytes; Apache 5.1 and later
	MagicBlank int32 = -875286124 // 0xCBD43194: filler up to the segment's end
)

// Bits of a record's SysFlag (Apache class MessageSysFlag).
const (
	SysCompressed          int32 = 0x1
	SysMultiTags           int32 = 0x2
	SysTransactionMask     int32 = 0xC
	SysTransactionNone     int32 = 0x0
	SysTransactionPrepared int32 = 0x4
	SysTransactionCommit   int32 = 0x8
	SysTransactionRollback int32 = 0xC
	SysBornV6              int32 = 0x10
	SysStoreV6             int32 = 0x20
	SysNeedUnwrap          int32 = 0x40
	SysInnerBatch          int32 = 0x80
	SysCompressionMask     int32 = 0x700 // 0 old zlib, 0x100 LZ4, 0x200 ZSTD, 0x300 zlib
)

// Limits of a record.
const (
	// MaxRecordSize bounds a record's size field; a larger one is corrupt. It
	// leaves room for brokers configured with a large maxMessageSize.
	MaxRecordSize = 64 << 20
	// MinRecordSize is a V1 record without body, topic and properties, both hosts IPv4.
	MinRecordSize = 91
	// MaxTopicLen and MaxPropertiesLen are what the length fields hold: V1 topics
	// end at 127 bytes, longer ones make the record V2.
	MaxTopicLen      = math.MaxInt16
	MaxPropertiesLen = math.MaxInt16
	// BlankSize is what a filler needs at least: its size and its magic.
	BlankSize = 8

	maxTopicV1 = math.MaxInt8
)

// Offsets of fields that stand before the hosts, and therefore never move.
const (
	recMagic       = 4
	recBodyCRC     = 8
	recQueueID     = 12
	recFlag        = 16
	recQueueOffset = 20
	recPhysical    = 28
	recSysFlag     = 36
	recBornTime    = 40
	recBornHost    = 48
)

// Record is one message as the commit log holds it. Body, Topic and
// Properties of a decoded record alias the bytes it was decoded from.
type Record struct {
	Magic                     int32
	BodyCRC                   uint32 // CRC-32 (IEEE) of Body with the top bit cleared
	QueueID, Flag             int32
	QueueOffset               int64
	PhysicalOffset            int64
	SysFlag                   int32
	BornTimestamp             int64 // ms since 1970
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // ms since 1970
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body, Topic, Properties   []byte
	MoreProperties            []byte // what Append writes behind Properties; a decoded record has none
}

// Size is the number of bytes Append writes.
func (r *Record) Size() int {
	size := MinRecordSize + len(r.Body) + len(r.Topic) + len(r.Properties) + len(r.MoreProperties)
	if r.isV2() {
		size++
	}
	if r.BornHost.Addr().Is6() {
		size += 12
	}
	if r.StoreHost.Addr().Is6() {
		size += 12
	}
	return size
}

// Append appends the record. BodyCRC and the IPv6 bits of SysFlag are computed,
// not taken from r; a topic above 127 bytes, or Magic == MagicV2, makes it V2.
// An address kept as IPv4-in-IPv6 is written as IPv6 (callers unmap it), an
// invalid one as 0.0.0.0. The caller has seen to it that topic and properties
// (with MoreProperties) fit MaxTopicLen and MaxPropertiesLen.
func (r *Record) Append(dst []byte) []byte {
	be := binary.BigEndian
	size, n := r.Size(), len(dst)
	dst = slices.Grow(dst, size)[:n+size]
	b := dst[n:]
	magic, sysFlag := MagicV1, r.SysFlag&^(SysBornV6|SysStoreV6)
	if r.isV2() {
		magic = MagicV2
	}
	storeTime := recBornHost + putHost(b[recBornHost:], r.BornHost)
	if storeTime > recBornHost+hostV4 {
		sysFlag |= SysBornV6
	}
	reconsume := storeTime + 8 + putHost(b[storeTime+8:], r.StoreHost)
	if reconsume > storeTime+8+hostV4 {
		sysFlag |= SysStoreV6
	}
	head := b[:recBornHost]
	be.PutUint32(head, uint32(size))
	be.PutUint32(head[recMagic:], uint32(magic))
	be.PutUint32(head[recBodyCRC:], BodyCRC(r.Body))
	be.PutUint32(head[recQueueID:], uint32(r.QueueID))
	be.PutUint32(head[recFlag:], uint32(r.Flag))
	be.PutUint64(head[recQueueOffset:], uint64(r.QueueOffset))
	be.PutUint64(head[recPhysical:], uint64(r.PhysicalOffset))
	be.PutUint32(head[recSysFlag:], uint32(sysFlag))
	be.PutUint64(head[recBornTime:], uint64(r.BornTimestamp))
	be.PutUint64(b[storeTime:], uint64(r.StoreTimestamp))
	r.putRest(b[reconsume:], magic == MagicV2)
	return dst
}

// putRest writes what comes behind the hosts.
func (r *Record) putRest(b []byte, v2 bool) {
	be := binary.BigEndian
	be.PutUint32(b, uint32(r.ReconsumeTimes))
	be.PutUint64(b[4:], uint64(r.PreparedTransactionOffset))
	be.PutUint32(b[12:], uint32(len(r.Body)))
	b = b[16+copy(b[16:], r.Body):]
	if v2 {
		be.PutUint16(b, uint16(len(r.Topic)))
		b = b[2:]
	} else {
		b[0] = byte(len(r.Topic))
		b = b[1:]
	}
	b = b[copy(b, r.Topic):]
	be.PutUint16(b, uint16(len(r.Properties)+len(r.MoreProperties)))
	b = b[2:]
	copy(b[copy(b, r.Properties):], r.MoreProperties)
}

func (r *Record) isV2() bool { return r.Magic == MagicV2 || len(r.Topic) > maxTopicV1 }

// BodyCRC is the checksum a record carries of its body.
func BodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & math.MaxInt32 }

func appendHost(dst []byte, host netip.AddrPort) []byte {
	dst = appendIP(dst, host.Addr())
	return binary.BigEndian.AppendUint32(dst, uint32(host.Port()))
}

// hostV4 is what an IPv4 address takes with its port.
const hostV4 = 8

// putHost writes an address and its port to the start of b and returns how many bytes that took.
func putHost(b []byte, host netip.AddrPort) int {
	if ip := host.Addr(); ip.Is4() {
		v4 := ip.As4()
		copy(b[:4], v4[:])
		binary.BigEndian.PutUint32(b[4:], uint32(host.Port()))
		return hostV4
	}
	return len(appendHost(b[:0], host))
}

// appendIP writes 16 bytes for an IPv6 address, 4 for anything else.
func appendIP(dst []byte, ip netip.Addr) []byte {
	if ip.Is6() {
		b := ip.As16()
		return append(dst, b[:]...)
	}
	if !ip.IsValid() {
		return append(dst, 0, 0, 0, 0)
	}
	b := ip.As4()
	return append(dst, b[:]...)
}

// Decode reads the record at the start of b, which may be longer, and checks
// its structure and the CRC of its body. size is the record's length; with
// ErrRecordBlank it is the filler's. The other errors are ErrRecordShort,
// ErrRecordEmpty and ErrRecordCorrupt; r then holds nothing of use. Decode
// never reads beyond b and allocates only for errors.
func (r *Record) Decode(b []byte) (size int, err error) {
	if size, err = r.DecodeUnchecked(b); err != nil {
		return size, err
	}
	if err = r.checkBody(); err != nil {
		return 0, err
	}
	return size, nil
}

// DecodePlace is Decode for those who need to know only where a record belongs: it sets BodyCRC, QueueID, QueueOffset, PhysicalOffset,
// SysFlag, StoreTimestamp, Body, Topic and Properties, and leaves all other fields as they were. full asks for the check of the
// body's CRC.
func (r *Record) DecodePlace(b []byte, full bool) (size int, err error) {
	l, ok := usualLayout(b)
	if !ok {
		if l, err = layoutOf(b); err != nil {
			return l.size, err
		}
	}
	be := binary.BigEndian
	r.BodyCRC = be.Uint32(b[recBodyCRC:])
	r.QueueID = int32(be.Uint32(b[recQueueID:]))
	r.QueueOffset = int64(be.Uint64(b[recQueueOffset:]))
	r.PhysicalOffset = int64(be.Uint64(b[recPhysical:]))
	r.SysFlag = int32(be.Uint32(b[recSysFlag:]))
	r.StoreTimestamp = int64(be.Uint64(b[l.storeTime:]))
	r.Body = b[l.body:l.bodyEnd:l.bodyEnd]
	r.Topic = b[l.topic:l.topicEnd:l.topicEnd]
	r.Properties = b[l.topicEnd+2 : l.size : l.size]
	if full {
		err = r.checkBody()
	}
	if err != nil {
		return 0, err
	}
	return l.size, nil
}

func (r *Record) checkBody() error {
	if len(r.Body) > 0 && BodyCRC(r.Body) != r.BodyCRC {
		return fmt.Errorf("%w: body CRC is %d, record says %d", ErrRecordCorrupt, BodyCRC(r.Body), r.BodyCRC)
	}
	return nil
}

// DecodeUnchecked is Decode without the CRC of the body.
func (r *Record) DecodeUnchecked(b []byte) (size int, err error) {
	l, err := layoutOf(b)
	if err != nil {
		return l.size, err
	}
	be := binary.BigEndian
	*r = Record{
		Magic:          int32(be.Uint32(b[recMagic:])),
		BodyCRC:        be.Uint32(b[recBodyCRC:]),
		QueueID:        int32(be.Uint32(b[recQueueID:])),
		Flag:           int32(be.Uint32(b[recFlag:])),
		QueueOffset:    int64(be.Uint64(b[recQueueOffset:])),
		PhysicalOffset: int64(be.Uint64(b[recPhysical:])),
		SysFlag:        int32(be.Uint32(b[recSysFlag:])),
		BornTimestamp:  int64(be.Uint64(b[recBornTime:])),
		BornHost:       hostAt(b[recBornHost:l.storeTime]),
		StoreTimestamp: int64(be.Uint64(b[l.storeTime:])),
		StoreHost:      hostAt(b[l.storeTime+8 : l.reconsume]),
		ReconsumeTimes: int32(be.Uint32(b[l.reconsume:])),

		PreparedTransactionOffset: int64(be.Uint64(b[l.reconsume+4:])),

		Body:       b[l.body:l.bodyEnd:l.bodyEnd],
		Topic:      b[l.topic:l.topicEnd:l.topicEnd],
		Properties: b[l.topicEnd+2 : l.size : l.size],
	}
	return l.size, nil
}

// hostAt reads an address and a port from 8 or 20 bytes. A port beyond 16 bits,
// which no peer can have had, loses its upper half.
func hostAt(b []byte) netip.AddrPort {
	port := uint16(binary.BigEndian.Uint32(b[len(b)-4:]))
	if len(b) == 8 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), port)
}

// layout holds where the parts of one record lie.
type layout struct {
	size                 int
	storeTime, reconsume int
	body, bodyEnd        int
	topic, topicEnd      int
}

// usualLayout is layoutOf in one go, for whole and right records of the first version with addresses of 4 bytes; ok is false for all others.
func usualLayout(b []byte) (l layout, ok bool) {
	const storeTime, reconsume, body = recBornHost + 8, recBornHost + 24, recBornHost + 40
	be := binary.BigEndian
	if len(b) < MinRecordSize {
		return l, false
	}
	size, bodyLen := int(int32(be.Uint32(b))), int(int32(be.Uint32(b[body-4:])))
	if int32(be.Uint32(b[recMagic:])) != MagicV1 || be.Uint32(b[recSysFlag:])&uint32(SysBornV6|SysStoreV6) != 0 ||
		size < MinRecordSize || size > min(len(b), MaxRecordSize) || bodyLen < 0 || bodyLen > size-MinRecordSize {
		return l, false
	}
	bodyEnd := body + bodyLen
	topicEnd := bodyEnd + 1 + int(b[bodyEnd])
	if topicEnd-bodyEnd-1 > maxTopicV1 || topicEnd > size-2 {
		return l, false
	}
	if properties := int(be.Uint16(b[topicEnd:])); properties > MaxPropertiesLen || topicEnd+2+properties != size {
		return l, false
	}
	return layout{size: size, storeTime: storeTime, reconsume: reconsume, body: body, bodyEnd: bodyEnd, topic: bodyEnd + 1, topicEnd: topicEnd}, true
}

// layoutOf checks b from the front: each length against the size field as soon
// as it can be read, so that a bad record is told from a short one early.
func layoutOf(b []byte) (l layout, err error) {
	if len(b) < 4 {
		return l, ErrRecordShort
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	if size == 0 {
		return l, ErrRecordEmpty
	}
	if size < BlankSize {
		return l, corrupt("size", size)
	}
	if len(b) < 8 {
		return l, ErrRecordShort
	}
	topicLenSize := 1
	switch magic := int32(binary.BigEndian.Uint32(b[recMagic:])); magic {
	case MagicBlank:
		return layout{size: int(size)}, ErrRecordBlank
	case MagicV1:
	case MagicV2:
		topicLenSize = 2
	default:
		return l, fmt.Errorf("%w: magic %#08x", ErrRecordCorrupt, uint32(magic))
	}
	if size < MinRecordSize || size > MaxRecordSize {
		return l, corrupt("size", size)
	}
	l.size = int(size)
	if err = l.placeBody(b); err == nil {
		err = l.placeTopic(b, topicLenSize)
	}
	if err != nil {
		return layout{}, err
	}
	return l, nil
}

func (l *layout) placeBody(b []byte) error {
	if len(b) < recBornTime {
		return ErrRecordShort
	}
	sysFlag := int32(binary.BigEndian.Uint32(b[recSysFlag:]))
	l.storeTime = recBornHost + hostSize(sysFlag&SysBornV6)
	l.reconsume = l.storeTime + 8 + hostSize(sysFlag&SysStoreV6)
	l.body = l.reconsume + 16
	if l.size < l.body {
		return corrupt("size", int64(l.size))
	}
	if len(b) < l.body {
		return ErrRecordShort
	}
	bodyLen := int64(int32(binary.BigEndian.Uint32(b[l.body-4:])))
	if bodyLen < 0 || bodyLen > int64(l.size-l.body) {
		return corrupt("body length", bodyLen)
	}
	l.bodyEnd = l.body + int(bodyLen)
	return nil
}

func (l *layout) placeTopic(b []byte, lenSize int) error {
	l.topic = l.bodyEnd + lenSize
	if l.topic > l.size {
		return corrupt("size", int64(l.size))
	}
	if len(b) < l.topic {
		return ErrRecordShort
	}
	topicLen := int64(int8(b[l.bodyEnd]))
	if lenSize == 2 {
		topicLen = int64(int16(binary.BigEndian.Uint16(b[l.bodyEnd:])))
	}
	if topicLen < 0 || topicLen > int64(l.size-l.topic-2) {
		return corrupt("topic length", topicLen)
	}
	l.topicEnd = l.topic + int(topicLen)
	if len(b) < l.topicEnd+2 {
		return ErrRecordShort
	}
	propertiesLen := int64(int16(binary.BigEndian.Uint16(b[l.topicEnd:])))
	if propertiesLen != int64(l.size-l.topicEnd-2) {
		return corrupt("properties length", propertiesLen)
	}
	if len(b) < l.size {
		return ErrRecordShort
	}
	return nil
}

func hostSize(v6 int32) int {
	if v6 != 0 {
		return 20
	}
	return hostV4
}

func corrupt(field string, value int64) error {
	return fmt.Errorf("%w: %s %d", ErrRecordCorrupt, field, value)
}

// PatchRecord sets, in place, the three fields that are known only inside the
// append section. rec is one encoded record.
func PatchRecord(rec []byte, queueOffset, physicalOffset, storeTimestamp int64) {
	be := binary.BigEndian
	be.PutUint64(rec[recQueueOffset:], uint64(queueOffset))
	be.PutUint64(rec[recPhysical:], uint64(physicalOffset))
	sysFlag := int32(be.Uint32(rec[recSysFlag:]))
	be.PutUint64(rec[recBornHost+hostSize(sysFlag&SysBornV6):], uint64(storeTimestamp))
}

// AppendBlank appends the 8-byte head of a filler of n bytes, n ≥ BlankSize;
// the bytes behind it have no meaning.
func AppendBlank(dst []byte, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	magic := MagicBlank
	return binary.BigEndian.AppendUint32(dst, uint32(magic))
}
