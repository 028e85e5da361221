package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/bench"
	"tandem/bench/report"
	"tandem/bench/trial"
	"tandem/broker/settings"
)

// trialFlags are those of every measurement that starts processes of its own.
type trialFlags struct {
	name   string
	dir    string
	asJSON bool
	html   string
	out    string
	strict bool
	fill   string        // of fillUsage
	quick  bool          // figures mean nothing and are not judged
	limit  time.Duration // 0: none
}

func newTrialFlags(cmd *cobra.Command, strict bool) *trialFlags {
	t := &trialFlags{name: cmd.Name()}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&t.dir, "dir", "", "directory without stores for the processes' files; settings and logs are kept; default a temporary one that is removed")
	f.BoolVar(&t.asJSON, "json", false, jsonUsage)
	f.StringVar(&t.html, "html", "", "file for the report as a page with drawings")
	f.StringVar(&t.out, "out", "", "directory to keep the report in, by date and CPU model, as JSON and as a page that also shows earlier ones")
	f.StringVar(&t.fill, "fill-cache", "true", fillUsage)
	f.BoolVar(&t.strict, "strict", strict, "exit status 1 if a figure falls short of its bound by more than the noise of this run")
	return t
}

// run measures, prints and keeps the report. What was measured before an error is printed and kept too.
func (t *trialFlags) run(cmd *cobra.Command, measure func(context.Context, trial.Setup) (trial.Results, error)) error {
	memory, err := parseFill(t.fill)
	if err != nil {
		return err
	}
	defer memory.Close()
	ctx, stop := untilSignal(cmd.Context())
	defer stop()
	if t.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.limit, fmt.Errorf("--limit=%s: the time is up", t.limit))
		defer cancel()
	}
	start := time.Now()
	var results trial.Results
	err = inScratch(t.dir, t.name, func(files scratch, binary string) (err error) {
		bar := newProgress(cmd.ErrOrStderr())
		defer bar.Close()
		results, err = measure(ctx, trial.Setup{Binary: binary, Dir: files.dir, Memory: memory, Progress: bar.set})
		return err
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	if len(results.Reports()) == 0 {
		return err
	}
	d, state := report.New(results, start, time.Now()), memory.Report()
	d.FreeMemory = &state
	return errors.Join(err, t.conclude(cmd.OutOrStdout(), d, err))
}

const fillUsage = `before each run fill the kernel's page cache, as on a host that has run for long, so that runs do not take pages which a virtual machine's host has to
provide first; evicts what is in it, takes about 2 s per GiB once: true; false, to leave memory as it is; or with at most so many MiB`

// maxFill is the most that may be asked for, in MiB.
const maxFill = 1 << 24

// parseFill reads --fill-cache; nil is false.
func parseFill(text string) (*trial.Memory, error) {
	switch text {
	case "true":
		return trial.NewMemory(0), nil
	case "false":
		return nil, nil
	}
	mib, err := strconv.ParseInt(text, 10, 64)
	if err != nil || mib < 1 || mib > maxFill {
		return nil, usagef("--fill-cache=%s: not valid; valid: true, false, or MiB from 1 to %d", text, maxFill)
	}
	return trial.NewMemory(mib << 20), nil
}

// conclude prints and keeps a report; its error is errDoesNotHold if the report says so.
func (t *trialFlags) conclude(w io.Writer, d report.Document, failed error) error {
	if failed != nil {
		d.Error = failed.Error()
	}
	if t.quick {
		d.Unjudged()
	}
	if err := t.print(w, d); err != nil {
		return err
	}
	if t.html != "" {
		if err := report.SaveHTML(t.html, d, nil); err != nil {
			return err
		}
	}
	if t.out != "" && !t.quick {
		jsonPath, htmlPath, err := report.Save(t.out, d)
		if err != nil {
			return err
		}
		if !t.asJSON {
			fmt.Fprintf(w, "kept as %s and %s\n", jsonPath, htmlPath)
		}
	}
	if len(d.Results.Faults()) > 0 || t.strict && bench.AnyShort(d.Figures) {
		return errDoesNotHold
	}
	return nil
}

func (t *trialFlags) print(w io.Writer, d report.Document) error {
	if t.asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(d)
	}
	d.WriteTable(w)
	return nil
}

// How long all measurements may take.
const (
	limitAlone     = 15 * time.Minute
	limitWithPeers = 20 * time.Minute
)

