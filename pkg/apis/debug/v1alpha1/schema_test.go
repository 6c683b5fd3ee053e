package v1alpha1

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write config/debug.schema.json from the types")

const schemaFile = "../../../../config/debug.schema.json"

// document is the part of a JSON schema that is used here.
type document struct {
	Schema      string               `json:"$schema,omitempty"`
	Title       string               `json:"title,omitempty"`
	Description string               `json:"description,omitempty"`
	Ref         string               `json:"$ref,omitempty"`
	OneOf       []*document          `json:"oneOf,omitempty"`
	Type        string               `json:"type,omitempty"`
	Format      string               `json:"format,omitempty"`
	Enum        []string             `json:"enum,omitempty"`
	Properties  map[string]*document `json:"properties,omitempty"`
	Items       *document            `json:"items,omitempty"`
	Required    []string             `json:"required,omitempty"`
	Definitions map[string]*document `json:"definitions,omitempty"`
}

// comments has the comments of the types and fields in pressure.go: type, field (empty for the type), text.
func comments(t *testing.T) map[string]map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "pressure.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		texts := map[string]string{"": strings.Join(strings.Fields(gen.Doc.Text()), " ")}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			for _, name := range f.Names {
				texts[name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		all[spec.Name.Name] = texts
	}
	return all
}

// schema collects the definitions of all types that are reached.
type schema struct {
	comments    map[string]map[string]string
	definitions map[string]*document
}

func (s *schema) of(typ reflect.Type) *document {
	switch {
	case typ == reflect.TypeFor[time.Time]():
		return &document{Type: "string", Format: "date-time"}
	case typ == reflect.TypeFor[json.RawMessage]():
		return &document{Type: "object"}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return s.of(typ.Elem())
	case reflect.Slice:
		return &document{Type: "array", Items: s.of(typ.Elem())}
	case reflect.String:
		return &document{Type: "string"}
	case reflect.Bool:
		return &document{Type: "boolean"}
	case reflect.Float64:
		return &document{Type: "number"}
	case reflect.Struct:
		s.define(typ)
		return &document{Ref: "#/definitions/" + typ.Name()}
	default:
		return &document{Type: "integer"}
	}
}

func (s *schema) define(typ reflect.Type) {
	if s.definitions[typ.Name()] != nil {
		return
	}
	d := &document{Type: "object", Description: s.comments[typ.Name()][""], Properties: map[string]*document{}}
	s.definitions[typ.Name()] = d
	s.fields(d, typ)
}

func (s *schema) fields(d *document, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			s.fields(d, f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.of(f.Type)
		if p.Ref == "" {
			p.Description = s.comments[typ.Name()][f.Name]
		}
		d.Properties[name] = p
		if !strings.Contains(options, "omit") {
			d.Required = append(d.Required, name)
		}
	}
}

func TestSchemaMatchesTypes(t *testing.T) {
	s := &schema{comments: comments(t), definitions: map[string]*document{}}
	top := &document{Schema: "http://json-schema.org/draft-07/schema#", Title: "Documents below /debug/pressure"}
	for kind, typ := range map[string]reflect.Type{
		PressureStatusKind: reflect.TypeFor[PressureStatus](), PressureTraceKind: reflect.TypeFor[PressureTrace](),
		PressureDecisionKind:     reflect.TypeFor[PressureDecision](),
		PressureDecisionListKind: reflect.TypeFor[PressureDecisionList](),
	} {
		s.define(typ)
		d := s.definitions[typ.Name()]
		d.Properties["apiVersion"] = &document{Type: "string", Enum: []string{PressureAPIVersion}}
		d.Properties["kind"] = &document{Type: "string", Enum: []string{kind}}
	}
	for _, name := range []string{"PressureStatus", "PressureDecisionList", "PressureDecision", "PressureTrace"} {
		top.OneOf = append(top.OneOf, &document{Ref: "#/definitions/" + name})
	}
	top.Definitions = s.definitions
	want, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s does not match the types; run this test with -update: %v", schemaFile, err)
	}
}

// Every type has a comment that begins with its name, and no two fields of a document have the same name in JSON.
func TestTypesAreDescribed(t *testing.T) {
	for name, texts := range comments(t) {
		if !strings.HasPrefix(texts[""], name+" ") {
			t.Errorf("%s: %q", name, texts[""])
		}
	}
	for typ, list := range map[string][]string{
		"PressureInFlight": {"uid", "name", "namespace", "state"}, "PressureCandidate": {"uid", "usage", "reason"},
	} {
		s := &schema{comments: comments(t), definitions: map[string]*document{}}
		s.define(map[string]reflect.Type{
			"PressureInFlight": reflect.TypeFor[PressureInFlight](), "PressureCandidate": reflect.TypeFor[PressureCandidate](),
		}[typ])
		for _, field := range list {
			if s.definitions[typ].Properties[field] == nil {
				t.Errorf("%s has no field %s", typ, field)
			}
		}
	}
}
