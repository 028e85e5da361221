package codec

import (
	"fmt"
	"strings"
)

// FieldString is the text of a header field that must be there and not be
// empty. The error is ErrField and names the field.
func FieldString(ext map[string]string, name string) (string, error) {
	if v := ext[name]; v != "" {
		return v, nil
	}
	return "", missing(name)
}

// FieldInt32 is the number of a header field that must be there. The error is
// ErrField and names field and value.
func FieldInt32(ext map[string]string, name string) (int32, error) {
	n, err := fieldInt(ext, name, 32)
	return int32(n), err
}

// FieldInt64 is the number of a header field that must be there. The error is
// ErrField and names field and value.
func FieldInt64(ext map[string]string, name string) (int64, error) {
	return fieldInt(ext, name, 64)
}

// FieldInt64Or is FieldInt64 with a value for an absent field; one that is
// there and is no number is an error all the same.
func FieldInt64Or(ext map[string]string, name string, absent int64) (int64, error) {
	if ext[name] == "" {
		return absent, nil
	}
	return fieldInt(ext, name, 64)
}

// FieldBool is Java's rule: "true" in any case, anything else is false.
func FieldBool(ext map[string]string, name string) bool {
	return strings.EqualFold(ext[name], "true")
}

func fieldInt(ext map[string]string, name string, bits uint) (int64, error) {
	text, ok := ext[name]
	if !ok {
		return 0, missing(name)
	}
	n, ok := parseInt([]byte(text), bits)
	if !ok {
		return 0, fmt.Errorf("%w: %s is %.40q, not a number of %d bits", ErrField, name, text, bits)
	}
	return n, nil
}
