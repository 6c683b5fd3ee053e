package reported

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Kind is a map of the Node that has fields of plugins.
type Kind string

// The kinds of fields, named as in the Node.
const (
	Label       Kind = "labels"
	Annotation  Kind = "annotations"
	Capacity    Kind = "capacity"
	Allocatable Kind = "allocatable"
)

// Kinds has all kinds.
var Kinds = []Kind{Label, Annotation, Capacity, Allocatable}

// MaxFields is the greatest number of fields that are written, so that Node and record stay small.
const MaxFields = 2048

// Field is one entry of a map of the Node.
type Field struct {
	Kind Kind
	Key  string
}

// compare is the order of kind and key.
func (f Field) compare(o Field) int {
	return cmp.Or(cmp.Compare(f.Kind, o.Kind), cmp.Compare(f.Key, o.Key))
}

// IsResource reports whether the field is one of an extended resource.
func (f Field) IsResource() bool { return f.Kind == Capacity || f.Kind == Allocatable }

// Fields are values by field. Quantities are whole numbers in decimal notation, so that equal ones are equal strings.
type Fields map[Field]string

// Of returns the fields that plugins report, or an error if there are more than MaxFields. A resource that has only
// capacity, or only allocatable, gets the same quantity in both: the kubelet keeps no allocatable without capacity, and
// the scheduler reads allocatable.
func Of(node *merge.Node) (Fields, error) {
	fields := Fields{}
	for key, value := range node.Labels {
		fields[Field{Label, key}] = value
	}
	for key, value := range node.Annotations {
		fields[Field{Annotation, key}] = value
	}
	for _, list := range []v1.ResourceList{node.Allocatable, node.Capacity} {
		for name, quantity := range list {
			fields[Field{Capacity, string(name)}] = number(quantity)
		}
	}
	for _, list := range []v1.ResourceList{node.Capacity, node.Allocatable} {
		for name, quantity := range list {
			fields[Field{Allocatable, string(name)}] = number(quantity)
		}
	}
	if len(fields) > MaxFields {
		return nil, fmt.Errorf("reporter plugins report %d fields of the Node: at most %d are allowed",
			len(fields), MaxFields)
	}
	return fields, nil
}

// OfNode returns the fields that a Node has.
func OfNode(node *v1.Node) Fields {
	fields := Fields{}
	for key, value := range node.Labels {
		fields[Field{Label, key}] = value
	}
	for key, value := range node.Annotations {
		fields[Field{Annotation, key}] = value
	}
	for name, quantity := range node.Status.Capacity {
		fields[Field{Capacity, string(name)}] = number(quantity)
	}
	for name, quantity := range node.Status.Allocatable {
		fields[Field{Allocatable, string(name)}] = number(quantity)
	}
	return fields
}

// number is exact for extended resources, which are whole numbers below 2^63.
func number(quantity resource.Quantity) string { return strconv.FormatInt(quantity.Value(), 10) }

// Input is what Decide decides on. It is not modified.
type Input struct {
	// Node has the fields that the Node has.
	Node Fields
	// Reported has the fields that plugins report.
	Reported Fields
	// Record has the fields that the agent has written to this Node. Recorded: there is a record of this Node, which may
	// be empty. Then the Node does not have a field that is in neither because the agent has removed or not yet written
	// it.
	Record   []Field
	Recorded bool
	// Unconfirmed are fields in Reported whose values may be older than those that the agent has written before. Such a
	// field stays as it is on the Node, also if the agent has removed it.
	Unconfirmed map[Field]bool
	// Incomplete: fields may be missing in Reported. Then nothing is removed.
	Incomplete bool
	// Devices are the resources of device plugins, which the kubelet writes itself. Fields of them are nobody's here.
	Devices map[string]bool
}

// Decision is the result of Decide. The lists are in the order of kind and key.
type Decision struct {
	// Set has the fields that are written, and Removed those that are removed. The Node is as it should be if both are
	// empty.
	Set     Fields
	Removed []Field
	// Record is to be stored before the Node is changed. Those in Removed are still in it.
	Record []Field
	// Forgotten were recorded and are no longer: the Node does not have them, or a device plugin does. In a Node that is
	// out of date a field may be missing that the agent has written. So the Node must be read from the API server before
	// anything is forgotten.
	Forgotten []Field
}

// Changed reports whether the Node has to be changed.
func (d *Decision) Changed() bool { return len(d.Set)+len(d.Removed) > 0 }

// Within returns the decision without the fields that it would set and that a record does not have. It is for a record
// that cannot be stored.
func (d *Decision) Within(record []Field) *Decision {
	within := &Decision{Set: Fields{}, Removed: d.Removed, Record: d.Record, Forgotten: d.Forgotten}
	for field, value := range d.Set {
		if slices.Contains(record, field) {
			within.Set[field] = value
		}
	}
	return within
}

// Decide decides which fields of the Node are written and removed.
func Decide(in Input) Decision {
	d := Decision{Set: Fields{}}
	device := func(f Field) bool { return f.IsResource() && in.Devices[f.Key] }
	record := map[Field]bool{}
	for _, field := range in.Record {
		_, wanted := in.Reported[field]
		_, there := in.Node[field]
		switch {
		case device(field), !wanted && !there:
			d.Forgotten = append(d.Forgotten, field)
			continue
		case !wanted && !in.Incomplete:
			d.Removed = append(d.Removed, field)
		}
		record[field] = true
	}
	for field, value := range in.Reported {
		have, there := in.Node[field]
		unconfirmed := in.Unconfirmed[field]
		if device(field) || there && (have == value || unconfirmed && record[field]) {
			continue
		}
		if unconfirmed && !there && in.Recorded && !record[field] {
			continue
		}
		d.Set[field] = value
		record[field] = true
	}
	d.Record = sorted(slices.Collect(maps.Keys(record)))
	d.Removed, d.Forgotten = sorted(d.Removed), sorted(d.Forgotten)
	return d
}

// sorted returns a copy in the order of kind and key, each once; nil if it is empty.
func sorted(list []Field) []Field {
	return slices.Compact(slices.SortedFunc(slices.Values(list), Field.compare))
}
