package conformance

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Comparison has specs by the kubelet with which they pass. Those that pass with neither cannot run on this machine, or
// are broken upstream.
type Comparison struct {
	Both      []string
	OnlyStock []string
	OnlyOurs  []string
	Neither   []string
}

// Compare compares two results. Specs that both skipped are left out.
func Compare(stock, ours Results) Comparison {
	var c Comparison
	names := maps.Clone(stock)
	maps.Copy(names, ours)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s, o := stock[name].State, ours[name].State
		switch {
		case s == passed && o == passed:
			c.Both = append(c.Both, name)
		case s == passed:
			c.OnlyStock = append(c.OnlyStock, name)
		case o == passed:
			c.OnlyOurs = append(c.OnlyOurs, name)
		case s != "skipped" && o != "skipped":
			c.Neither = append(c.Neither, name)
		}
	}
	return c
}

// Percent returns how much of what passes with stock passes with ours.
func (c Comparison) Percent() float64 {
	all := len(c.Both) + len(c.OnlyStock)
	if all == 0 {
		return 100
	}
	return 100 * float64(len(c.Both)) / float64(all)
}

// Write prints the table, and below it the specs that differ, with their failures.
func (c Comparison) Write(w io.Writer, ours Results) {
	list := func(title string, names []string) {
		if len(names) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, name := range names {
			o := ours[name]
			if o.State == "" {
				o.State = "not run"
			}
			fmt.Fprintf(w, "  %s: %s\n", o.State, name)
			if o.Failure != "" {
				fmt.Fprintf(w, "      %s\n", o.Failure)
			}
		}
	}
	list("Only with stock", c.OnlyStock)
	list("With neither", c.Neither)
	var again []string
	for _, name := range c.Both {
		if ours[name].Tries > 1 {
			again = append(again, name)
		}
	}
	list("Passed at a later try", again)
	fmt.Fprintf(w, "\n%-20s %5d\n%-20s %5d\n%-20s %5d\n%-20s %5d\n",
		"passed by both", len(c.Both), "only stock", len(c.OnlyStock),
		"only ours", len(c.OnlyOurs), "neither", len(c.Neither))
}
