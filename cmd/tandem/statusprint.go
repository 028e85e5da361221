package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"tandem/transfer"
)

// renderReports is the status as people read it: one block for each broker.
func renderReports(reports []brokerReport, now time.Time) string {
	var b strings.Builder
	if len(reports) == 0 {
		b.WriteString("no broker is registered\n")
	}
	for i := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		renderReport(&b, &reports[i], now)
	}
	return b.String()
}

func renderReport(b *strings.Builder, r *brokerReport, now time.Time) {
	if r.Error != "" {
		fmt.Fprintf(b, "%s  not reached\n", r.Addr)
		return
	}
	fmt.Fprintf(b, "%s/%s/%d  %s  %s  (%s)\n", r.Cluster, r.BrokerName, r.BrokerID, r.Role, r.Addr, r.Software)
	fmt.Fprintf(b, "  rule     %s\n", r.Rule)
	fmt.Fprintf(b, "  log      %d … %d (%s)", r.MinOffset, r.MaxOffset, size(r.MaxOffset-r.MinOffset))
	if r.Software == "tandem" {
		fmt.Fprintf(b, ", flushed %d", r.Flushed)
	}
	b.WriteByte('\n')
	if a := r.Appends; a != nil {
		fmt.Fprintf(b, "  appends  p50 %s  p99 %s  p99.9 %s  p99.99 %s  max %s  (%d)\n",
			nanos(a.P50Ns), nanos(a.P99Ns), nanos(a.P999Ns), nanos(a.P9999Ns), nanos(a.MaxNs), a.Count)
	}
	if r.StoreError != "" {
		fmt.Fprintf(b, "  store    %s\n", r.StoreError)
	}
	if r.Slave != nil {
		renderSlave(b, r.Slave, now)
	}
	if r.Master != nil {
		renderMaster(b, r.Master, now)
	}
}

func renderMaster(b *strings.Builder, m *transfer.MasterStatus, now time.Time) {
	renderSlaves(b, m)
	renderWaits(b, m)
	for _, refusal := range m.Refusals {
		peer := strings.TrimSpace(refusal.Addr + " " + refusal.ID)
		fmt.Fprintf(b, "  refused  %s, %s ago: %s\n", peer, ago(refusal.WhenMs, now), refusal.Reason)
	}
}

func renderSlaves(b *strings.Builder, m *transfer.MasterStatus) {
	if len(m.Slaves) == 0 {
		fmt.Fprintf(b, "  slaves   none connected, %d needed\n", m.Need)
		return
	}
	fmt.Fprintf(b, "  slaves   %d connected, %d usable, %d needed\n", len(m.Slaves), m.Usable, m.Need)
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"slave", "address", "state", "acknowledged", "lag", "lag ms", "per second", "last error"})
	numbers := []table.ColumnConfig{}
	for _, n := range []int{4, 5, 6, 7} {
		numbers = append(numbers, table.ColumnConfig{Number: n, Align: text.AlignRight})
	}
	t.SetColumnConfigs(numbers)
	for _, s := range m.Slaves {
		t.AppendRow(table.Row{slaveName(s), s.Addr, s.State, acknowledged(s), size(s.LagBytes), s.LagMs, size(s.BytesPerSec), s.LastError})
	}
	for line := range strings.Lines(t.Render() + "\n") {
		b.WriteString("  " + line)
	}
}

func slaveName(s transfer.SlaveInfo) string {
	if s.ID == "" {
		return "(can't tell)"
	}
	return s.ID
}

func acknowledged(s transfer.SlaveInfo) string {
	if !s.Reported {
		return "-"
	}
	return fmt.Sprint(s.Acked)
}

func renderWaits(b *strings.Builder, m *transfer.MasterStatus) {
	if m.Waiting > 0 {
		fmt.Fprintf(b, "  waiting  %d sends, the oldest for %d ms\n", m.Waiting, m.OldestWaitMs)
	}
	if w := m.SyncWait; w.Count > 0 {
		fmt.Fprintf(b, "  waits    p50 %s  p90 %s  p99 %s  p99.9 %s  max %s  (%d, of which %d failed)\n",
			micros(w.P50Us), micros(w.P90Us), micros(w.P99Us), micros(w.P999Us), micros(w.MaxUs), w.Count, w.Failed)
	}
}

func renderSlave(b *strings.Builder, s *transfer.SlaveStatus, now time.Time) {
	master := s.MasterAddr
	if master == "" {
		master = "no master known"
	}
	fmt.Fprintf(b, "  master   %s, %s", master, s.State)
	if s.LastReadMs > 0 {
		fmt.Fprintf(b, ", last heard %s ago", ago(s.LastReadMs, now))
	}
	b.WriteByte('\n')
	if s.MasterMax > 0 {
		fmt.Fprintf(b, "  behind   %s of the master's %d … %d\n", size(max(s.MasterMax-s.MaxOffset, 0)), s.MasterMin, s.MasterMax)
	}
	if s.HistoryCheck != "" {
		fmt.Fprintf(b, "  history  %s\n", s.HistoryCheck)
	}
	if s.LastError != "" {
		fmt.Fprintf(b, "  error    %s", s.LastError)
		if s.LastErrorMs > 0 {
			fmt.Fprintf(b, ", %s ago", ago(s.LastErrorMs, now))
		}
		b.WriteByte('\n')
	}
}

func ago(ms int64, now time.Time) string {
	return max(now.Sub(time.UnixMilli(ms)), 0).Round(100 * time.Millisecond).String()
}

// nanos leaves out what a histogram does not know anyway.
func nanos(ns int64) string {
	d := time.Duration(ns)
	if d >= 10*time.Microsecond {
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

func micros(us int64) string { return (time.Duration(us) * time.Microsecond).String() }

// size writes bytes with a binary unit.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
