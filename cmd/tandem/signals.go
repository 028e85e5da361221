package main

import (
	"context"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with Ctrl-C or SIGTERM. From then on a second signal ends the process at once, and
// the kernel the children with it.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, restore := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	stop := context.AfterFunc(ctx, restore)
	return ctx, func() { stop(); restore() }
}
