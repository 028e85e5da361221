package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"tandem/bench"
)

//go:embed page.html
var pageText string

// page is what the template shows.
type page struct {
	Document
	Memory string
	Charts []drawing
	Tables string // the reports as plain text
	Faults []string
}

type drawing struct {
	Title string
	SVG   template.HTML // made by chart.svg, which escapes all text
}

// WriteHTML writes the document as one page: figures, drawings, and all tables. Of earlier documents it shows the course of the figures.
func WriteHTML(w io.Writer, d Document, earlier []Document) error {
	t, err := template.New("page").Funcs(template.FuncMap{"verdictClass": verdictClass}).Parse(pageText)
	if err != nil {
		return err
	}
	p := page{Document: d, Memory: bench.MiB(d.Machine.Memory), Faults: d.Results.Faults()}
	for _, c := range charts(d, earlier) {
		if svg := c.svg(); svg != "" {
			p.Charts = append(p.Charts, drawing{c.title, template.HTML(svg)})
		}
	}
	var tables strings.Builder
	for _, r := range d.Results.Reports() {
		r.WriteTable(&tables)
		fmt.Fprintln(&tables)
	}
	p.Tables = tables.String()
	return t.Execute(w, p)
}

func verdictClass(v bench.Verdict) string {
	switch v {
	case bench.Holds:
		return "holds"
	case bench.Short:
		return "short"
	case bench.InNoise, bench.Unknown:
		return "open"
	}
	return ""
}
