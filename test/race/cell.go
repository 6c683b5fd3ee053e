package race

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The kubelets that are compared.
const (
	// Ours is the kubelet of this repository with eviction.fence Auto, OursOff the same with Off.
	Ours    = "ours"
	OursOff = "ours-off"
	// Stock polls memory; StockNotify has --kernel-memcg-notification.
	Stock       = "stock"
	StockNotify = "stock-notify"
)

// The states of the page cache of all pods.
const (
	// Cold: the pods have little page cache. Warm: page cache fills the cgroup of all pods.
	Cold = "cold"
	Warm = "warm"
)

// The kinds of hogs.
const (
	// BestEffort is a hog without requests; the others are described where their pods are made.
	BestEffort = "besteffort"
	Burstable  = "burstable"
	Three      = "three"
	Init       = "init"
	Sidecar    = "sidecar"
	Forking    = "forking"
	MemoryFile = "memoryfile"
	// Mild ends at SIGTERM, all others ignore it.
	Mild = "mild"
	// Critical cannot be saved from: critical pods are never evicted.
	Critical = "critical"
	// WholeNode is a BestEffort hog on a node whose pods have no limit together, so that it uses up the memory of the
	// machine. It runs only in a virtual machine, with a cold page cache.
	WholeNode = "wholenode"
)

// Cell is one cell of the matrix.
type Cell struct {
	Kubelet string `json:"kubelet"`
	Kind    string `json:"kind"`
	Cache   string `json:"cache"`
	// Headroom is the eviction threshold in MiB.
	Headroom int64 `json:"headroom"`
	// Rate is the growth that the hog is told, in MiB per second. That of three hogs is the growth of each.
	Rate int64 `json:"rate"`
}

// String names the cell in progress reports and errors.
func (c Cell) String() string {
	return fmt.Sprintf("%s %s %s, %d MiB/s at %d MiB", c.Kubelet, c.Kind, c.Cache, c.Rate, c.Headroom)
}

func compareCells(a, b Cell) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Kubelets(), a.Kubelet), slices.Index(Kubelets(), b.Kubelet)),
		cmp.Compare(a.Headroom, b.Headroom), cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)),
		cmp.Compare(a.Cache, b.Cache), cmp.Compare(a.Rate, b.Rate))
}

// Kubelets lists the kubelets in the order in which they run and are shown.
func Kubelets() []string { return []string{Ours, OursOff, Stock, StockNotify} }

// Kinds lists the kinds of hogs in the order in which they run and are shown.
func Kinds() []string {
	return []string{BestEffort, Burstable, Three, Init, Sidecar, Forking, MemoryFile, Mild, Critical, WholeNode}
}

// Matrix is a part of the matrix: all combinations.
type Matrix struct {
	Kubelets, Kinds, Caches []string
	Headrooms, Rates        []int64
}

// Cells returns the cells so that the kubelet is restarted as seldom as possible.
func (m Matrix) Cells() []Cell {
	var cells []Cell
	for _, kubelet := range m.Kubelets {
		for _, kind := range m.Kinds {
			for _, cache := range m.Caches {
				for _, headroom := range m.Headrooms {
					for _, rate := range m.Rates {
						cells = append(cells, Cell{Kubelet: kubelet, Kind: kind, Cache: cache, Headroom: headroom, Rate: rate})
					}
				}
			}
		}
	}
	slices.SortFunc(cells, compareCells)
	return slices.Compact(cells)
}

// Names parses a list of names, separated by commas, each of which must be allowed.
func Names(text string, allowed []string) ([]string, error) {
	names := strings.Split(text, ",")
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("%q must be one of %s", name, strings.Join(allowed, ", "))
		}
	}
	return names, nil
}

// Numbers parses a list of numbers above zero, separated by commas.
func Numbers(text string) ([]int64, error) {
	var numbers []int64
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q must be a number above 0", part)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// Remaining returns how often each cell has still to be run on that version of cgroups, so that each has count runs of
// the present programs, which are given by the name of the kubelet.
func Remaining(cells []Cell, runs []Run, cgroups string, programs map[string]string, count int) map[Cell]int {
	remaining := map[Cell]int{}
	for _, c := range cells {
		remaining[c] = count
	}
	for i := range runs {
		c := runs[i].Cell
		if n := remaining[c]; n > 0 && runs[i].Program == programs[c.Kubelet] && runs[i].Cgroups == cgroups {
			remaining[c] = n - 1
		}
	}
	return remaining
}
