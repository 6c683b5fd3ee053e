package merge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

type refusals struct{ list []Refusal }

func (r *refusals) add(plugin, kind string, field *ReportField, reason error) {
	part, known := partNames[field.Part]
	if !known {
		part = strconv.Itoa(int(field.Part))
	}
	r.list = append(r.list, Refusal{
		Plugin: plugin, Kind: kind, Field: part + "." + cut(field.Name), Reason: reason.Error(),
	})
}

func (r *refusals) unknownKind(plugin string, kind schema.GroupVersionKind) {
	r.list = append(r.list, Refusal{
		Plugin: plugin, Kind: cut(kind.Group) + "/" + cut(kind.Version) + "/" + cut(kind.Kind),
		Reason: "unknown kind: must be " + nameOfKind(kindNames),
	})
}

// sorted returns each refusal once.
func (r *refusals) sorted() []Refusal {
	slices.SortFunc(r.list, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(r.list)
}

func nameOfKind(kinds map[schema.GroupVersionKind]string) string {
	var names []string
	for kind := range kinds {
		names = append(names, strings.TrimPrefix(kind.Group+"/"+kind.Version+"/"+kind.Kind, "/"))
	}
	slices.Sort(names)
	return strings.Join(names, " or ")
}

// cut shortens text of a plugin for messages.
func cut(text string) string { return cutTo(text, 80) }

// cutTo shortens text to a number of bytes.
func cutTo(text string, most int) string {
	if len(text) <= most {
		return strings.ToValidUTF8(text, "�")
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.ToValidUTF8(text[:end], "�") + "…"
}
