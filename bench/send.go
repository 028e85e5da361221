package bench

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const progressEvery = 200 * time.Millisecond

// Send makes the load that o asks for and reports what came of it. Errors that brokers answer are counted in the report; the
// function's own error says that the run could not be made: ErrOptions, no broker there, or one that refuses the topic. If the
// context ends the run stops, and the report covers what was measured until then.
func Send(ctx context.Context, o SendOptions) (SendReport, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return SendReport{}, err
	}
	addrs := []string{o.Addr}
	if !o.NoTopic {
		var err error
		if addrs, err = prepare(ctx, o); err != nil {
			return SendReport{}, err
		}
	}
	r, err := newRun(o)
	if err != nil {
		return SendReport{}, err
	}
	return r.measure(ctx, addrs)
}

func newRun(o SendOptions) (*run, error) {
	r := &run{SendOptions: o, window: window{int64(o.Warmup), int64(o.Warmup + o.Duration)}}
	r.left.Store(o.Messages)
	if o.Every > 0 {
		r.course = &course{every: int64(o.Every)}
	}
	body := payload(o.Size)
	for q := range o.Queues {
		f, err := newFrame(message{topic: o.Topic, queue: q, nums: o.Queues, wait: !o.NoWait, form: o.Form, body: body})
		if err != nil {
			return nil, err
		}
		r.frames = append(r.frames, f)
	}
	return r, nil
}

// measure runs all links, and what watches them.
func (r *run) measure(ctx context.Context, addrs []string) (SendReport, error) {
	links := make([]*link, r.Conns)
	for i := range links {
		links[i] = newLink(r, addrs[i%len(addrs)], i)
	}
	work, pace, err := r.generator(ctx, links)
	if err != nil {
		return SendReport{}, err
	}
	r.start = time.Now()
	cpu := selfCPU()
	watch := StartWatch(r.Watch, r.tick)
	g, gctx := errgroup.WithContext(ctx)
	for _, f := range work {
		g.Go(func() error { return f(gctx) })
	}
	err = g.Wait()
	end := r.now()
	processes := watch.Stop(r.answered.Load())
	if err != nil && ctx.Err() == nil {
		return SendReport{}, err
	}
	if pace != nil {
		pace.unsent(ctx, r, links[0].rec)
	}
	rep := r.report(addrs, links, pace, min(end, r.to))
	rep.Processes = processes
	if n := r.answered.Load(); n > 0 {
		rep.GeneratorNs = float64(selfCPU()-cpu) / float64(n)
	}
	return rep, nil
}

// generator is what loads the links: one driver for all, or for messages that are alone on their connection one function for each.
// All of it must be run. pace is nil without a rate.
func (r *run) generator(ctx context.Context, links []*link) (work []func(context.Context) error, _ *pace, err error) {
	if r.Rate == 0 && r.Depth == 1 {
		for _, l := range links {
			work = append(work, alone{l}.run)
		}
		return work, nil, nil
	}
	d, err := newDriver(ctx, r, links)
	if err != nil {
		return nil, nil, err
	}
	return append(work, d.drive), d.pace, nil
}

func (r *run) tick() {
	if r.Progress != nil {
		r.Progress(Progress{Elapsed: time.Since(r.start), Total: time.Duration(r.to), Answered: r.answered.Load()})
	}
}

// report sums up; end is when the measured part ended, in ns since the start.
func (r *run) report(addrs []string, links []*link, pace *pace, end int64) SendReport {
	sum := newRecorder(r.window, nil)
	for _, l := range links {
		sum.merge(l.rec)
	}
	rep := SendReport{
		Label: r.Label, Addrs: addrs, Topic: r.Topic, Size: r.Size, Conns: r.Conns, Depth: r.Depth, Rate: r.Rate, NoWait: r.NoWait,
		Sent: sum.sent, Acked: sum.acked, Errors: sum.errors, FirstError: sum.firstError, RoundTrip: latencyOf(sum.trips),
		Curve: curveOf(sum.trips),
	}
	if end > r.from {
		rep.Seconds = float64(end-r.from) / 1e9
		rep.Throughput = float64(sum.inTime) / rep.Seconds
		rep.MBps = rep.Throughput * float64(r.Size) / 1e6
	}
	if r.course != nil {
		for _, l := range links {
			r.course.add(l.rec)
		}
		rep.Course = r.course.report()
	}
	if pace != nil {
		l := latencyOf(pace.late)
		rep.Late = &l
	}
	return rep
}

// selfCPU is the processor time that this process has used.
func selfCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Err is nil if every message was acknowledged, and otherwise names what was not.
func (r SendReport) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return errors.New("not every message was acknowledged: " + r.errorText() + "; the first: " + r.FirstError)
}
