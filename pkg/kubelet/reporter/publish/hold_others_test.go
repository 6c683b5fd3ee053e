package publish

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the object keeps while answers are not confirmed are the entries that the agent has applied. Those of other
// writers in the same map are not applied: that would make them the agent's, and overwrite what the others write
// meanwhile.
func TestHeldFieldsHaveNothingOfOthers(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "n", "managedFields": []any{
			map[string]any{
				"manager": fieldManager, "operation": "Apply", "subresource": "status",
				"fieldsV1": map[string]any{"f:status": map[string]any{
					"f:resources":    map[string]any{"f:capacity": map[string]any{"f:ours": map[string]any{}}},
					"f:topologyZone": map[string]any{},
				}},
			},
			map[string]any{
				"manager": "other", "operation": "Update", "subresource": "status",
				"fieldsV1": map[string]any{"f:status": map[string]any{
					"f:resources": map[string]any{"f:capacity": map[string]any{"f:theirs": map[string]any{}}},
				}},
			},
		}},
		"status": map[string]any{
			"resources":    map[string]any{"capacity": map[string]any{"ours": "1", "theirs": "2"}},
			"topologyZone": []any{map[string]any{"name": "0", "type": "Socket"}},
		},
	}}
	const resources, zones = "status.resources", "status.topologyZone"
	c := &content{
		fields:    map[string][]byte{resources: []byte(`{"capacity":{"ours":"0"}}`)},
		confirmed: map[string][]byte{},
	}
	h := c.held(live, nil)
	if got, want := string(h.fields[resources]), `{"capacity":{"ours":"1"}}`; got != want {
		t.Errorf("resources are %s, want %s", got, want)
	}
	if got, want := string(h.fields[zones]), `[{"name":"0","type":"Socket"}]`; got != want {
		t.Errorf("a list is %s, want %s", got, want)
	}
}

// Of a list with keys the entries that the agent has applied are kept, with what it has applied of them.
func TestHeldListsHaveNothingOfOthers(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "n", "managedFields": []any{map[string]any{
			"manager": fieldManager, "operation": "Apply", "subresource": "status",
			"fieldsV1": map[string]any{"f:status": map[string]any{"f:resources": map[string]any{
				"f:resourcePackages": map[string]any{
					`k:{"packageName":"ours"}`: map[string]any{
						".": map[string]any{}, "f:packageName": map[string]any{},
						"f:allocatable": map[string]any{"f:cpu": map[string]any{}},
					},
					`k:{"packageName":"gone"}`: map[string]any{".": map[string]any{}, "f:packageName": map[string]any{}},
				},
			}}},
		}}},
		"status": map[string]any{"resources": map[string]any{"resourcePackages": []any{
			map[string]any{"packageName": "theirs", "allocatable": map[string]any{"cpu": "1"}},
			map[string]any{"packageName": "ours", "allocatable": map[string]any{"cpu": "2", "theirs": "3"}},
			"no object",
		}}},
	}}
	h := (&content{fields: map[string][]byte{}, confirmed: map[string][]byte{}}).held(live, nil)
	const want = `{"resourcePackages":[{"allocatable":{"cpu":"2"},"packageName":"ours"}]}`
	if got := string(h.fields["status.resources"]); got != want {
		t.Errorf("resources are %s, want %s", got, want)
	}
}