func newBenchAllCommand() *cobra.Command {
	var o trial.AllOptions
	var peers []string
	cmd := &cobra.Command{
		Use:   "all",
		Short: "All measurements that follow, and each figure against its bound",
		Long: `Runs all measurements that start processes of their own, in some twelve minutes, and ends with each figure against its bound. Needs
some 15 GiB of disk for a while. With --quick it does as little of everything as shows that it works, and never fails on speed; nothing is kept.`,
	}
	t := newTrialFlags(cmd, true)
	f := cmd.Flags()
	f.BoolVar(&o.Quick, "quick", false, "within a minute, for figures that mean nothing and are not judged")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds of each measurement")
	f.DurationVar(&t.limit, "limit", limitAlone, "time after which what is left is left out, and the exit status is 1; default 20m with --apache or --redis")
	addPeers(cmd, &peers, &o.Apache, &o.Redis)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := errors.Join(positive("rounds", o.Rounds), noLess("limit", t.limit)); err != nil {
			return err
		}
		if o.Peers, err = checkPeers(peers, o.Apache, o.Redis); err != nil {
			return err
		}
		t.quick = o.Quick
		if !cmd.Flags().Changed("limit") && (o.Apache != "" || o.Redis != "") {
			t.limit = limitWithPeers
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			return trial.All(ctx, o)
		})
	}
	return cmd
}

func newBenchOverheadCommand() *cobra.Command {
	var o trial.OverheadOptions
	var peers []string
	var own, floor bool
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Synchronous beside asynchronous replication, bare exchanges and other brokers, in turns",
		Long: `Starts two clusters of a master and a slave, one that answers when the slave has the message and one that answers at once, and bare
exchanges of the same bytes without a broker. Measures them, and any brokers given by --addr, in turns of short runs. Ratios are taken turn by
turn. A broker of --addr whose label has "apache" in it, and not "async", is taken for one that replicates before it answers.`,
	}
	t := newTrialFlags(cmd, false)
	f := cmd.Flags()
	addPeers(cmd, &peers, &o.Apache, &o.Redis)
	f.BoolVar(&own, "own", true, "measure clusters of our own; false: only the brokers of --addr, the first one being the base")
	f.BoolVar(&floor, "floor", true, "measure bare exchanges beside them")
	f.IntSliceVar(&o.Sizes, "size", []int{128, 1024}, "body bytes of a message; several are measured one after the other")
	f.Float64Var(&o.Rate, "rate", 20_000, "messages per second of the runs at a fixed rate; 0: no such runs")
	addRuns(cmd, &o.Rounds, &o.Run, &o.Warmup)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		o.NoOwn, o.NoFloor = !own, !floor
		if o.Peers, err = checkPeers(peers, o.Apache, o.Redis); err != nil {
			return err
		}
		if err := errors.Join(positive("size", o.Sizes...), positive("rounds", o.Rounds), rate("rate", o.Rate), checkRuns(o.Run, o.Warmup)); err != nil {
			return err
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup = s
			r, err := trial.Overhead(ctx, o)
			return whole(err, trial.Results{Overhead: &r})
		})
	}
	return cmd
}

// whole leaves out a report that an error makes worthless.
func whole(err error, r trial.Results) (trial.Results, error) {
	if err != nil {
		return trial.Results{}, err
	}
	return r, nil
}

func addPeers(cmd *cobra.Command, peers *[]string, apache, redis *string) {
	f := cmd.Flags()
	f.StringArrayVar(peers, "addr", nil, "LABEL=HOST:PORT of a broker to measure beside our own; may be given again")
	f.StringVar(apache, "apache", "", "version of Apache RocketMQ, such as 5.5.0: a master that waits for its slave is fetched by Maven, started, and measured beside our own")
	f.StringVar(redis, "redis", "", "HOST:PORT of a Redis master that has a replica, to measure SET and WAIT 1: keys that begin with "+bench.RedisPrefix+" are written, and removed at the end; without an address both are started")
	f.Lookup("redis").NoOptDefVal = trial.RedisHere
}

