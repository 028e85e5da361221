package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// closeTimeout bounds a graceful stop: what is in flight is answered within the longest wait a client has, and then the log
// is flushed, which is not bounded.
const closeTimeout = 30 * time.Second

// server is what runs until a signal.
type server interface {
	Close(ctx context.Context) error
}

// serve starts a server and runs it until Ctrl-C or SIGTERM, then closes it. A second signal ends the process at once,
// also while the server still starts.
func serve[S server](start func() (S, error), log *zap.Logger) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	type outcome struct {
		server S
		err    error
	}
	started := make(chan outcome, 1)
	go func() {
		s, err := start()
		started <- outcome{s, err}
	}()

	var first os.Signal
	select {
	case first = <-signals:
		log.Info("stopping once the start is done; a second signal stops at once", zap.Stringer("signal", first))
	case o := <-started:
		if o.err != nil {
			return o.err
		}
		started <- o
		first = <-signals
		log.Info("stopping; a second signal stops at once", zap.Stringer("signal", first))
	}
	done := make(chan struct{})
	defer close(done)
	go stopAtOnce(signals, done, log)
	o := <-started
	if o.err != nil {
		return o.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := o.server.Close(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func stopAtOnce(signals <-chan os.Signal, done <-chan struct{}, log *zap.Logger) {
	select {
	case second := <-signals:
		log.Warn("stopping at once; the next start will recover", zap.Stringer("signal", second))
		os.Exit(statusFails)
	case <-done:
	}
}
