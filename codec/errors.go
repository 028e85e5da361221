package codec

import "errors"

// Frame and header errors.
var (
	// ErrFrame marks bytes that are no remoting frame: wrong lengths, an unknown header form, or a header that does not parse.
	ErrFrame = errors.New("malformed frame")
	// ErrFrameTooLarge marks a frame whose length field is above MaxFrameSize.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrField marks a header field that is missing or holds a value that is not of its type. The text names the field and the value.
	ErrField = errors.New("bad header field")
)

// Record errors. Decode returns each of them bare or wrapped; use errors.Is.
var (
	// ErrRecordShort says that the bytes so far could be the beginning of a good record.
	ErrRecordShort = errors.New("record is cut short")
	// ErrRecordEmpty says that nothing is written here: the size field is 0.
	ErrRecordEmpty = errors.New("no record: size is zero")
	// ErrRecordBlank says that the rest of the segment is filler; the returned size is the filler's length.
	ErrRecordBlank = errors.New("end-of-segment filler")
	// ErrRecordCorrupt says that these bytes cannot be a record, whatever follows them.
	ErrRecordCorrupt = errors.New("corrupt record")
)

// Errors of the smaller formats.
var (
	// ErrBatch marks a batch body whose rows do not fit their lengths.
	ErrBatch = errors.New("malformed batch body")
	// ErrMessageID marks a text that is no offset message id.
	ErrMessageID = errors.New("malformed message id")
	// ErrHAShort says that a replication frame is not complete yet.
	ErrHAShort = errors.New("replication frame is cut short")
	// ErrHAFrame marks a replication header that cannot be right.
	ErrHAFrame = errors.New("malformed replication frame")
	// ErrJSON marks a body that is no JSON in any of the dialects Java writes.
	ErrJSON = errors.New("malformed JSON")
)
