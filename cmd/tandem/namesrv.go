package main

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"tandem/nameserver"
)

func newNamesrvCommand() *cobra.Command {
	var port int
	var bind, level string
	cmd := &cobra.Command{
		Use:   "namesrv [--listenPort=9876] [--bindAddress=ADDR]",
		Short: "Run a name server",
		Long:  "Runs a name server until Ctrl-C or SIGTERM. Brokers and clients of tandem and of Apache RocketMQ can use it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usagef("--listenPort=%d: not valid; valid: a whole number from 0 to 65535", port)
			}
			if _, err := netip.ParseAddr(bind); err != nil {
				return usagef("--bindAddress=%s: not valid; valid: an IP address of this machine, 0.0.0.0 for all", bind)
			}
			log, err := newLogger(level, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return serve(func() (nameServer, error) { return startNameServer(net.JoinHostPort(bind, strconv.Itoa(port)), log) }, log)
		},
	}
	cmd.Flags().IntVar(&port, "listenPort", 9876, "port to serve; 0 lets the system choose")
	cmd.Flags().StringVar(&bind, "bindAddress", "0.0.0.0", "address to listen on")
	cmd.Flags().StringVar(&level, "logLevel", "info", "least severe kind of line that is logged: debug, info, warn, error")
	return cmd
}

// nameServer closes a nameserver.Server as serve expects it.
type nameServer struct{ *nameserver.Server }

func (n nameServer) Close(ctx context.Context) error { return n.Shutdown(ctx) }

func startNameServer(addr string, log *zap.Logger) (nameServer, error) {
	s, err := nameserver.Start(nameserver.Options{Addr: addr, Logger: log})
	if err == nil {
		log.Info("name server serves", zap.Stringer("address", s.Addr()))
	}
	return nameServer{s}, err
}
