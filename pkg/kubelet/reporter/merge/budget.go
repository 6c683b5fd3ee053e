package merge

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits of an object. Beyond them the API server refuses the whole object, so that one plugin would keep out what all
// others report: etcd takes requests of 1.5 MiB, and ValidateAnnotationsSize allows 256 KiB of annotations.
const (
	MaxObjectBytes      = 1 << 20
	MaxAnnotationsBytes = 256 << 10
)

// keepWithin removes the values of plugins that make the fields of a kind, or those with a path if it is not empty,
// longer than a limit. The plugins that report least are served first, so that one that reports much keeps no other
// out.
func keepWithin(most int, kind, path string, given map[place][]value, refusals *refusals) {
	sizes := map[string]int{}
	within := func(at place) bool { return at.kind == kind && (path == "" || at.path == path) }
	for at, values := range given {
		for _, v := range values {
			if within(at) {
				sizes[v.plugin] += v.size
			}
		}
	}
	plugins := make([]string, 0, len(sizes))
	for plugin := range sizes {
		plugins = append(plugins, plugin)
	}
	slices.SortFunc(plugins, func(a, b string) int { return cmp.Or(cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a, b)) })
	total := 0
	for _, plugin := range plugins {
		if total += sizes[plugin]; total <= most {
			continue
		}
		refusals.list = append(refusals.list, Refusal{Plugin: plugin, Kind: kind, Field: path, Reason: fmt.Sprintf(
			"has %d bytes: at most %d are allowed for all plugins together", sizes[plugin], most)})
		for at, values := range given {
			if within(at) {
				given[at] = slices.DeleteFunc(values, func(v value) bool { return v.plugin == plugin })
			}
		}
	}
}
