package codec

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
)

// MessageID is the offset id of the record at off in the log of the broker at
// host: 32 upper-case hex digits, 56 with an IPv6 host.
func MessageID(host netip.AddrPort, off int64) string {
	return string(AppendMessageID(make([]byte, 0, 56), host, off))
}

// AppendMessageID appends MessageID(host, off).
func AppendMessageID(dst []byte, host netip.AddrPort, off int64) []byte {
	var raw [28]byte
	b := appendHost(raw[:0], host)
	b = binary.BigEndian.AppendUint64(b, uint64(off))
	n := len(dst)
	dst = slices.Grow(dst, 2*len(b))[:n+2*len(b)]
	for ; len(b) > 0; b, n = b[4:], n+8 {
		binary.LittleEndian.PutUint64(dst[n:], hexWord(binary.BigEndian.Uint32(b)))
	}
	return dst
}

// ParseMessageID is the reverse of MessageID; it takes lower-case digits too.
// The error is ErrMessageID.
func ParseMessageID(id string) (host netip.AddrPort, off int64, err error) {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) != 16 && len(b) != 28 {
		return host, 0, fmt.Errorf("%w: %.80q, want 32 or 56 hex digits", ErrMessageID, id)
	}
	n := len(b) - 8
	return hostAt(b[:n]), int64(binary.BigEndian.Uint64(b[n:])), nil
}
