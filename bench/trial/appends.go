package trial

import (
	"fmt"
	"io"

	"tandem/bench"
	"tandem/bench/remote"
)

// writeAppends prints how long a master's log was held for its appends; nothing if the master does not measure that.
func writeAppends(w io.Writer, label string, a *remote.AppendTimes) {
	if a == nil {
		return
	}
	us := func(ns int64) string { return bench.Micros(float64(ns) / 1e3) }
	fmt.Fprintf(w, "%s: %d appends since its start: p50 %s, p99 %s, p99.9 %s, p99.99 %s, max %s\n",
		label, a.Count, us(a.P50Ns), us(a.P99Ns), us(a.P999Ns), us(a.P9999Ns), us(a.MaxNs))
}

// appendFigures are a master's p99.99; none if it is not known.
func appendFigures(name, text string, a *remote.AppendTimes) []bench.Figure {
	if a == nil {
		return nil
	}
	values := bench.NewSeries([]float64{float64(a.P9999Ns) / 1e3})
	return []bench.Figure{bench.NewFigure("append_p99_99_"+name, "p99.99 of the master's own appends since its start, all loads and the warm-up counted, "+text, "µs", values, bench.NoBound, 0)}
}
