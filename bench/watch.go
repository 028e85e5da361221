package bench

import (
	"sync"
	"time"

	"tandem/cluster"
)

// Watched is a process of this machine whose use is reported.
type Watched struct {
	Name string
	PID  int
}

// ProcessReport is what one process held and used during a run.
type ProcessReport struct {
	Name    string  `json:"name"`
	RSS     int64   `json:"rss_bytes"`      // highest seen
	RssAnon int64   `json:"rss_anon_bytes"` // highest seen
	CPU     float64 `json:"cpu_seconds"`    // during the whole run, warm-up included
	CPUNs   float64 `json:"cpu_ns_per_message"`
}

// watcher samples processes and tells the progress, until stop.
type watcher struct {
	run    *run
	first  []cluster.Usage
	peak   []cluster.Usage
	ended  chan struct{}
	inside sync.WaitGroup
}

func startWatch(r *run) *watcher {
	w := &watcher{run: r, ended: make(chan struct{})}
	for _, p := range r.Watch {
		u, _ := cluster.UsageOf(p.PID) // one that has ended counts from 0
		w.first = append(w.first, u)
	}
	w.peak = append(w.peak, w.first...)
	w.inside.Go(w.loop)
	return w
}

func (w *watcher) loop() {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-tick.C:
		}
		w.sample()
		if w.run.Progress != nil {
			w.run.Progress(Progress{
				Elapsed: time.Since(w.run.start), Total: time.Duration(w.run.to), Answered: w.run.answered.Load(),
			})
		}
	}
}

func (w *watcher) sample() {
	for i, p := range w.run.Watch {
		u, err := cluster.UsageOf(p.PID)
		if err != nil {
			continue
		}
		last := &w.peak[i]
		*last = cluster.Usage{RSS: max(last.RSS, u.RSS), RssAnon: max(last.RssAnon, u.RssAnon), CPU: max(last.CPU, u.CPU)}
	}
}

// stop ends the watching and reports it.
func (w *watcher) stop() []ProcessReport {
	close(w.ended)
	w.inside.Wait()
	w.sample()
	var out []ProcessReport
	for i, p := range w.run.Watch {
		r := ProcessReport{Name: p.Name, RSS: w.peak[i].RSS, RssAnon: w.peak[i].RssAnon}
		cpu := w.peak[i].CPU - w.first[i].CPU
		r.CPU = cpu.Seconds()
		if n := w.run.answered.Load(); n > 0 {
			r.CPUNs = float64(cpu) / float64(n)
		}
		out = append(out, r)
	}
	return out
}
