package merge

import (
	"cmp"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// Report is an answer of a plugin. Reports of the same name count as one report.
type Report struct {
	Plugin   string
	Contents []Content
}

// Content has the fields that a plugin reports of one object.
type Content struct {
	Kind   schema.GroupVersionKind
	Fields []ReportField
}

// ReportField is one field: the name that it has in the Go type of its part, and its value in JSON.
type ReportField struct {
	Part  Part
	Name  string
	Value []byte
}

// Part is a part of an object. The numbers are those of the protocol; other numbers are refused.
type Part int32

const (
	Spec Part = iota
	Status
	Metadata
)

// NodeKind is the kind of Nodes.
var NodeKind = v1.SchemeGroupVersion.WithKind("Node")

// Node is what plugins report of the Node.
type Node struct {
	Labels      map[string]string
	Annotations map[string]string
	// Capacity and Allocatable have extended resources.
	Capacity    v1.ResourceList
	Allocatable v1.ResourceList
}

// Options are the settings of a merge.
type Options struct {
	// LeaveOut are paths of fields that are not merged, as ParseFields returns them.
	LeaveOut []string
	// NodePrefixes are domains, such as example.com. Labels, annotations and extended resources of the Node are merged
	// when their key has one of these domains, or one below it, before the slash.
	NodePrefixes []string
	// PluginPrefixes are the domains that a single plugin may use in addition, by its name.
	PluginPrefixes map[string][]string
}

// Result is the content of the objects, and what was not merged. All its lists are sorted.
type Result struct {
	// CustomNodeResource has labels, annotations, spec and status. It has no name and no kind.
	CustomNodeResource node.CustomNodeResource
	Node               Node
	// Fields are the fields of both objects that have a value.
	Fields    []Field
	Refusals  []Refusal
	Conflicts []Conflict
	// MoreConflicts is how many there are beside those in Conflicts, which has at most MaxConflicts.
	MoreConflicts int
}

// MaxConflicts is the greatest number of conflicts that are listed.
const MaxConflicts = 100

// Field is a field of an object that has a value.
type Field struct {
	// Kind is the name of the kind, Path the path in JSON: CustomNodeResource, status.topologyZone.
	Kind, Path string
	// JSON is the value. It is the same for equal content.
	JSON []byte
	// Plugins are those that gave a part of the value, or the same as another plugin.
	Plugins []string
}

// Refusal is something that a plugin reported and that is left out.
type Refusal struct {
	Plugin string
	// Kind is the name of the kind. For an unknown kind it is group/version/kind, and Field is empty.
	Kind string
	// Field is part.Name, with the name of the Go field: status.TopologyZone. It may have been cut. It is empty when all
	// fields of the kind are left out.
	Field  string
	Reason string
}

// Conflict is a leaf for which two plugins gave different values, or one plugin gave two.
type Conflict struct {
	Kind string
	// Path is the path of the leaf, with the keys of elements: status.topologyZone[Socket/0].resources.capacity[cpu].
	Path string
	// Used is the plugin whose value holds, Ignored the other one.
	Used, Ignored string
}

// Merge merges reports. They must have passed Validate, which bounds the work.
func Merge(reports []Report, options Options) Result {
	var result Result
	given := map[place][]value{}
	refusals := &refusals{}
	for i := range reports {
		for j := range reports[i].Contents {
			collect(given, refusals, &reports[i], &reports[i].Contents[j], &options)
		}
	}
	for _, kind := range kindNames {
		keepWithin(MaxAnnotationsBytes, kind, "metadata.annotations", given, refusals)
		keepWithin(MaxObjectBytes, kind, "", given, refusals)
	}
	folder := &folder{}
	for _, field := range allFields {
		if values := given[place{field.kind, field.path}]; len(values) > 0 {
			result.Fields = append(result.Fields, mergeField(folder, field, values, field.in(&result)))
		}
	}
	result.Refusals = refusals.sorted()
	slices.SortFunc(folder.conflicts, compareConflicts)
	result.Conflicts = slices.Compact(folder.conflicts)
	if n := len(result.Conflicts); n > MaxConflicts {
		result.Conflicts, result.MoreConflicts = slices.Clip(result.Conflicts[:MaxConflicts]), n-MaxConflicts
	}
	return result
}

// place is a field of an object.
type place struct{ kind, path string }

// value is what a plugin gives for a field.
type value struct {
	plugin string
	// decoded is of the type of the field, with its lists sorted.
	decoded reflect.Value
	// size is the length of its JSON.
	size int
}

// collect decodes the fields of one content.
func collect(given map[place][]value, refusals *refusals, report *Report, content *Content, options *Options) {
	kind, known := kindNames[content.Kind]
	if !known {
		refusals.unknownKind(report.Plugin, content.Kind)
		return
	}
	for _, reported := range content.Fields {
		field, err := fieldOf(kind, reported.Part, reported.Name)
		if err != nil {
			refusals.add(report.Plugin, kind, &reported, err)
			continue
		}
		if slices.Contains(options.LeaveOut, field.path) {
			continue
		}
		decoded, err := decodeField(field.typ, reported.Value)
		if err != nil {
			refusals.add(report.Plugin, kind, &reported, err)
			continue
		}
		if err := field.filter(decoded, report.Plugin, options); err != nil {
			refusals.add(report.Plugin, kind, &reported, err)
		}
		if isEmpty(decoded) {
			continue
		}
		sortLists(decoded)
		at := place{kind, field.path}
		given[at] = append(given[at], value{report.Plugin, decoded, len(encode(decoded))})
	}
}

// mergeField merges the values of a field into the result.
func mergeField(folder *folder, field *objectField, values []value, into reflect.Value) Field {
	slices.SortStableFunc(values, func(a, b value) int { return cmp.Compare(a.plugin, b.plugin) })
	folder.kind = field.kind
	whole := spot{into, &path{step: field.path}, &origin{}}
	merged := Field{Kind: field.kind, Path: field.path}
	for _, v := range values {
		folder.plugin = v.plugin
		folder.fold(whole, v.decoded)
		if !slices.Contains(merged.Plugins, v.plugin) {
			merged.Plugins = append(merged.Plugins, v.plugin)
		}
	}
	sortLists(into)
	merged.JSON = encode(into)
	return merged
}

func compareConflicts(a, b Conflict) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Used, b.Used),
		cmp.Compare(a.Ignored, b.Ignored))
}
