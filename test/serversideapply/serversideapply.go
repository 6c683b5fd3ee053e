// Package serversideapply is what fake API servers need of the real one to store a CustomNodeResource: managed fields
// and server-side apply.
package serversideapply

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// Collection is the path of the CustomNodeResources.
const Collection = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources"

// Parts of an object, as in the paths of requests.
const (
	mainPart   = ""
	statusPart = "status"
)

// objectSchema says that labels and annotations are maps, and owners a list by UID. All else is atomic.
const objectSchema = `{"CustomNodeResource": {"type": "object",
	"x-kubernetes-group-version-kind": [
		{"group": "node.katalyst.kubewharf.io", "version": "v1alpha1", "kind": "CustomNodeResource"}],
	"properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"},
		"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
			"name": {"type": "string"}, "uid": {"type": "string"}, "resourceVersion": {"type": "string"},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}},
			"annotations": {"type": "object", "additionalProperties": {"type": "string"}},
			"ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
				"items": {"type": "object", "properties": {"uid": {"type": "string"}, "name": {"type": "string"},
					"kind": {"type": "string"}, "apiVersion": {"type": "string"}}}}}},
		"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}`

// NewManagers returns the field managers of the two parts of the object: "" and "status".
func NewManagers(t *testing.T) map[string]*managedfields.FieldManager {
	t.Helper()
	schemas := map[string]*spec.Schema{}
	if err := json.Unmarshal([]byte(objectSchema), &schemas); err != nil {
		t.Fatal(err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	managers := map[string]*managedfields.FieldManager{}
	for part, reset := range map[string]*fieldpath.Set{
		mainPart:   fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
		statusPart: fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")),
	} {
		kind := node.GroupVersionKind
		managers[part], err = managedfields.NewDefaultCRDFieldManager(converter, objects{}, objects{}, objects{}, kind,
			kind.GroupVersion(), part, map[fieldpath.APIVersion]fieldpath.Filter{
				fieldpath.APIVersion(kind.GroupVersion().String()): fieldpath.NewExcludeSetFilter(reset),
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return managers
}

// objects converts and creates objects of the one kind and version.
type objects struct{}

func (objects) Convert(_, _, _ any) error { return errors.New("no conversion") }

func (objects) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (objects) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("no conversion")
}

func (objects) Default(runtime.Object) {}

func (objects) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// LiveOrNew returns a copy of the object, an empty one of the kind if it is nil.
func LiveOrNew(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object != nil {
		return object.DeepCopy()
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(node.GroupVersionKind)
	return live
}

// Stored returns an object as it is after JSON.
func Stored(object runtime.Object) *unstructured.Unstructured {
	data, err := json.Marshal(object)
	stored := &unstructured.Unstructured{}
	if err == nil {
		err = stored.UnmarshalJSON(data)
	}
	if err != nil {
		panic(err)
	}
	return stored
}

// Same reports whether two objects differ in nothing but what the API server alone changes: the version and the times
// of managed fields.
func Same(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(withoutVersion(a), withoutVersion(b))
}

func withoutVersion(object *unstructured.Unstructured) map[string]any {
	c := object.DeepCopy()
	c.SetResourceVersion("")
	entries := c.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	c.SetManagedFields(entries)
	return c.Object
}

// List is the answer to a request for all objects; object is nil if there is none.
func List(object *unstructured.Unstructured, version string) map[string]any {
	list := map[string]any{
		"apiVersion": node.GroupVersionKind.GroupVersion().String(), "kind": "CustomNodeResourceList", "items": []any{},
		"metadata": map[string]any{"resourceVersion": version},
	}
	if object != nil {
		list["items"] = []any{object.Object}
	}
	return list
}

// Failure is the answer to a request that has failed.
func Failure(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
		Reason: reason, Message: message,
	}
}
