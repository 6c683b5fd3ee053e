package publish

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// held returns the content without what may be older than the object, or missing, while not all answers of an earlier
// run of the agent are confirmed. Of the fields that the agent has applied, those that confirmed answers alone
// determine are as these say; all others are as the object has them. Labels, annotations and taints are taken one by
// one.
//
// A field to which a confirmed and an unconfirmed answer contribute therefore stays as it is, until the second plugin
// has answered or its grace period is over.
func (c *content) held(live *unstructured.Unstructured, recorded []taintID) *content {
	if c.confirmed == nil || live == nil {
		return c
	}
	h := &content{fields: maps.Clone(c.fields), taints: c.heldTaints(live, recorded), confirmed: c.confirmed}
	for path, set := range appliedPaths(live) {
		value, _, err := unstructured.NestedFieldNoCopy(live.Object, strings.Split(path, ".")...)
		if err != nil || value == nil {
			continue
		}
		if path == labelsPath || path == annotationsPath {
			h.fields[path] = c.heldMap(path, value, fieldNames(set))
			continue
		}
		if given, there := c.fields[path]; there && bytes.Equal(given, c.confirmed[path]) {
			continue
		}
		if text, err := json.Marshal(ownPart(value, set)); err == nil {
			h.fields[path] = text
		}
	}
	return h
}

// heldMap is held for labels or annotations, of which the agent has applied some keys.
func (c *content) heldMap(path string, live any, keys []string) []byte {
	given, confirmed, values := textsOf(c.fields[path]), textsOf(c.confirmed[path]), map[string]string{}
	maps.Copy(values, given)
	object, _ := live.(map[string]any)
	for _, key := range keys {
		value, ok := object[key].(string)
		other, isConfirmed := confirmed[key]
		if ok && (!isConfirmed || other != given[key]) {
			values[key] = value
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return c.fields[path]
	}
	return text
}

// textsOf returns labels or annotations in JSON; none if it is something else.
func textsOf(text []byte) (values map[string]string) {
	if json.Unmarshal(text, &values) != nil {
		return nil
	}
	return values
}

// heldTaints is held for the taints, of which the recorded ones are the agent's.
func (c *content) heldTaints(live *unstructured.Unstructured, recorded []taintID) []taint {
	taints, confirmed := slices.Clone(c.taints), taintsOf(c.confirmed[taintsPath])
	for _, element := range liveTaints(live) {
		value, _ := element.(map[string]any)
		id := idOf(value)
		same := func(t taint) bool { return t.id == id }
		if value == nil || !slices.Contains(recorded, id) || slices.ContainsFunc(confirmed, same) {
			continue
		}
		if i := slices.IndexFunc(taints, same); i >= 0 {
			taints[i].value = value
		} else {
			taints = append(taints, taint{id, value})
		}
	}
	return taints
}

// ownPart returns what a value has of the fields in a set of managed fields, and the whole value if the set is empty,
// which is that of a leaf: entries of other writers in the same map stay theirs.
func ownPart(value any, set []byte) any {
	object, isObject := value.(map[string]any)
	var members map[string]json.RawMessage
	if json.Unmarshal(set, &members) != nil || len(members) == 0 {
		return value
	}
	if list, isList := value.([]any); isList {
		return ownElements(list, members)
	}
	if !isObject {
		return value
	}
	part := map[string]any{}
	for _, name := range fieldNames(set) {
		if member, there := object[name]; there {
			part[name] = ownPart(member, memberOf(set, name))
		}
	}
	return part
}

// ownElements is ownPart for a list whose elements have keys.
func ownElements(list []any, members map[string]json.RawMessage) []any {
	own := []any{}
	for _, element := range list {
		for member, set := range members {
			var key any
			text, isKey := strings.CutPrefix(member, "k:")
			if isKey && json.Unmarshal([]byte(text), &key) == nil && reflect.DeepEqual(project(element, key), key) {
				own = append(own, ownPart(element, set))
			}
		}
	}
	return own
}

// appliedPaths returns the paths of the fields that the agent has applied, with their sets of managed fields.
func appliedPaths(live *unstructured.Unstructured) map[string][]byte {
	paths := map[string][]byte{}
	for _, part := range []string{mainPart, statusPart} {
		var members map[string]json.RawMessage
		if raw := owned(live, part); raw == nil || json.Unmarshal(raw, &members) != nil {
			continue
		}
		for member, fields := range members {
			prefix, isField := strings.CutPrefix(member, "f:")
			for _, name := range fieldNames(fields) {
				path := prefix + "." + name
				if isField && (prefix != "metadata" || path == labelsPath || path == annotationsPath) && path != taintsPath {
					paths[path] = memberOf(fields, name)
				}
			}
		}
	}
	return paths
}

// fieldNames returns the names of the fields in a set of managed fields, sorted.
func fieldNames(set []byte) (names []string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(set, &members) != nil {
		return nil
	}
	for member := range members {
		if name, ok := strings.CutPrefix(member, "f:"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func memberOf(set []byte, name string) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(set, &members) != nil {
		return nil
	}
	return members["f:"+name]
}
