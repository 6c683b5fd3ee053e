package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// How many specs are run between two savings of the results. The node suite
// starts and stops its own control plane for each batch. Serial specs take
// longest.
const (
	batch       = 60
	serialBatch = 15
)

// kind is how specs run: they are not mixed with those of other kinds.
type kind int

const (
	// parallel specs run side by side.
	parallel kind = iota
	// serial ones run alone, each of them would wait for the slowest of the
	// others.
	serial
	// slow ones run side by side and keep others waiting.
	slow
	kinds
)

// group is what stands in one container: the specs of an ordered container
// depend on each other, so that they are run together or not at all.
type group struct {
	container string
	names     []string
	kind      kind
}

// groupsOf sorts specs by the container they stand in.
func groupsOf(specs []spec) []group {
	byContainer := map[string]group{}
	for _, s := range specs {
		container := strings.Join(s.Containers, " ")
		g := byContainer[container]
		byContainer[container] = group{container: container, names: append(g.names, s.name())}
	}
	groups := slices.SortedFunc(maps.Values(byContainer), func(a, b group) int { return cmp.Compare(a.container, b.container) })
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

// remaining are the groups that have not passed as a whole.
func remaining(groups []group, results Results) []group {
	var left []group
	for _, g := range groups {
		if slices.ContainsFunc(g.names, func(name string) bool { return results[name].State != passed }) {
			left = append(left, g)
		}
	}
	return left
}

// count is how many specs groups have.
func count(groups []group) int {
	n := 0
	for _, g := range groups {
		n += len(g.names)
	}
	return n
}

// batches puts groups of one kind together: first those that run side by side,
// then those that run alone, at last the slow ones.
func batches(groups []group) [][]string {
	byKind := make([][]group, kinds)
	for _, g := range groups {
		byKind[g.kind] = append(byKind[g.kind], g)
	}
	return slices.Concat(pack(byKind[parallel], batch), pack(byKind[serial], serialBatch), pack(byKind[slow], batch))
}

// pack joins groups to batches of at least size, but for the last.
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
