package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/bench"
	"tandem/bench/trial"
)

// Version of the document's shape.
const Version = 1

// Document is a run's whole report. The JSON names are stable.
type Document struct {
	Version int       `json:"version"`
	Date    time.Time `json:"date"` // of its end, UTC
	Seconds float64   `json:"seconds"`
	Quick   bool      `json:"quick,omitempty"` // the figures mean nothing
	Error   string    `json:"error,omitempty"` // what ended it early
	Machine Machine   `json:"machine"`

	FreeMemory *trial.MemoryReport `json:"free_memory,omitempty"` // in which state it was before the runs; nil: nobody tells

	Results trial.Results  `json:"results"`
	Figures []bench.Figure `json:"figures"`
}

// Machine is what a run's figures depend on. It has no name.
type Machine struct {
	CPU    string `json:"cpu"` // model
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// New makes the document of results that were measured on this machine between start and now.
func New(results trial.Results, start, now time.Time) Document {
	return Document{
		Version: Version, Date: now.UTC().Truncate(time.Second), Seconds: now.Sub(start).Seconds(), Machine: ThisMachine(),
		Results: results, Figures: results.Figures(),
	}
}

// Unjudged marks the document as a quick run's, whose figures are held to no bound.
func (d *Document) Unjudged() {
	d.Quick = true
	for i := range d.Figures {
		if d.Figures[i].Why == "" {
			d.Figures[i].Verdict = bench.Reported
		}
	}
}

// WriteTable prints all reports, and at the end each figure with its bound.
func (d Document) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, %s, Linux %s, %s\n", d.Machine.CPU, d.Machine.Cores, bench.MiB(d.Machine.Memory), d.Machine.Kernel, d.Machine.Go)
	if d.FreeMemory != nil {
		fmt.Fprintln(w, *d.FreeMemory)
	}
	fmt.Fprintln(w)
	for _, r := range d.Results.Reports() {
		r.WriteTable(w)
		fmt.Fprintln(w)
	}
	bench.WriteFigures(w, d.Figures)
	if d.Quick {
		fmt.Fprintln(w, "A quick run: its figures mean nothing.")
	}
	for _, fault := range d.Results.Faults() {
		fmt.Fprintln(w, fault)
	}
}

// ThisMachine describes the machine; what cannot be found out is "unknown" or 0.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = cpuModel(string(text))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel, _, _ = strings.Cut(unix.ByteSliceToString(name.Release[:]), "-") // the number; the rest is a builder's
	}
	return m
}

// cpuModel finds the model in the text of /proc/cpuinfo.
func cpuModel(text string) string {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if k := strings.TrimSpace(key); (k == "model name" || k == "Model") && strings.TrimSpace(value) != "" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "unknown " + runtime.GOARCH
}

// name is what the document's files are called, without extension: date, time and CPU model.
func (d Document) name() string {
	return d.Date.Format("2006-01-02-150405") + "_" + slug(d.Machine.CPU)
}

// slug keeps letters and digits, in lower case, with single dashes between them.
func slug(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "-")
}

// Save writes the document to dir as JSON and as HTML, which also shows earlier documents of dir that come of the same CPU model.
// It returns the paths.
func Save(dir string, d Document) (jsonPath, htmlPath string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	earlier, err := load(dir, d.Machine.CPU)
	if err != nil {
		return "", "", err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return "", "", err
	}
	base := filepath.Join(dir, d.name())
	jsonPath, htmlPath = base+".json", base+".html"
	return jsonPath, htmlPath, errors.Join(os.WriteFile(jsonPath, append(text, '\n'), 0o644), SaveHTML(htmlPath, d, earlier))
}

// SaveHTML writes the page to a file.
func SaveHTML(path string, d Document, earlier []Document) error {
	var page bytes.Buffer
	if err := WriteHTML(&page, d, earlier); err != nil {
		return err
	}
	return os.WriteFile(path, page.Bytes(), 0o644)
}

// load reads the documents of dir that are of this version and CPU model, the oldest first.
func load(dir, cpu string) ([]Document, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var out []Document
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var d Document
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: no report: %w; move it elsewhere", path, err)
		}
		if d.Version == Version && d.Machine.CPU == cpu && !d.Quick {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Document) int { return a.Date.Compare(b.Date) })
	return out, nil
}
