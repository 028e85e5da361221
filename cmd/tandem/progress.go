package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far long work is on a terminal, and nothing anywhere else. Close it before results are printed.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionSetElapsedTime(true),
	)}
}

// set shows done of total, and what is done just now. Errors of drawing are of no interest to the work.
func (p *progress) set(done, total int64, what string) {
	if p.bar == nil || total <= 0 {
		return
	}
	p.bar.Describe(what)
	p.bar.ChangeMax64(total + 1) // the bar is full when Close says so
	_ = p.bar.Set64(min(done, total))
}

// Close removes the bar.
func (p *progress) Close() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
