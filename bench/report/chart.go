package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// chart is a drawing of lines.
type chart struct {
	title, x, y string
	lines       []line
	bounds      []line // dashed: what lines are held to; two points each
	logY        bool
	xTicks      []tick // none: chosen by the values
}

type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

type tick struct {
	at   float64
	text string
}

// Measures of a drawing.
const (
	chartWidth, chartHeight = 640, 300
	left, right, top, below = 70, 24, 14, 40
	legendRow               = 18
)

var colours = [...]string{"#1f6fb4", "#d1662b", "#3a8f4a", "#b03a5b", "#7457a6", "#7d6b4f", "#4aa3a2", "#6b6b6b"}

// scale maps values to a range of pixels.
type scale struct {
	low, high float64
	from, to  float64
	log       bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// svg is the drawing as an element of an HTML page; empty if there is nothing to draw.
func (c chart) svg() string {
	c.lines = drawable(c.lines, c.logY)
	if len(c.lines) == 0 {
		return ""
	}
	all := slices.Concat(c.lines, drawable(c.bounds, c.logY))
	x, y := c.scales(all)
	height := chartHeight + legendRow*((len(all)+1)/2)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img"><title>%s</title>`, chartWidth, height, html.EscapeString(c.title))
	c.axes(&b, x, y)
	for i, l := range all {
		bound := i >= len(c.lines)
		c.line(&b, l, x, y, colours[i%len(colours)], bound)
		c.legend(&b, i, l.name, bound)
	}
	b.WriteString("</svg>")
	return b.String()
}

// drawable leaves out what has no place in a drawing.
func drawable(lines []line, logY bool) []line {
	var out []line
	for _, l := range lines {
		l.points = slices.DeleteFunc(slices.Clone(l.points), func(p point) bool {
			return math.IsNaN(p.y) || math.IsInf(p.y, 0) || (logY && p.y <= 0)
		})
		if len(l.points) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func (c chart) scales(lines []line) (x, y scale) {
	first := lines[0].points[0]
	x = scale{low: first.x, high: first.x, from: left, to: chartWidth - right}
	y = scale{low: first.y, high: first.y, from: chartHeight - below, to: top, log: c.logY}
	for _, l := range lines {
		for _, p := range l.points {
			x.low, x.high = min(x.low, p.x), max(x.high, p.x)
			y.low, y.high = min(y.low, p.y), max(y.high, p.y)
		}
	}
	for _, t := range c.xTicks {
		x.low, x.high = min(x.low, t.at), max(x.high, t.at)
	}
	if c.logY {
		y.low, y.high = math.Floor(math.Log10(y.low)), math.Ceil(math.Log10(y.high))
	} else {
		y.low, y.high = min(y.low, 0), max(y.high, 0)
		y.high += (y.high - y.low) / 20
	}
	x.high = wider(x.low, x.high)
	y.high = wider(y.low, y.high)
	return x, y
}

// wider is high, or more if there were no room between the two.
func wider(low, high float64) float64 {
	if high > low {
		return high
	}
	return low + 1
}

func (c chart) axes(b *strings.Builder, x, y scale) {
	yTicks := niceTicks(y.low, y.high)
	if c.logY {
		yTicks = decades(y.low, y.high)
	}
	xTicks := c.xTicks
	if xTicks == nil {
		xTicks = niceTicks(x.low, x.high)
	}
	for _, t := range yTicks {
		at := y.at(t.at)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, chartWidth-right, at, at)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, left-6, at+4, html.EscapeString(t.text))
	}
	for _, t := range xTicks {
		at := x.at(t.at)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, top, chartHeight-below)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, at, chartHeight-below+16, html.EscapeString(t.text))
	}
	middle := (top + chartHeight - below) / 2
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, (left+chartWidth-right)/2, chartHeight-6, html.EscapeString(c.x))
	fmt.Fprintf(b, `<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">%s</text>`, middle, middle, html.EscapeString(c.y))
}

func (c chart) line(b *strings.Builder, l line, x, y scale, colour string, bound bool) {
	var at []string
	for _, p := range l.points {
		at = append(at, fmt.Sprintf("%.1f,%.1f", x.at(p.x), y.at(p.y)))
	}
	dash := ""
	if bound {
		colour, dash = "#555", ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`, colour, dash, strings.Join(at, " "))
	if bound || len(l.points) > 40 {
		return
	}
	for _, p := range l.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, x.at(p.x), y.at(p.y), colour)
	}
}

// legend puts names below the drawing, two in a row.
func (c chart) legend(b *strings.Builder, i int, name string, bound bool) {
	colour := colours[i%len(colours)]
	if bound {
		colour = "#555"
	}
	x, y := left+(i%2)*(chartWidth-left)/2, chartHeight+legendRow*(i/2)+8
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="14" height="4" fill="%s"/>`, x, y-4, colour)
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`, x+20, y, html.EscapeString(name))
}

// niceTicks are about five round values between low and high.
func niceTicks(low, high float64) []tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	var out []tick
	for n := math.Ceil(low / step); n*step <= high+step/1e6; n++ {
		out = append(out, tick{n * step, number(n * step)})
	}
	return out
}

// decades are the powers of ten between two logarithms.
func decades(low, high float64) []tick {
	var out []tick
	for n := low; n <= high; n++ {
		v := math.Pow(10, n)
		out = append(out, tick{v, number(v)})
	}
	return out
}

// number has no more digits than the value needs, and no exponent.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1e9)/1e9, 'f', -1, 64)
}
