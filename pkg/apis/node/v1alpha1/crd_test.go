package v1alpha1_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

var update = flag.Bool("update", false, "write config/crd/customnoderesources.yaml from the types")

const crdFile = "../../../../config/crd/customnoderesources.yaml"

const crdHeader = `# The kind CustomNodeResource of Katalyst, in which reporter plugins publish what they
# report of a node. A cluster in which Katalyst is installed has it already, and this file must not be applied there. It
# accepts what Katalyst's own definition (katalyst-api v0.5.15) accepts: test/katalyst compares the two.
#
# Written from pkg/apis/node/v1alpha1 by "go test ./pkg/apis/node/v1alpha1 -update".
`

// object is a JSON object.
type object = map[string]any

// quantityPattern is what the API server's own definitions have for quantities.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|` +
	`([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// optional are fields that types always encode and that the API server does not require.
var optional = []string{
	"CustomNodeResourceStatus.Resources", "TopologyZone.Resources",
}

// mapKeys are the lists that server-side apply merges element by element; all others are atomic.
var mapKeys = map[reflect.Type]string{
	reflect.TypeFor[[]v1alpha1.ResourcePackage](): "packageName",
	reflect.TypeFor[[]v1alpha1.ResourcePool]():    "poolName",
}

// descriptions has the comments of types.go, by type and field as Type.Field, or Type.
func descriptions(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		all[spec.Name.Name] = oneLine(gen.Doc.Text())
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				if len(f.Names) > 0 {
					all[spec.Name.Name+"."+f.Names[0].Name] = oneLine(f.Doc.Text())
				}
			}
		}
	}
	return all
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// schemaOf returns the OpenAPI schema of a type.
func schemaOf(comments map[string]string, t reflect.Type) object {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return object{
			"anyOf":   []any{object{"type": "integer"}, object{"type": "string"}},
			"pattern": quantityPattern, "x-kubernetes-int-or-string": true,
		}
	case reflect.TypeFor[metav1.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[v1alpha1.QoSLevel]():
		return object{"type": "string", "enum": v1alpha1.QoSLevels}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(comments, t.Elem())
	case reflect.Slice:
		s := object{"type": "array", "items": schemaOf(comments, t.Elem())}
		if key := mapKeys[t]; key != "" {
			s["x-kubernetes-list-type"], s["x-kubernetes-list-map-keys"] = "map", []string{key}
		}
		return s
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(comments, t.Elem())}
	case reflect.Struct:
		return structSchema(comments, t)
	case reflect.Int:
		return object{"type": "integer"}
	default:
		return object{"type": "string"}
	}
}

func structSchema(comments map[string]string, t reflect.Type) object {
	properties := object{}
	var required []string
	for field := range fieldsOf(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		var s object
		if t == reflect.TypeFor[v1alpha1.TopologyZone]() && field.Name == "Children" {
			s = object{"x-kubernetes-preserve-unknown-fields": true} // a schema cannot refer to itself
		} else {
			s = schemaOf(comments, field.Type)
		}
		if text := comments[t.Name()+"."+field.Name]; text != "" {
			s["description"] = text
		}
		if name == "topologyPolicy" {
			s["default"] = "none"
		}
		properties[name] = s
		if !strings.Contains(options, "omitempty") && !slices.Contains(optional, t.Name()+"."+field.Name) {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// fieldsOf yields the fields of a struct, and those of structs embedded in it.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, field := range reflect.VisibleFields(t) {
			if !field.Anonymous && !yield(field) {
				return
			}
		}
	}
}

func crd(t *testing.T) []byte {
	t.Helper()
	comments, kind := descriptions(t), v1alpha1.GroupVersionKind
	topLevel := object{
		"apiVersion": object{"type": "string"}, "kind": object{"type": "string"}, "metadata": object{"type": "object"},
		"spec":   schemaOf(comments, reflect.TypeFor[v1alpha1.CustomNodeResourceSpec]()),
		"status": schemaOf(comments, reflect.TypeFor[v1alpha1.CustomNodeResourceStatus]()),
	}
	data, err := yaml.Marshal(object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": "customnoderesources." + kind.Group},
		"spec": object{
			"group": kind.Group, "scope": "Cluster",
			"names": object{
				"kind": kind.Kind, "listKind": kind.Kind + "List", "plural": "customnoderesources",
				"singular": "customnoderesource", "shortNames": []string{"kcnr"},
			},
			"versions": []any{object{
				"name": kind.Version, "served": true, "storage": true, "subresources": object{"status": object{}},
				"schema": object{"openAPIV3Schema": object{
					"type": "object", "properties": topLevel, "description": comments[kind.Kind],
				}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(crdHeader), data...)
}

func TestDefinitionMatchesTypes(t *testing.T) {
	want := crd(t)
	if *update {
		if err := os.WriteFile(crdFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s does not match the types; run this test with -update", crdFile)
	}
}

// The types have no description of a field of v1.Taint: none of them is forgotten nevertheless.
func TestDefinitionHasEmbeddedFields(t *testing.T) {
	properties := structSchema(nil, reflect.TypeFor[v1alpha1.Taint]())["properties"].(object)
	for field := range fieldsOf(reflect.TypeFor[v1.Taint]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if properties[name] == nil {
			t.Errorf("taints have no %s", name)
		}
	}
}
