package app

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/simulate"
)

// The size of the picture and of its margins.
const (
	svgWidth, svgHeight                  = 1000, 420
	svgLeft, svgRight, svgTop, svgBottom = 90, 20, 40, 60
	svgMarks                             = 40 // evictions with a label
	colorRecorded, colorPlan, colorLimit = "#5b6770", "#1f6feb", "#c62828"
)

// drawing returns an SVG of what was available and what would have been, with the evictions of both.
func drawing(r *simulate.Result) []byte {
	d := &svg{r: r}
	d.scale()
	fmt.Fprintf(&d.out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12">`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&d.out, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, svgHeight)
	d.text(svgLeft, 20, "start", "black",
		fmt.Sprintf("%s: recorded (grey), plan (blue), threshold of the plan (red)", r.Signal))
	d.axes()
	d.line(colorLimit, "4 3", func(p *simulate.Point) int64 { return p.Threshold })
	d.line(colorRecorded, "", func(p *simulate.Point) int64 { return p.Recorded })
	d.line(colorPlan, "", func(p *simulate.Point) int64 { return p.Planned })
	d.marks(r.Recorded, colorRecorded, svgHeight-svgBottom+30)
	d.marks(r.Planned, colorPlan, svgHeight-svgBottom+46)
	d.out.WriteString("</svg>\n")
	return d.out.Bytes()
}

type svg struct {
	r        *simulate.Result
	out      bytes.Buffer
	from, to time.Time
	most     int64
}

// scale determines the ranges of both axes.
func (d *svg) scale() {
	d.from, d.to, d.most = d.r.From, d.r.To, 1
	if !d.to.After(d.from) {
		d.to = d.from.Add(time.Second)
	}
	for i := range d.r.Course {
		p := &d.r.Course[i]
		d.most = max(d.most, p.Recorded, p.Planned, p.Threshold)
	}
}

func (d *svg) x(t time.Time) float64 {
	share := float64(t.Sub(d.from)) / float64(d.to.Sub(d.from))
	return svgLeft + min(max(share, 0), 1)*(svgWidth-svgLeft-svgRight)
}

func (d *svg) y(amount int64) float64 {
	return svgHeight - svgBottom - float64(max(amount, 0))/float64(d.most)*(svgHeight-svgTop-svgBottom)
}

// text writes a text; names of pods may have any characters.
func (d *svg) text(x, y float64, anchor, color, text string) {
	fmt.Fprintf(&d.out, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">`, x, y, anchor, color)
	_ = xml.EscapeText(&d.out, []byte(plain(text))) // A buffer does not fail.
	d.out.WriteString("</text>\n")
}

func (d *svg) axes() {
	const steps = 4
	for i := range steps + 1 {
		at := d.most / steps * int64(i)
		fmt.Fprintf(&d.out, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`+"\n", svgLeft, d.y(at),
			svgWidth-svgRight, d.y(at))
		d.text(svgLeft-8, d.y(at)+4, "end", "black", amount(d.r.Signal, at))
		t := d.from.Add(d.to.Sub(d.from) / steps * time.Duration(i))
		// In UTC, so that the same result is the same picture.
		d.text(d.x(t), svgHeight-svgBottom+16, "middle", "black", t.UTC().Format("01-02 15:04:05"))
	}
}

func (d *svg) line(color, dash string, value func(*simulate.Point) int64) {
	var points strings.Builder
	last := int64(-1)
	for i := range d.r.Course {
		p := &d.r.Course[i]
		n := value(p)
		if n == last && i+1 < len(d.r.Course) && value(&d.r.Course[i+1]) == n {
			continue // a straight line
		}
		last = n
		fmt.Fprintf(&points, "%.1f,%.1f ", d.x(p.Time), d.y(n))
	}
	if points.Len() == 0 {
		return
	}
	fmt.Fprintf(&d.out, `<polyline fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s" points="%s"/>`+"\n",
		color, dash, strings.TrimSpace(points.String()))
}

// marks shows evictions as vertical lines, the first ones with the names of the pods.
func (d *svg) marks(list []simulate.Eviction, color string, y float64) {
	for i := range list {
		e := &list[i]
		x := d.x(e.Time)
		fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x, svgTop, x, y-10, color)
		if i < svgMarks {
			d.text(x, y, "middle", color, e.Name)
		}
	}
}
