package publish

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// katalystManager is the field manager of Katalyst's agent, which updates and patches the object.
const katalystManager = "katalyst-agent"

// takeOver returns a patch (JSON patch) that makes the fields which Katalyst's agent has written fields that
// plimsoll-reporter has applied, so that the next apply removes those that are not reported; nil if there are none.
//
// It leaves out spec.taints and status.conditions: the next apply would remove these lists, with what others have
// written there. Owners and finalizers stay as they are as well. The patch has an effect on this version of the object
// only.
func takeOver(live *unstructured.Unstructured) ([]byte, error) {
	var entries, left []metav1.ManagedFieldsEntry
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != katalystManager || entry.Operation != metav1.ManagedFieldsOperationUpdate ||
			entry.FieldsV1 == nil {
			entries = append(entries, entry)
			continue
		}
		taken, rest, err := splitFields(entry.FieldsV1, entry.Subresource)
		if err != nil {
			return nil, err
		}
		if taken == nil {
			left = append(left, entry)
			continue
		}
		if rest != nil {
			remaining := entry
			remaining.FieldsV1 = rest
			left = append(left, remaining)
		}
		entry.FieldsV1 = taken
		entries = append(entries, entry)
	}
	upgraded := &metav1.PartialObjectMetadata{}
	upgraded.SetManagedFields(entries)
	for _, part := range []string{mainPart, statusPart} {
		err := csaupgrade.UpgradeManagedFields(upgraded, sets.New(katalystManager), fieldManager,
			csaupgrade.Subresource(part))
		if err != nil {
			return nil, err
		}
	}
	if !takes(entries) {
		return nil, nil
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	return json.Marshal([]operation{
		{"replace", "/metadata/managedFields", append(upgraded.GetManagedFields(), left...)},
		{"replace", "/metadata/resourceVersion", live.GetResourceVersion()},
	})
}

// takes reports whether there are fields to take over.
func takes(entries []metav1.ManagedFieldsEntry) bool {
	for _, entry := range entries {
		if entry.Manager == katalystManager && entry.Operation == metav1.ManagedFieldsOperationUpdate &&
			(entry.Subresource == mainPart || entry.Subresource == statusPart) && entry.FieldsV1 != nil {
			return true
		}
	}
	return false
}

// splitFields splits the fields of an entry into those that are taken over and the others; nil if there are none.
func splitFields(fields *metav1.FieldsV1, part string) (taken, rest *metav1.FieldsV1, err error) {
	all := &fieldpath.Set{}
	if err := all.FromJSON(fields.GetRawReader()); err != nil {
		return nil, nil, err
	}
	ours, others := &fieldpath.Set{}, &fieldpath.Set{}
	all.Iterate(func(path fieldpath.Path) {
		if isTaken(path, part) {
			ours.Insert(path.Copy())
		} else {
			others.Insert(path.Copy())
		}
	})
	encode := func(set *fieldpath.Set) *metav1.FieldsV1 {
		var raw []byte
		if !set.Empty() && err == nil {
			raw, err = set.ToJSON()
		}
		if raw == nil {
			return nil
		}
		return metav1.NewFieldsV1(string(raw))
	}
	return encode(ours), encode(others), err
}

// isTaken reports whether the agent takes a field over: what reporter plugins can report, and no field with fields of
// others in it.
func isTaken(path fieldpath.Path, part string) bool {
	name := func(i int) string {
		if i >= len(path) || path[i].FieldName == nil {
			return ""
		}
		return *path[i].FieldName
	}
	switch name(0) {
	case "metadata":
		return part == mainPart && len(path) > 2 && (name(1) == "labels" || name(1) == "annotations")
	case "spec":
		return part == mainPart && len(path) > 1 && name(1) != "taints"
	case "status":
		return part == statusPart && len(path) > 1 && name(1) != "conditions"
	}
	return false
}
