package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/bench"
)

func newBenchOverheadCommand() *cobra.Command {
	var o bench.OverheadOptions
	var peers []string
	var dir string
	var own, asJSON bool
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Measure synchronous beside asynchronous replication, in turns",
		Long: `Starts two clusters of a master and a slave, one that answers when the slave has the message and one that answers at once, and
measures them, and any brokers given by --addr, in turns of short runs. Ratios are taken round by round.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.NoOwn = !own
			if o.Peers, err = parsePeers(peers); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return inScratch(dir, "overhead", func(files scratch, binary string) error {
				bar := newProgress(cmd.ErrOrStderr())
				o.Dir, o.Binary = files.dir, binary
				o.Progress = func(done, total int, what string) { bar.set(int64(done), int64(total), what) }
				r, err := bench.Overhead(ctx, o)
				bar.Close()
				return conclude(cmd, asJSON, r, err, len(r.Failed) == 0)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&peers, "addr", nil, "LABEL=HOST:PORT of a broker to measure beside our own; may be given again")
	f.BoolVar(&own, "own", true, "measure clusters of our own; false: only the brokers of --addr, the first one being the base")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds")
	f.DurationVar(&o.Run, "run", 3*time.Second, "time that is measured in each run")
	f.DurationVar(&o.Warmup, "warmup", time.Second, "time before it that is not measured")
	f.IntVar(&o.Size, "size", 128, "body bytes of a message")
	f.StringVar(&dir, "dir", "", "directory for the clusters' files, kept at the end; default a temporary one that is removed")
	f.BoolVar(&asJSON, "json", false, jsonUsage)
	return cmd
}

func parsePeers(list []string) ([]bench.Peer, error) {
	var out []bench.Peer
	for _, text := range list {
		label, addr, ok := strings.Cut(text, "=")
		if !ok || label == "" || !strings.Contains(addr, ":") {
			return nil, usagef("--addr=%s: not valid; valid: LABEL=HOST:PORT", text)
		}
		out = append(out, bench.Peer{Label: label, Addr: addr})
	}
	return out, nil
}

func newBenchCatchupCommand() *cobra.Command {
	var o bench.CatchupOptions
	var dir string
	var mib, segment int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "catchup",
		Short: "Measure how fast an empty slave fetches a whole log",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mib < 1 || segment < 1 {
				return usagef("--log=%d --segment=%d: not valid; valid: 1 or more MiB", mib, segment)
			}
			o.Bytes, o.Segment = mib<<20, segment<<20
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return inScratch(dir, "catchup", func(files scratch, binary string) error {
				bar := newProgress(cmd.ErrOrStderr())
				o.Dir, o.Binary, o.Progress = files.dir, binary, bar.set
				r, err := bench.Catchup(ctx, o)
				bar.Close()
				return conclude(cmd, asJSON, r, err, true)
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&mib, "log", 1024, "size of the master's log, MiB")
	f.Int64Var(&segment, "segment", 1024, "mappedFileSizeCommitLog, MiB")
	f.IntVar(&o.Size, "size", 1024, "body bytes of a message")
	f.StringVar(&dir, "dir", "", "empty directory for the processes' files, kept at the end; default a temporary one that is removed")
	f.BoolVar(&asJSON, "json", false, jsonUsage)
	return cmd
}
