package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"tandem/bench/trial"
)

func newBenchLagCommand() *cobra.Command {
	var o trial.LagOptions
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "How far an asynchronous slave is behind at half of the maximal rate",
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	f.IntVar(&o.Size, "size", 128, "body bytes of a message")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds")
	f.DurationVar(&o.Run, "run", 4*time.Second, "time that is measured in each round")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positive("size", o.Size), positive("rounds", o.Rounds), duration("run", o.Run)); err != nil {
			return err
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Lag(ctx, o)
			return whole(err, trial.Results{Lag: &r})
		})
	}
	return cmd
}

func newBenchFanoutCommand() *cobra.Command {
	var o trial.FanoutOptions
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Throughput with one to eight slaves that only receive and acknowledge",
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	f.IntSliceVar(&o.Slaves, "slaves", []int{1, 2, 4, 8}, "numbers of slaves; ratios are to the first one")
	f.IntVar(&o.Size, "size", 128, "body bytes of a message")
	addRuns(cmd, &o.Rounds, &o.Run, &o.Warmup)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positive("slaves", o.Slaves...), positive("size", o.Size), positive("rounds", o.Rounds), checkRuns(o.Run, o.Warmup)); err != nil {
			return err
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Fanout(ctx, o)
			return whole(err, trial.Results{Fanout: &r})
		})
	}
	return cmd
}

func newBenchSoakCommand() *cobra.Command {
	var o trial.SoakOptions
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Round trips at a fixed rate over time",
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	f.StringVar(&o.Addr, "addr", "", "host:port of a broker that runs already; default a synchronous master and a slave of our own")
	f.Float64Var(&o.Rate, "rate", 20_000, "messages per second")
	addTick(cmd, &o.Tick)
	f.DurationVar(&o.Duration, "duration", time.Minute, "time that is measured")
	f.DurationVar(&o.Warmup, "warmup", 2*time.Second, "time before it that is not measured")
	f.DurationVar(&o.Every, "every", 0, "length of the stretches that are reported; default 1 s, or a 300th of the duration if that is longer")
	f.IntVar(&o.Size, "size", 128, "body bytes of a message")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positiveRate("rate", o.Rate), address("addr", o.Addr), positive("size", o.Size), duration("duration", o.Duration),
			noLess("warmup", o.Warmup), noLess("every", o.Every), duration("tick", o.Tick)); err != nil {
			return err
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Soak(ctx, o)
			if r.Sent > 0 { // also when it was stopped: what there is counts
				return trial.Results{Soak: &r}, err
			}
			return trial.Results{}, err
		})
	}
	return cmd
}

func newBenchCatchupCommand() *cobra.Command {
	var o trial.CatchupOptions
	var log, segment int
	cmd := &cobra.Command{
		Use:   "catchup",
		Short: "How fast an empty slave fetches a whole log, beside a bare transfer of the same files",
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	f.IntVar(&log, "log", 1024, "size of the master's log, MiB")
	f.IntVar(&segment, "segment", 1024, "mappedFileSizeCommitLog, MiB")
	f.IntVar(&o.Size, "size", 1024, "body bytes of a message")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds")
	f.BoolVar(&o.Cold, "cold", false, "the files are not in memory at the begin of each run, and producers load the master meanwhile")
	f.Float64Var(&o.ProducerRate, "producerRate", 5000, "messages per second of the producers in cold runs")
	f.DurationVar(&o.IdleRun, "idle", 3*time.Second, "time for which the producers are measured without a slave, in each cold round")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positive("log", log), positive("segment", segment), positive("size", o.Size), positive("rounds", o.Rounds)); err != nil {
			return err
		}
		if err := errors.Join(positiveRate("producerRate", o.ProducerRate), duration("idle", o.IdleRun)); err != nil {
			return err
		}
		o.Bytes, o.Segment = int64(log)<<20, int64(segment)<<20
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Catchup(ctx, o)
			if o.Cold {
				return whole(err, trial.Results{CatchupCold: &r})
			}
			return whole(err, trial.Results{Catchup: &r})
		})
	}
	return cmd
}

func newBenchStartCommand() *cobra.Command {
	var o trial.StartOptions
	var log, segment int
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Time from a broker's start to its first answer: without a store, after a clean close, after kill -9",
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	f.IntVar(&log, "log", 5120, "size of the log, MiB")
	f.IntVar(&segment, "segment", 1024, "mappedFileSizeCommitLog, MiB")
	f.IntVar(&o.Size, "size", 1024, "body bytes of a message")
	f.IntVar(&o.Rounds, "rounds", 5, "starts of each kind")
	f.DurationVar(&o.Load, "load", time.Second, "time for which the broker takes messages before it is killed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positive("log", log), positive("segment", segment), positive("size", o.Size), positive("rounds", o.Rounds), duration("load", o.Load)); err != nil {
			return err
		}
		o.Bytes, o.Segment = int64(log)<<20, int64(segment)<<20
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Start(ctx, o)
			return whole(err, trial.Results{Start: &r})
		})
	}
	return cmd
}
