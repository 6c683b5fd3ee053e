package merge_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// given is a leaf that a plugin gives.
type given struct{ plugin, text string }

// naive merges by a flat table of leaves: it sorts what was given for each of them, and takes the first.
func naive(reports []randomReport) (leaves map[string]string, conflicts []merge.Conflict) {
	all := map[string][]given{}
	for _, report := range reports {
		for _, content := range report.contents {
			for _, field := range content.fields {
				if field.bad || content.unknown {
					continue
				}
				prefix := field.shape.kind + " " + field.shape.path
				flatten(field.shape.shape, prefix, field.tree, func(path, text string) {
					key := mapKeyOf(field.shape, path[len(prefix):])
					if key == "" || keyAllowed(field.shape.kind, field.shape.path, key) {
						all[path] = append(all[path], given{report.plugin, text})
					}
				})
			}
		}
	}
	leaves = map[string]string{}
	for path, list := range all {
		slices.SortFunc(list, func(a, b given) int {
			return cmp.Or(cmp.Compare(a.plugin, b.plugin), cmp.Compare(a.text, b.text))
		})
		leaves[path] = list[0].text
		for _, g := range list[1:] {
			if !same(g.text, list[0].text) {
				kind, path, _ := strings.Cut(path, " ")
				conflicts = append(conflicts, merge.Conflict{Kind: kind, Path: path, Used: list[0].plugin, Ignored: g.plugin})
			}
		}
	}
	return withoutEmptyMaps(leaves), sortedConflicts(conflicts)
}

// mapKeyOf returns the key of a path in a field that is a map.
func mapKeyOf(field fieldShape, path string) string {
	if field.shape.is != "texts" && (field.kind != "Node" || field.shape.is != "quantities") || path == "{}" {
		return ""
	}
	return strings.Trim(path, "[]")
}

// withoutEmptyMaps removes fields that are empty maps. Inside of a field an empty map is a value.
func withoutEmptyMaps(leaves map[string]string) map[string]string {
	maps.DeleteFunc(leaves, func(path, _ string) bool {
		return slices.ContainsFunc(fieldShapes, func(f fieldShape) bool {
			return path == f.kind+" "+f.path+"{}"
		})
	})
	return leaves
}

func same(a, b string) bool {
	x, errX := resource.ParseQuantity(strings.Trim(a, `"`))
	y, errY := resource.ParseQuantity(strings.Trim(b, `"`))
	return a == b || errX == nil && errY == nil && x.Cmp(y) == 0
}

func sortedConflicts(list []merge.Conflict) []merge.Conflict {
	slices.SortFunc(list, func(a, b merge.Conflict) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(list)
}

func inUTC(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t.UTC().Format(time.RFC3339)
}
