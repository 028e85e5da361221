package codec

import (
	"encoding/binary"
	"fmt"
)

const (
	batchFixed = 20 // size, magic, CRC, flag, body length
	// MinBatchRow is a row without body and properties.
	MinBatchRow = batchFixed + 2
)

// BatchRow is one message of a batch send's body. Slices alias the body.
type BatchRow struct {
	Flag             int32
	Body, Properties []byte
}

// NextBatchRow cuts the first row off b, the body of a batch send or what is
// left of it; call it while len(b) > 0. The row's own magic and CRC have no
// meaning and are not looked at. The error is ErrBatch, also for an empty b.
func NextBatchRow(b []byte) (row BatchRow, rest []byte, err error) {
	if len(b) < MinBatchRow {
		return row, nil, fmt.Errorf("%w: %d bytes left, a row has at least %d", ErrBatch, len(b), MinBatchRow)
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	if size < MinBatchRow || size > int64(len(b)) {
		return row, nil, fmt.Errorf("%w: row of %d bytes with %d left", ErrBatch, size, len(b))
	}
	b, rest = b[:size:size], b[size:]
	bodyLen := int64(int32(binary.BigEndian.Uint32(b[16:])))
	if bodyLen < 0 || bodyLen > size-MinBatchRow {
		return row, nil, fmt.Errorf("%w: body of %d bytes in a row of %d", ErrBatch, bodyLen, size)
	}
	end := batchFixed + int(bodyLen)
	propertiesLen := int64(binary.BigEndian.Uint16(b[end:]))
	if propertiesLen > MaxPropertiesLen || int64(end)+2+propertiesLen != size {
		return row, nil, fmt.Errorf("%w: properties of %d bytes do not fill a row of %d", ErrBatch, propertiesLen, size)
	}
	row.Flag = int32(binary.BigEndian.Uint32(b[12:]))
	row.Body, row.Properties = b[batchFixed:end:end], b[end+2:]
	return row, rest, nil
}

// AppendBatchRow appends row as a client puts it into a batch send's body.
// Properties must be at most MaxPropertiesLen bytes.
func AppendBatchRow(dst []byte, row BatchRow) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(MinBatchRow+len(row.Body)+len(row.Properties)))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // magic and CRC
	dst = be.AppendUint32(dst, uint32(row.Flag))
	dst = be.AppendUint32(dst, uint32(len(row.Body)))
	dst = append(dst, row.Body...)
	dst = be.AppendUint16(dst, uint16(len(row.Properties)))
	return append(dst, row.Properties...)
}
