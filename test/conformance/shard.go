package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shard is one of several parts of a suite, which can run on different machines. The zero value is the whole suite.
type Shard struct {
	// Index counts from one.
	Index int
	Count int
}

// ParseShard decodes "i/n", the i-th of n parts, as String returns it. The empty string is the whole suite.
func ParseShard(text string) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	index, count, _ := strings.Cut(text, "/")
	i, indexErr := strconv.Atoi(index)
	n, countErr := strconv.Atoi(count)
	if indexErr != nil || countErr != nil || i < 1 || i > n {
		return Shard{}, fmt.Errorf("%q is no part of a suite, allowed is i/n with 1 ≤ i ≤ n, as in 2/4", text)
	}
	return Shard{Index: i, Count: n}, nil
}

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Count) }

// load is the number of specs of a shard, by kind.
type load struct {
	kinds [kinds]int
	all   int
}

// of returns the groups of this shard. The same groups are always divided in the same way: slow and serial groups
// first, each to the shard with the fewest specs of its kind, then the others, the biggest first, each to the shard
// with the fewest specs. Of equal shards the first one gets the group. The order of groups is kept.
func (s Shard) of(groups []group) []group {
	if s == (Shard{}) {
		return groups
	}
	order := slices.SortedFunc(slices.Values(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(len(b.names), len(a.names)),
			cmp.Compare(a.container, b.container))
	})
	loads := make([]load, s.Count)
	mine := map[string]bool{}
	for _, g := range order {
		to := 0
		for i := range loads {
			if loads[i].less(loads[to], g.kind) {
				to = i
			}
		}
		loads[to].kinds[g.kind] += len(g.names)
		loads[to].all += len(g.names)
		if to == s.Index-1 {
			mine[g.container] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return !mine[g.container] })
}

// less returns whether a shard with this load gets a group of this kind rather than one with the other load.
func (l load) less(other load, kind kind) bool {
	if kind == parallel {
		return l.all < other.all
	}
	return cmp.Or(cmp.Compare(l.kinds[kind], other.kinds[kind]), cmp.Compare(l.all, other.all)) < 0
}
