package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tandem/broker/settings"
	"tandem/engine"
)

const defaultBrokerAddr = "127.0.0.1:10911"

type statusOptions struct {
	broker, namesrv string
	json, watch     bool
	every           time.Duration
}

func newStatusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [-b host:port | -n host:port] [--json] [--watch]",
		Short: "Show roles, slaves, offsets and lag",
		Long: `Asks one broker, or every broker that a name server knows, for its role, the rule that its sends follow, and how far its slaves
are. Brokers of Apache RocketMQ are shown as far as they can tell. Exit status 1 if one could not be asked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return showStatus(ctx, o, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&o.broker, "broker", "b", "", "host:port of a broker (default "+defaultBrokerAddr+")")
	flags.StringVarP(&o.namesrv, "namesrvAddr", "n", "", "host:port of a name server, or several separated by ';': all brokers that the first one to answer knows")
	flags.BoolVar(&o.json, "json", false, "print JSON: an object for -b, an array for -n; one a line with --watch")
	flags.BoolVar(&o.watch, "watch", false, "go on until Ctrl-C")
	flags.DurationVar(&o.every, "interval", time.Second, "time between two looks of --watch")
	return cmd
}

func (o *statusOptions) check() error {
	switch {
	case o.broker != "" && o.namesrv != "":
		return usagef("-b and -n: give one of the two")
	case o.broker == "" && o.namesrv == "":
		o.broker = defaultBrokerAddr
	}
	for _, addr := range o.addrs() {
		if !settings.IsAddress(addr) {
			return usagef("%q is no address; valid: host:port", addr)
		}
	}
	if o.every < 100*time.Millisecond {
		return usagef("--interval=%s: not valid; valid: 100ms or more", o.every)
	}
	return nil
}

func (o *statusOptions) addrs() []string {
	if o.broker != "" {
		return []string{o.broker}
	}
	return strings.Split(o.namesrv, ";")
}

func showStatus(ctx context.Context, o statusOptions, w io.Writer) error {
	client := engine.NewClient(engine.ClientOptions{DialTimeout: askTimeout, CallTimeout: askTimeout})
	defer client.Close()
	ask := asker{client}
	for {
		reports, err := ask.all(ctx, o)
		if err != nil {
			return err
		}
		if err := printReports(w, o, reports); err != nil {
			return err
		}
		if !o.watch {
			return unreachable(reports)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

func unreachable(reports []brokerReport) error {
	var faults []error
	for _, r := range reports {
		if r.Error != "" {
			faults = append(faults, errors.New(r.Error))
		}
	}
	return errors.Join(faults...)
}

func printReports(w io.Writer, o statusOptions, reports []brokerReport) error {
	if o.json {
		return printJSON(w, o, reports)
	}
	if o.watch && isTerminal(w) {
		fmt.Fprint(w, "\x1b[H\x1b[2J") // to the top of an empty screen
	}
	_, err := io.WriteString(w, renderReports(reports, time.Now()))
	return err
}

func printJSON(w io.Writer, o statusOptions, reports []brokerReport) error {
	enc := json.NewEncoder(w)
	if !o.watch {
		enc.SetIndent("", "  ")
	}
	if o.broker != "" {
		return enc.Encode(reports[0])
	}
	return enc.Encode(reports)
}

// isTerminal tells whether somebody watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
