package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tandem/broker"
	"tandem/broker/settings"
	"tandem/nameserver"
)

// host is what `tandem broker` runs in one process: the broker and, where embeddedNamesrvPort asks for it, a name server.
type host struct {
	broker *broker.Broker
	names  *nameserver.Server // nil if there is none
}

func startHost(s *settings.Settings, log *zap.Logger) (*host, error) {
	h := &host{}
	if addr := s.EmbeddedNamesrvAddr(); addr != "" {
		names, err := nameserver.Start(nameserver.Options{Addr: addr, Logger: log.Named("namesrv")})
		if err != nil {
			return nil, fmt.Errorf("embeddedNamesrvPort=%d: %w", s.EmbeddedNamesrvPort, err)
		}
		h.names = names
	}
	b, err := broker.Start(s, log)
	if err != nil {
		return nil, errors.Join(err, h.closeNames(context.Background()))
	}
	h.broker = b
	return h, nil
}

// Close ends the broker first: it unregisters at the name server.
func (h *host) Close(ctx context.Context) error {
	return errors.Join(h.broker.Close(ctx), h.closeNames(ctx))
}

func (h *host) closeNames(ctx context.Context) error {
	if h.names == nil {
		return nil
	}
	return h.names.Shutdown(ctx)
}
