package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"tandem/bench/ledger"
	"tandem/bench/remote"
	"tandem/cluster"
)

// ErrVerdict says that the tour came to its end and that something it checked does not hold.
var ErrVerdict = errors.New("the verdict is: it does not hold")

const (
	brokerName  = "broker-0"
	topic       = "Demo"
	group       = "demo"
	queues      = 4
	segmentSize = 16 << 20

	defaultMessages = 5000
	stepTimeout     = time.Minute // of any one step
)

// Options of a tour.
type Options struct {
	Binary   string    // our own executable
	Dir      string    // where the cluster keeps its files; the caller removes it
	Out      io.Writer // the narrative
	Messages int       // sent while all is well; default 5000
}

// tour is the state that the steps hand on.
type tour struct {
	Options
	start   time.Time
	cluster *cluster.Cluster
	client  *remote.Client
	book    ledger.Ledger
	reader  *consumer
	failed  int
}

// Run runs the tour. ErrVerdict means that a check failed, which was printed; any other error that the tour could not go on.
func Run(ctx context.Context, o Options) (err error) {
	if o.Messages <= 0 {
		o.Messages = defaultMessages
	}
	t := &tour{Options: o, start: time.Now(), client: remote.New(10*time.Second, nil)}
	defer t.client.Close()
	t.cluster, err = cluster.New(cluster.Options{
		Dir: o.Dir, Name: "demo", Slaves: 1, Role: "SYNC_MASTER", Master: cluster.Tandem{Binary: o.Binary},
		Conf: cluster.Conf{"mappedFileSizeCommitLog": fmt.Sprint(segmentSize)},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.cluster.Close()) }()
	t.reader = newConsumer(t.client, &t.book)
	for i, s := range t.steps() {
		t.say("\n%d. %s", i+1, s.title)
		if err := t.step(ctx, s.do); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.title, err)
		}
	}
	return t.verdict()
}

type step struct {
	title string
	do    func(context.Context) error
}

func (t *tour) steps() []step {
	return []step{
		{"A master, its slave and a name server start on this machine", t.startCluster},
		{"Messages are sent; each is acknowledged when both have it", t.sendMany},
		{"What does waiting for the slave cost?", t.compare},
		{"A consumer group reads the first half from the master", t.consumeHalf},
		{"The master is killed (kill -9) while messages are being sent", t.killMaster},
		{"The group goes on from the slave", t.consumeFromSlave},
		{"The master comes back and takes messages again", t.returnOfMaster},
		{"The group reads the rest from the master", t.consumeRest},
		{"All is stopped, and both logs are compared byte by byte", t.compareLogs},
	}
}

func (t *tour) step(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not done after %v", stepTimeout))
	defer cancel()
	return do(ctx)
}

// say prints one line of the narrative.
func (t *tour) say(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

// check prints one finding, and remembers whether it is bad.
func (t *tour) check(err error, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if err == nil {
		t.say("   ok      %s", text)
		return
	}
	t.failed++
	t.say("   FAILED  %s:\n           %s", text, strings.ReplaceAll(err.Error(), "\n", "\n           "))
}

func (t *tour) verdict() error {
	c := t.book.Count()
	t.say("\nVerdict, after %.0f s", time.Since(t.start).Seconds())
	t.check(t.book.Err(), "every acknowledged message was consumed exactly as sent: %d of %d", c.Acked-c.Missing, c.Acked)
	if c.Extra > 0 {
		t.say("           (and %d whose sender was cut off before it heard of them)", c.Extra)
	}
	if t.failed > 0 {
		t.say("\nIT DOES NOT HOLD: %d of the checks above failed.", t.failed)
		return ErrVerdict
	}
	t.say("\nIT HOLDS: nothing that was acknowledged is missing or altered, and master and slave hold the same log.")
	return nil
}

func (t *tour) master() *cluster.Node { return t.cluster.Pairs[0].Master }
func (t *tour) slave() *cluster.Node  { return t.cluster.Pairs[0].Slaves[0] }

func (t *tour) startCluster(ctx context.Context) error {
	begin := time.Now()
	if err := t.cluster.Start(ctx); err != nil {
		return err
	}
	serving := time.Since(begin)
	if err := t.client.WaitPair(ctx, t.master().Addr(), t.slave().Addr()); err != nil {
		return err
	}
	for _, n := range t.cluster.Nodes() {
		t.say("   %-18s %s  process %d", n.Name, n.Addr(), n.Process().PID())
	}
	t.say("   serving after %d ms, master and slave level after %d ms; files in %s",
		serving.Milliseconds(), time.Since(begin).Milliseconds(), t.Dir)
	return nil
}

func (t *tour) returnOfMaster(ctx context.Context) error {
	begin := time.Now()
	if err := t.master().Start(ctx); err != nil {
		return err
	}
	serving := time.Since(begin)
	if err := t.client.WaitPair(ctx, t.master().Addr(), t.slave().Addr()); err != nil {
		return err
	}
	t.say("   the master recovered its log and serves after %d ms, the slave follows again after %.1f s",
		serving.Milliseconds(), time.Since(begin).Seconds())
	return t.send(ctx, t.Messages/5)
}

// compareLogs stops both brokers cleanly, which leaves no half-written tail, and lets our own tool compare their stores.
func (t *tour) compareLogs(ctx context.Context) error {
	if err := t.client.WaitLevel(ctx, t.master().Addr(), t.slave().Addr()); err != nil {
		return err
	}
	for _, n := range []*cluster.Node{t.master(), t.slave()} {
		usage, err := n.Process().Usage()
		if err != nil {
			return err
		}
		if err := n.Stop(); err != nil {
			return err
		}
		exit := n.Process().Wait()
		if exit.Code != 0 {
			err = fmt.Errorf("it %v", exit)
		}
		t.check(err, "%s stopped cleanly (it held %.1f MiB of memory of its own)", n.Name, float64(usage.RssAnon)/(1<<20))
	}
	args := []string{"store", "diff", t.master().Store(), t.slave().Store()}
	out, err := cluster.Run(ctx, cluster.Spec{Name: "store diff", Path: t.Binary, Args: args})
	t.say("   %s store diff …/%s …/%s", filepath.Base(t.Binary), t.master().Name, t.slave().Name)
	for line := range strings.Lines(out) {
		t.say("   | %s", strings.TrimRight(line, "\n"))
	}
	t.check(err, "the logs of master and slave are identical")
	return nil
}
