package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// NewTable is a plain table whose columns after the first are numbers.
func NewTable(header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(header)
	var cols []table.ColumnConfig
	for i := range header[1:] {
		cols = append(cols, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(cols)
	return t
}

// WriteTable prints the report.
func (r SendReport) WriteTable(w io.Writer) { WriteTable(w, r) }

// WriteTable prints reports of several runs, one row each, and what their processes used.
func WriteTable(w io.Writer, reports ...SendReport) {
	t := NewTable("run", "acked", "not acked", "messages/s", "MB/s", "p50", "p90", "p99", "p99.9", "p99.99", "max")
	for _, r := range reports {
		l := r.RoundTrip
		t.AppendRow(table.Row{
			r.name(), r.Acked, r.Sent - r.Acked, fmt.Sprintf("%.0f", r.Throughput), fmt.Sprintf("%.1f", r.MBps),
			Micros(l.P50), Micros(l.P90), Micros(l.P99), Micros(l.P999), Micros(l.P9999), Micros(l.Max),
		})
	}
	fmt.Fprintln(w, t.Render())
	for _, r := range reports {
		if len(r.Errors) > 0 {
			fmt.Fprintf(w, "%s: not acknowledged: %s; the first: %s\n", r.name(), r.errorText(), r.FirstError)
		}
		if r.Late != nil {
			fmt.Fprintf(w, "%s: written later than due: p50 %s, p99 %s\n", r.name(), Micros(r.Late.P50), Micros(r.Late.P99))
		}
		fmt.Fprintf(w, "%s: the generator used %.0f ns of processor time per message\n", r.name(), r.GeneratorNs)
		WriteProcesses(w, r.Processes)
	}
}

func (r SendReport) name() string {
	if r.Label != "" {
		return r.Label
	}
	return strings.Join(r.Addrs, ",")
}

func (r SendReport) errorText() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Errors[name], name))
	}
	return strings.Join(parts, ", ")
}

// WriteProcesses prints what processes used; nothing if there are none.
func WriteProcesses(w io.Writer, ps []ProcessReport) {
	if len(ps) == 0 {
		return
	}
	t := NewTable("process", "RSS", "RssAnon", "CPU s", "CPU ns/message")
	for _, p := range ps {
		t.AppendRow(table.Row{p.Name, MiB(p.RSS), MiB(p.RssAnon), fmt.Sprintf("%.2f", p.CPU), fmt.Sprintf("%.0f", p.CPUNs)})
	}
	fmt.Fprintln(w, t.Render())
}

// MiB prints bytes.
func MiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Micros prints microseconds with a unit that suits them.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e4:
		return fmt.Sprintf("%.0f ms", us/1e3)
	case us >= 1e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us >= 10:
		return fmt.Sprintf("%.0f µs", us)
	default:
		return fmt.Sprintf("%.1f µs", us)
	}
}
