package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
)

// Run runs a process to its end and returns its standard output and error, mixed. Its error names the exit status. LogFile,
// Ready and the time-outs of the spec do not count; the context's end kills the process group.
func Run(ctx context.Context, spec Spec) (string, error) {
	out, err := os.CreateTemp("", "tandem-run-*.log")
	if err != nil {
		return "", fmt.Errorf("run %s: %w", spec.Name, err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	spec.LogFile = out.Name()
	p, err := Start(spec)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), p.Kill())
	}
	exit := p.Wait()
	text, readErr := os.ReadFile(out.Name())
	if err == nil && (exit.Code != 0 || exit.Signal != 0) {
		err = &RunError{Name: spec.Name, Exit: exit, Output: tail(text, 2000)}
	}
	return string(text), errors.Join(err, readErr)
}

// RunError says that a process run to its end did not succeed.
type RunError struct {
	Name   string
	Exit   Exit
	Output string // the end of what it printed
}

func (e *RunError) Error() string { return fmt.Sprintf("%s %v\n%s", e.Name, e.Exit, e.Output) }

func tail(b []byte, n int) string {
	return string(bytes.TrimSpace(b[max(0, len(b)-n):]))
}
