package merge

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// kindNames are the kinds that plugins can report.
var kindNames = map[schema.GroupVersionKind]string{
	node.GroupVersionKind: node.GroupVersionKind.Kind,
	NodeKind:              NodeKind.Kind,
}

var partNames = map[Part]string{Spec: "spec", Status: "status", Metadata: "metadata"}

// objectField is a field that plugins can report.
type objectField struct {
	kind string
	part Part
	// name is the name of the Go field, path is that in JSON.
	name, path string
	typ        reflect.Type
	// in returns the field of a result.
	in func(*Result) reflect.Value
	// filter removes what a plugin must not report, and returns an error that says what it removed.
	filter func(v reflect.Value, plugin string, options *Options) error
}

// allFields has all fields, sorted by kind and path.
var allFields = slices.SortedFunc(slices.Values(slices.Concat(
	fieldsOfStruct(Spec, reflect.TypeFor[node.CustomNodeResourceSpec](), func(r *Result) reflect.Value {
		return reflect.ValueOf(&r.CustomNodeResource.Spec).Elem()
	}),
	fieldsOfStruct(Status, reflect.TypeFor[node.CustomNodeResourceStatus](), func(r *Result) reflect.Value {
		return reflect.ValueOf(&r.CustomNodeResource.Status).Elem()
	}),
	[]*objectField{
		mapField(node.GroupVersionKind.Kind, Metadata, "Labels", labelRule,
			func(r *Result) *map[string]string { return &r.CustomNodeResource.Labels }),
		mapField(node.GroupVersionKind.Kind, Metadata, "Annotations", annotationRule,
			func(r *Result) *map[string]string { return &r.CustomNodeResource.Annotations }),
		mapField(NodeKind.Kind, Metadata, "Labels", nodeRule(labelRule),
			func(r *Result) *map[string]string { return &r.Node.Labels }),
		mapField(NodeKind.Kind, Metadata, "Annotations", nodeRule(annotationRule),
			func(r *Result) *map[string]string { return &r.Node.Annotations }),
		mapField(NodeKind.Kind, Status, "Capacity", nodeRule(extendedResourceRule),
			func(r *Result) *v1.ResourceList { return &r.Node.Capacity }),
		mapField(NodeKind.Kind, Status, "Allocatable", nodeRule(extendedResourceRule),
			func(r *Result) *v1.ResourceList { return &r.Node.Allocatable }),
	},
)), func(a, b *objectField) int { return strings.Compare(a.kind+"/"+a.path, b.kind+"/"+b.path) })

func fieldsOfStruct(part Part, t reflect.Type, in func(*Result) reflect.Value) (fields []*objectField) {
	for i := range t.NumField() {
		f := t.Field(i)
		fields = append(fields, &objectField{
			kind: node.GroupVersionKind.Kind, part: part, name: f.Name, path: partNames[part] + "." + jsonName(f), typ: f.Type,
			in:     func(r *Result) reflect.Value { return in(r).Field(i) },
			filter: func(reflect.Value, string, *Options) error { return nil },
		})
	}
	return fields
}

// mapField is a field whose value is a map. The rule is about each of its entries.
func mapField[M any](kind string, part Part, name string, rule entryRule, in func(*Result) *M) *objectField {
	return &objectField{
		kind: kind, part: part, name: name, path: partNames[part] + "." + strings.ToLower(name),
		typ: reflect.TypeFor[M](),
		in:  func(r *Result) reflect.Value { return reflect.ValueOf(in(r)).Elem() },
		filter: func(v reflect.Value, plugin string, options *Options) error {
			return filterEntries(v, func(key string, value reflect.Value) error { return rule(key, value, plugin, options) })
		},
	}
}

// fieldOf finds a field by what the protocol names it by.
func fieldOf(kind string, part Part, name string) (*objectField, error) {
	var names []string
	for _, f := range allFields {
		if f.kind != kind || f.part != part {
			continue
		}
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	switch _, known := partNames[part]; {
	case !known:
		return nil, fmt.Errorf("unknown field type %d: must be 0 (Spec), 1 (Status) or 2 (Metadata)", part)
	case len(names) == 0:
		return nil, fmt.Errorf("unknown field: no field of the %s of a %s can be reported", partNames[part], kind)
	default:
		return nil, fmt.Errorf("unknown field: must be one of %s", strings.Join(names, ", "))
	}
}

// ParseFields reads a list of fields that are left out, such as -status.topologyZone, and returns their paths, sorted.
// The error names the first entry that is not valid.
func ParseFields(list []string) (leaveOut []string, err error) {
	for i, entry := range list {
		path, minus := strings.CutPrefix(entry, "-")
		if !minus || !slices.ContainsFunc(allFields, func(f *objectField) bool { return f.path == path }) {
			return nil, fmt.Errorf("fields[%d]: %q: must be - and one of %s", i, cut(entry), strings.Join(fieldPaths(), ", "))
		}
		leaveOut = append(leaveOut, path)
	}
	slices.Sort(leaveOut)
	return slices.Compact(leaveOut), nil
}

func fieldPaths() (paths []string) {
	for _, f := range allFields {
		paths = append(paths, f.path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
