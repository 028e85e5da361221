package settings

import (
	"errors"
	"fmt"
	"strings"
)

// Reasons why a setting is refused.
var (
	// ErrUnknownKey: neither tandem nor RocketMQ has a setting of this name.
	ErrUnknownKey = errors.New("unknown setting")
	// ErrBadValue: the value is not of the setting's kind, out of its range, or does not fit the other settings.
	ErrBadValue = errors.New("bad value")
	// ErrUnsupported: RocketMQ has the setting and tandem does not, and running without it would change what is safe
	// or how the store is written.
	ErrUnsupported = errors.New("unsupported setting")
	// ErrSyntax: a line of the file can't be read.
	ErrSyntax = errors.New("unreadable line")
)

// Error is one refused setting. It wraps one of the reasons above.
type Error struct {
	Key, Value string
	Origin     Origin
	Reason     error  // one of the sentinels
	Text       string // what is wrong and what would be valid
}

func (e *Error) Error() string {
	return e.Origin.describe(e.Key, e.Value) + ": " + e.Text
}

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Reason }

// Origin is where a value was given.
type Origin struct {
	File string // the configuration file; empty: a flag, or a call of Set
	Line int    // its line, from 1
	Flag bool   // given as --key=value
}

func (o Origin) describe(key, value string) string {
	setting := key + "=" + value
	switch {
	case o.File != "":
		return fmt.Sprintf("%s:%d: %s", o.File, o.Line, setting)
	case o.Flag:
		return "--" + setting
	default:
		return setting
	}
}

// Warning is something an operator should know and that stops nothing.
type Warning struct {
	Keys []string // the settings it is about
	Text string   // the whole sentence
}

func (w Warning) String() string { return w.Text }

func badValue(key, value string, o Origin, text string) *Error {
	return &Error{Key: key, Value: value, Origin: o, Reason: ErrBadValue, Text: text}
}

func unknownKey(key, value string, o Origin) *Error {
	text := "neither tandem nor RocketMQ has a setting of this name"
	if near := NearestKey(key); near != "" {
		text += "; is " + near + " meant?"
	} else {
		text += "; tandem broker --help lists those there are"
	}
	return &Error{Key: key, Value: value, Origin: o, Reason: ErrUnknownKey, Text: text}
}

// NearestKey is the setting that differs least from a mistyped one, "" if none is near.
func NearestKey(key string) string {
	best, bestDistance := "", 1+len(key)/4
	for _, s := range described() {
		if d := distance(strings.ToLower(key), strings.ToLower(s.Key)); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = s.Key, d
		}
	}
	return best
}

// distance is the number of letters to insert, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
