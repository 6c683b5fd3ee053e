package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// How many specs are run before the results are saved. The node suite starts and stops its own control plane for each
// batch. In a virtual machine each spec may take minutes.
const (
	batch        = 60
	machineBatch = 20
	// serialShare is what part of a batch serial specs are, which take longest.
	serialShare = 4
)

// kind is how specs are run. A batch has specs of one kind.
type kind int

const (
	// parallel specs run in parallel.
	parallel kind = iota
	// serial specs run alone. In a batch with others, each would wait for the slowest of them.
	serial
	// slow specs run in parallel and delay others.
	slow
	kinds
)

// group is the specs of one container. The specs of an ordered container depend on each other, so that a group is run
// as a whole or not at all.
type group struct {
	container string
	names     []string
	kind      kind
}

// groupsOf groups specs by their container.
func groupsOf(specs []spec) []group {
	byContainer := map[string]group{}
	for _, s := range specs {
		container := strings.Join(s.Containers, " ")
		g := byContainer[container]
		byContainer[container] = group{container: container, names: append(g.names, s.name())}
	}
	byName := func(a, b group) int { return cmp.Compare(a.container, b.container) }
	groups := slices.SortedFunc(maps.Values(byContainer), byName)
	for i := range groups {
		groups[i].kind = kindOf(groups[i].names)
	}
	return groups
}

func kindOf(names []string) kind {
	has := func(label string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, label) })
	}
	switch {
	case has("[Serial]"):
		return serial
	case has("[Slow]"):
		return slow
	}
	return parallel
}

// remaining returns the groups of which not all specs have passed.
func remaining(groups []group, results Results) []group {
	var left []group
	for _, g := range groups {
		if slices.ContainsFunc(g.names, func(name string) bool { return results[name].State != passed }) {
			left = append(left, g)
		}
	}
	return left
}

// count returns the number of specs of groups.
func count(groups []group) int {
	n := 0
	for _, g := range groups {
		n += len(g.names)
	}
	return n
}

// batches joins groups of one kind to batches of a size: first those that run in parallel, then those that run alone,
// at last the slow ones.
func batches(groups []group, size int) [][]string {
	byKind := make([][]group, kinds)
	for _, g := range groups {
		byKind[g.kind] = append(byKind[g.kind], g)
	}
	return slices.Concat(pack(byKind[parallel], size), pack(byKind[serial], size/serialShare),
		pack(byKind[slow], size))
}

// pack joins groups to batches of at least size, except for the last.
func pack(groups []group, size int) [][]string {
	var packed [][]string
	for _, g := range groups {
		if last := len(packed) - 1; last >= 0 && len(packed[last]) < size {
			packed[last] = append(packed[last], g.names...)
			continue
		}
		packed = append(packed, slices.Clone(g.names))
	}
	return packed
}
