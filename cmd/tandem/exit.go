package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"tandem/bench"
)

// Exit statuses.
const (
	statusHolds = 0 // it worked; what was asked holds
	statusFails = 1 // it did not work; what was asked does not hold
	statusUsage = 2 // called wrongly: unknown command or flag, bad setting, missing argument
)

// errDoesNotHold ends a command with status 1 whose findings are printed already.
var errDoesNotHold = errors.New("does not hold")

// usage marks an error as the caller's.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// usageError gives err status 2; nil stays nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return usage{err}
}

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

func exitStatus(err error) int {
	var u usage
	switch {
	case err == nil:
		return statusHolds
	case errors.As(err, &u), errors.Is(err, bench.ErrOptions):
		return statusUsage
	default:
		return statusFails
	}
}

// printError writes one line for each fault in err.
func printError(w io.Writer, command string, err error) {
	if err == nil || errors.Is(err, errDoesNotHold) {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(w, "%s: %s\n", command, line)
	}
}
