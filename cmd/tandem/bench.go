package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/bench"
	"tandem/codec"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Make load and measure",
	}
	cmd.AddCommand(newBenchSendCommand(), newBenchAllCommand(), newBenchOverheadCommand(), newBenchFloorCommand(), newBenchLagCommand(),
		newBenchFanoutCommand(), newBenchSoakCommand(), newBenchCatchupCommand(), newBenchStartCommand(), newBenchPartCommand())
	return cmd
}

// tabular is a report that prints itself.
type tabular interface{ WriteTable(io.Writer) }

// conclude ends a measurement: its report is printed as a table or as JSON, unless err says that there is none.
func conclude(cmd *cobra.Command, asJSON bool, r tabular, err error, holds bool) error {
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		r.WriteTable(cmd.OutOrStdout())
	}
	if err == nil && !holds {
		return errDoesNotHold
	}
	return err
}

const jsonUsage = "print the report as JSON"

func newBenchSendCommand() *cobra.Command {
	var o bench.SendOptions
	var header string
	var watch []string
	var wait, asJSON bool
	cmd := &cobra.Command{
		Use:   "send --addr HOST:PORT | -n HOST:PORT",
		Short: "Send messages to any RocketMQ broker and measure",
		Long: `Sends messages to one broker, or to all masters that a name server knows, and reports throughput, round trips and errors.
With --rate a round trip counts from when the message was due, so that a stall of the broker is seen in full.
The exit status is 0 if every message was acknowledged and nothing stopped the run.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.NoWait = !wait
			if o.Form, err = parseHeader(header); err != nil {
				return err
			}
			if o.Watch, err = parseWatched(watch); err != nil {
				return err
			}
			if err := errors.Join(address("addr", o.Addr), address("namesrvAddr", o.Namesrv), rate("rate", o.Rate)); err != nil {
				return err
			}
			return benchSend(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Addr, "addr", "", "broker's address, host:port")
	f.StringVarP(&o.Namesrv, "namesrvAddr", "n", "", "name server's address, host:port: all its masters are loaded")
	f.StringVar(&o.Topic, "topic", "TandemBench", "topic; made if it is missing")
	f.StringVar(&o.Label, "label", "", "name of the run in the report")
	f.IntVar(&o.Size, "size", 128, "body bytes of a message")
	f.IntVar(&o.Conns, "conns", 4, "connections")
	f.IntVar(&o.Depth, "depth", 64, "messages in flight per connection")
	f.Float64Var(&o.Rate, "rate", 0, "messages per second over all connections; 0: as fast as it goes")
	addTick(cmd, &o.Tick)
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "time that is measured")
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "time before it that is not measured")
	f.Int64Var(&o.Messages, "messages", 0, "stop after so many messages; 0: no limit")
	f.IntVar(&o.Queues, "queues", 4, "queues of the topic that are used")
	f.BoolVar(&wait, "wait", true, "messages wait for disk and slaves as the broker is set; false: they say WAIT=false")
	f.StringVar(&header, "header", "json", "form of the request headers: json or rocketmq")
	f.StringArrayVar(&watch, "watch", nil, "NAME=PID of a process whose memory and processor time are reported; may be given again")
	f.BoolVar(&asJSON, "json", false, jsonUsage)
	return cmd
}

func addTick(cmd *cobra.Command, tick *time.Duration) {
	cmd.Flags().DurationVar(tick, "tick", bench.DefaultTick, "with a rate: messages due within so much time are due at its begin, and leave together")
}

// errStopped ends a measurement with status 1, whatever was acknowledged until then.
var errStopped = errors.New("stopped before its end")

func benchSend(cmd *cobra.Command, o bench.SendOptions, asJSON bool) error {
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	bar := newProgress(cmd.ErrOrStderr())
	o.Progress = func(p bench.Progress) {
		bar.set(int64(p.Elapsed), int64(p.Total), fmt.Sprintf("%d answered", p.Answered))
	}
	r, err := bench.Send(ctx, o)
	bar.Close()
	stopped := ctx.Err() != nil
	ended := conclude(cmd, asJSON, r, err, stopped || r.Err() == nil)
	if stopped && err == nil {
		return errors.Join(ended, errStopped)
	}
	return ended
}

func parseHeader(name string) (codec.Serialize, error) {
	switch name {
	case "json":
		return codec.JSON, nil
	case "rocketmq":
		return codec.Binary, nil
	}
	return 0, usagef("--header=%s: not valid; valid: json or rocketmq", name)
}

func parseWatched(list []string) ([]bench.Watched, error) {
	var out []bench.Watched
	for _, text := range list {
		name, id, ok := strings.Cut(text, "=")
		pid, err := strconv.Atoi(id)
		if !ok || err != nil || pid <= 0 {
			return nil, usagef("--watch=%s: not valid; valid: NAME=PID", text)
		}
		out = append(out, bench.Watched{Name: name, PID: pid})
	}
	return out, nil
}
