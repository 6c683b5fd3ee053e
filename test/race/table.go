package race

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Line describes a run in one line.
func (r *Run) Line() string {
	result := "won"
	if !r.Won {
		result = "lost"
	}
	text := fmt.Sprintf("%v: %s, reached %d MiB/s", r.Cell, result, r.Reached)
	if !r.Crossed {
		text += ", threshold not met"
	}
	if r.Fenced >= 0 {
		text += fmt.Sprintf(", fenced after %.1f ms at %d MiB, %d MiB beyond the threshold", r.Fenced, r.Fence, r.Beyond)
	}
	text += fmt.Sprintf(", ended after %.0f ms, freed after %.0f ms, lowest %d MiB, gap %.1f ms", r.Ended, r.Freed,
		r.Lowest, r.Gap)
	for _, oom := range r.OOMs {
		text += fmt.Sprintf("; OOM at the limit of %s killed in %q", oom.Limit, oom.Victim)
	}
	for _, container := range r.Misreported {
		text += "; wrong reason of " + container
	}
	for _, lost := range r.Lost {
		text += "; lost " + lost
	}
	for _, s := range r.Hogs {
		text += fmt.Sprintf("; %s %s %s %v %q", s.Pod, s.Phase, s.Reason, s.Containers, s.Message)
	}
	return text
}

// Table returns a table in Markdown with a row for each cell.
func Table(runs []Run) string {
	var b strings.Builder
	b.WriteString("| cgroups | kubelet | hog | page cache | headroom, MiB | growth asked for, MiB/s | reached | runs | " +
		"won | crossing to fence, ms | crossing to end of the hog, ms | least left, MiB | OOM kills |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, cell := range byCell(runs) {
		c := cell[0].Cell
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %s | %d | %d | %s | %s | %s | %s |\n", cell[0].Cgroups, c.Kubelet,
			c.Kind, c.Cache, c.Headroom, c.Rate, spread(cell, func(r Run) float64 { return float64(r.Reached) }), len(cell),
			countWon(cell),
			spread(cell, func(r Run) float64 { return r.Fenced }), spread(cell, func(r Run) float64 { return r.Ended }),
			spread(cell, func(r Run) float64 { return float64(r.Lowest) }), ooms(cell))
	}
	return b.String()
}

// byCell returns the runs of each version of cgroups and each cell, in the order of cells.
func byCell(runs []Run) [][]Run {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Cgroups, b.Cgroups), compareCells(a.Cell, b.Cell))
	})
	var cells [][]Run
	for begin := 0; begin < len(sorted); {
		end := begin + 1
		for end < len(sorted) && sorted[end].Cell == sorted[begin].Cell && sorted[end].Cgroups == sorted[begin].Cgroups {
			end++
		}
		cells, begin = append(cells, sorted[begin:end]), end
	}
	return cells
}

func countWon(runs []Run) (won int) {
	for i := range runs {
		if runs[i].Won {
			won++
		}
	}
	return won
}

// spread returns the least and the greatest value, without those that are below zero.
func spread(runs []Run, value func(Run) float64) string {
	var values []float64
	for _, r := range runs {
		if v := value(r); v >= 0 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return "–"
	}
	least, greatest := number(slices.Min(values)), number(slices.Max(values))
	if least == greatest {
		return least
	}
	return least + "–" + greatest
}

func number(v float64) string {
	if v < 10 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	return fmt.Sprintf("%.0f", v)
}

// ooms says whose limits were exceeded, and in which pods processes were killed.
func ooms(runs []Run) string {
	counts := map[string]int{}
	for i := range runs {
		for _, oom := range runs[i].OOMs {
			victim := strings.TrimRight(oom.Victim, "-0123456789")
			if victim == "" {
				victim = "another"
			}
			counts[fmt.Sprintf("%s at the limit of %s", victim, oom.Limit)]++
		}
	}
	var list []string
	for text, n := range counts {
		list = append(list, fmt.Sprintf("%d × %s", n, text))
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
