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

// Watcher samples processes until Stop.
type Watcher struct {
	list   []Watched
	tick   func()
	first  []cluster.Usage
	peak   []cluster.Usage
	ended  chan struct{}
	inside sync.WaitGroup
}

// StartWatch begins to sample, about five times a second; tick, which may be nil, is called after each sample from the same goroutine.
func StartWatch(list []Watched, tick func()) *Watcher {
	w := &Watcher{list: list, tick: tick, ended: make(chan struct{})}
	for _, p := range list {
		u, _ := cluster.UsageOf(p.PID) // one that has ended counts from 0
		w.first = append(w.first, u)
	}
	w.peak = append(w.peak, w.first...)
	w.inside.Go(w.loop)
	return w
}

func (w *Watcher) loop() {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-tick.C:
		}
		w.sample()
		if w.tick != nil {
			w.tick()
		}
	}
}

func (w *Watcher) sample() {
	for i, p := range w.list {
		u, err := cluster.UsageOf(p.PID)
		if err != nil {
			continue
		}
		last := &w.peak[i]
		*last = cluster.Usage{RSS: max(last.RSS, u.RSS), RssAnon: max(last.RssAnon, u.RssAnon), CPU: max(last.CPU, u.CPU)}
	}
}

// Stop ends the sampling and reports it; the processor time is also given by message, of which there were so many. Call it once.
func (w *Watcher) Stop(messages int64) []ProcessReport {
	close(w.ended)
	w.inside.Wait()
	w.sample()
	var out []ProcessReport
	for i, p := range w.list {
		r := ProcessReport{Name: p.Name, RSS: w.peak[i].RSS, RssAnon: w.peak[i].RssAnon}
		cpu := w.peak[i].CPU - w.first[i].CPU
		r.CPU = cpu.Seconds()
		if messages > 0 {
			r.CPUNs = float64(cpu) / float64(messages)
		}
		out = append(out, r)
	}
	return out
}
