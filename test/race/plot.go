package race

import (
	"fmt"
	"math"
	"strings"
)

const (
	plotWidth          = 900
	plotLeft, plotTop  = 215, 40
	plotRight, plotRow = 20, 26
)

// Plot returns a picture (SVG) of the runs with besteffort hogs: a row for each version of cgroups, kubelet, page cache
// and headroom, a dot for each run at the rate that was reached, green if it was won.
func Plot(runs []Run) string {
	var rows []string
	at := map[string]int{}
	var dots strings.Builder
	for _, cell := range byCell(runs) {
		c := cell[0].Cell
		if c.Kind != BestEffort {
			continue
		}
		row := fmt.Sprintf("%s, %s, %s, %d MiB", cell[0].Cgroups, c.Kubelet, c.Cache, c.Headroom)
		if _, ok := at[row]; !ok {
			at[row] = len(rows)
			rows = append(rows, row)
		}
		for i := range cell {
			fill, title := "#0a7d32", "won"
			if !cell[i].Won {
				fill, title = "#c0392b", "lost"
			}
			// Runs of a cell are beside each other in the height.
			y := plotTop + at[row]*plotRow + plotRow/2 + (i%5-2)*3
			fmt.Fprintf(&dots, `<circle cx="%d" cy="%d" r="4" fill="%s" fill-opacity="0.7"><title>%s: %s</title></circle>`+"\n",
				plotX(cell[i].Reached), y, fill, c, title)
		}
	}
	height := plotTop + len(rows)*plotRow + 50
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="12">`+"\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		plotWidth, height)
	fmt.Fprintf(&b, `<text x="%d" y="20">Growth reached at the threshold, MiB/s: green is won, red is lost</text>`+"\n",
		plotLeft)
	for i, row := range rows {
		y := plotTop + i*plotRow
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`+"\n", y+plotRow/2+4, row)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#ddd"/>`+"\n", plotLeft, plotWidth-plotRight,
			y+plotRow, y+plotRow)
	}
	for _, rate := range []int64{10, 20, 50, 100, 200, 400, 1000, 2000, 4000} {
		x := plotX(rate)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="#eee"/>`+"\n", x, x, plotTop, height-40)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%d</text>`+"\n", x, height-22, rate)
	}
	b.WriteString(dots.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// plotX returns the place of a rate, on a logarithmic axis from 10 to 4,000 MiB/s.
func plotX(rate int64) int {
	share := math.Log(float64(max(10, min(4000, rate)))/10) / math.Log(400)
	return plotLeft + 10 + int(share*float64(plotWidth-plotRight-plotLeft-20))
}