// checkPeers reads what addPeers has asked for.
func checkPeers(peers []string, apache, redis string) ([]trial.Peer, error) {
	if redis != "" && redis != trial.RedisHere && !settings.IsAddress(redis) {
		return nil, usagef("--redis=%s: not valid; valid: --redis or --redis=HOST:PORT", redis)
	}
	if apache != "" && !apacheVersion.MatchString(apache) {
		return nil, usagef("--apache=%s: not valid; valid: a version of three numbers, such as 5.5.0", apache)
	}
	list, err := parsePeers(peers)
	if err != nil {
		return nil, err
	}
	taken := []string{trial.LabelAsync, trial.LabelSync, trial.LabelPing2, trial.LabelPing4, trial.LabelStub, trial.LabelRedis, trial.LabelApache(apache)}
	for _, p := range list {
		if slices.Contains(taken, p.Label) {
			return nil, usagef("--addr=%s=%s: the label is taken already", p.Label, p.Addr)
		}
		taken = append(taken, p.Label)
	}
	return list, nil
}

var apacheVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

func parsePeers(list []string) ([]trial.Peer, error) {
	var out []trial.Peer
	for _, text := range list {
		label, addr, ok := strings.Cut(text, "=")
		if !ok || label == "" || !settings.IsAddress(addr) {
			return nil, usagef("--addr=%s: not valid; valid: LABEL=HOST:PORT", text)
		}
		out = append(out, trial.Peer{Label: label, Addr: addr})
	}
	return out, nil
}

func addRuns(cmd *cobra.Command, rounds *int, run, warmup *time.Duration) {
	f := cmd.Flags()
	f.IntVar(rounds, "rounds", 5, "rounds")
	f.DurationVar(run, "run", 2*time.Second, "time that is measured in each run")
	f.DurationVar(warmup, "warmup", 500*time.Millisecond, "time before it that is not measured")
}

func positive(flag string, values ...int) error {
	for _, v := range values {
		if v < 1 {
			return usagef("--%s=%d: not valid; valid: a whole number from 1 on", flag, v)
		}
	}
	return nil
}

// checkRuns checks what addRuns has asked for.
func checkRuns(run, warmup time.Duration) error {
	return errors.Join(duration("run", run), noLess("warmup", warmup))
}

func duration(flag string, d time.Duration) error {
	if d <= 0 {
		return usagef("--%s=%s: not valid; valid: more than 0", flag, d)
	}
	return nil
}

func noLess(flag string, d time.Duration) error {
	if d < 0 {
		return usagef("--%s=%s: not valid; valid: 0 or more", flag, d)
	}
	return nil
}

func rate(flag string, perSecond float64) error {
	if !(perSecond >= 0 && perSecond <= bench.MaxRate) { // nor is it NaN
		return usagef("--%s=%g: not valid; valid: 0 to %g", flag, perSecond, float64(bench.MaxRate))
	}
	return nil
}

func positiveRate(flag string, perSecond float64) error {
	if perSecond == 0 {
		return usagef("--%s=0: not valid; valid: more than 0", flag)
	}
	return rate(flag, perSecond)
}

// address checks an address that may be left out.
func address(flag, addr string) error {
	if addr != "" && !settings.IsAddress(addr) {
		return usagef("--%s=%s: not valid; valid: HOST:PORT", flag, addr)
	}
	return nil
}

func newBenchFloorCommand() *cobra.Command {
	var o trial.FloorOptions
	var mib int
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "What the machine, the network and Go cost without a broker",
		Long: `Measures bare ping-pong of a message's bytes over two and over four hops, a stub on gnet that answers every frame alike, and one stream
from a file into another process's new mapped file: separate processes, no delay.`,
	}
	t := newTrialFlags(cmd, false)
	cmd.Flags().IntSliceVar(&o.Sizes, "size", []int{128, 1024}, "body bytes of a message; several are measured one after the other")
	cmd.Flags().IntVar(&mib, "bytes", 1024, "size of the transfer, MiB")
	addRuns(cmd, &o.Rounds, &o.Run, &o.Warmup)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(positive("size", o.Sizes...), positive("bytes", mib), positive("rounds", o.Rounds), checkRuns(o.Run, o.Warmup)); err != nil {
			return err
		}
		return t.run(cmd, func(ctx context.Context, s trial.Setup) (trial.Results, error) {
			o.Setup, o.Bytes = s, int64(mib)<<20
			r, err := trial.Floor(ctx, o)
			return whole(err, trial.Results{Floor: &r})
		})
	}
	return cmd
}
