package publish

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// The two parts of an object that are applied, by their subresource: metadata and spec, and status.
const (
	mainPart   = ""
	statusPart = "status"
)

// content is what plugins report of the object. It is immutable.
type content struct {
	// fields are the JSON of the fields, by their path, without status.conditions.
	fields map[string][]byte
	// taints are the elements of spec.taints, which is not among the fields.
	taints []taint
	// confirmed are the fields of those answers alone that were given since the start of the agent; nil if there are no
	// others.
	confirmed map[string][]byte
}

const (
	labelsPath      = "metadata.labels"
	annotationsPath = "metadata.annotations"
	taintsPath      = "spec.taints"
	conditionsPath  = "status.conditions"
)

// contentOf returns the content of an object. Conditions are those of Katalyst's controllers.
func contentOf(o *Object) *content {
	c := &content{fields: fieldsByPath(o.Fields)}
	c.taints = taintsOf(c.fields[taintsPath])
	if o.Unconfirmed {
		c.confirmed = fieldsByPath(o.Confirmed)
	}
	return c
}

func fieldsByPath(fields []merge.Field) map[string][]byte {
	byPath := map[string][]byte{}
	for _, f := range fields {
		if f.Kind == node.GroupVersionKind.Kind && f.Path != conditionsPath {
			byPath[f.Path] = f.JSON
		}
	}
	return byPath
}

func (c *content) empty() bool { return len(c.fields) == 0 }

// owner is the Node as an owner of the object.
type owner struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// body returns what is applied of a part, as JSON: the same for the same content. With an owner the Node owns the
// object.
func (c *content) body(part, name string, labels map[string]string, owners []owner) ([]byte, error) {
	metadata := map[string]any{"name": name}
	object := map[string]any{
		"apiVersion": node.GroupVersionKind.GroupVersion().String(), "kind": node.GroupVersionKind.Kind,
		"metadata": metadata,
	}
	prefix, members := "spec.", map[string]json.RawMessage{}
	if part == statusPart {
		prefix = "status."
	} else {
		all := map[string]string{}
		if given := c.fields[labelsPath]; given != nil {
			if err := json.Unmarshal(given, &all); err != nil {
				return nil, err
			}
		}
		maps.Copy(all, labels)
		if len(all) > 0 {
			metadata["labels"] = all
		}
		if given := c.fields[annotationsPath]; given != nil {
			metadata["annotations"] = json.RawMessage(given)
		}
		if len(owners) > 0 {
			metadata["ownerReferences"] = owners
		}
	}
	for path, value := range c.fields {
		if member, ok := strings.CutPrefix(path, prefix); ok && path != taintsPath {
			members[member] = value
		}
	}
	if len(members) > 0 {
		object[strings.TrimSuffix(prefix, ".")] = members
	}
	return json.Marshal(object)
}

// has reports whether a part has fields.
func (c *content) has(part string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(c.fields)), func(path string) bool {
		return path != taintsPath && strings.HasPrefix(path, "status.") == (part == statusPart)
	})
}
