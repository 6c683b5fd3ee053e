package publish

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// fieldManager owns what the agent writes in the managed fields of the object.
const fieldManager = "plimsoll-reporter"

// applied is what was applied of a part, and what the object had afterwards. Comparing with that, and not with what was
// applied, the agent does not write again and again what the API server changes each time: fields that its version of
// the kind does not have, and defaults.
type applied struct {
	uid types.UID
	// body is the hash of what was applied, values that of the fields of the object that were applied, and owned that of
	// the fields that the API server has recorded as the agent's.
	body, values, owned [sha256.Size]byte
}

// appliedOf returns what an object has of a part that was applied.
func appliedOf(live *unstructured.Unstructured, part string, body []byte) (applied, error) {
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		return applied{}, err
	}
	// Owners are compared by managed fields.
	unstructured.RemoveNestedField(fields, "metadata", "ownerReferences")
	values, err := json.Marshal(project(live.Object, fields))
	if err != nil {
		return applied{}, err
	}
	return applied{live.GetUID(), sha256.Sum256(body), sha256.Sum256(values), sha256.Sum256(owned(live, part))}, nil
}

// project returns what an object has of some fields. Lists are compared as a whole.
func project(live, fields any) any {
	members, isMap := fields.(map[string]any)
	object, isObject := live.(map[string]any)
	if !isMap || !isObject {
		return live
	}
	result := map[string]any{}
	for name, member := range members {
		if value, ok := object[name]; ok {
			result[name] = project(value, member)
		}
	}
	return result
}

// owned returns which fields of a part the agent has applied, as the API server has recorded it; nil if none.
func owned(live *unstructured.Unstructured, part string) []byte {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == part && entry.FieldsV1 != nil {
			return entry.FieldsV1.GetRawBytes()
		}
	}
	return nil
}

// owns reports whether the agent has applied an owner of the object.
func owns(live *unstructured.Unstructured) bool {
	var fields struct {
		Metadata struct {
			Owners map[string]any `json:"f:ownerReferences"`
		} `json:"f:metadata"`
	}
	if raw := owned(live, mainPart); raw == nil || json.Unmarshal(raw, &fields) != nil {
		return false
	}
	for key := range fields.Metadata.Owners {
		if strings.HasPrefix(key, "k:") {
			return true
		}
	}
	return false
}

// liveTaints returns spec.taints.
func liveTaints(live *unstructured.Unstructured) []any {
	spec, _ := live.Object["spec"].(map[string]any)
	taints, _ := spec["taints"].([]any)
	return taints
}
