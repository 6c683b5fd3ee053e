package v1alpha1

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write config/pressure.schema.json from the types")

const schemaFile = "../../../../config/pressure.schema.json"

// document is the part of a JSON schema that is used here.
type document struct {
	Schema               string               `json:"$schema,omitempty"`
	Title                string               `json:"title,omitempty"`
	Description          string               `json:"description,omitempty"`
	Type                 any                  `json:"type,omitempty"`
	Pattern              string               `json:"pattern,omitempty"`
	Enum                 []string             `json:"enum,omitempty"`
	Minimum              *int64               `json:"minimum,omitempty"`
	Maximum              *int64               `json:"maximum,omitempty"`
	Default              any                  `json:"default,omitempty"`
	Properties           map[string]*document `json:"properties,omitempty"`
	Items                *document            `json:"items,omitempty"`
	Required             []string             `json:"required,omitempty"`
	AdditionalProperties any                  `json:"additionalProperties,omitempty"`
}

// fieldComment is the parsed comment of a field.
type fieldComment struct {
	text                   string
	least, most, byDefault string
	values                 []string
}

var (
	rangeText   = regexp.MustCompile(`Range: (\S+) to (\S+?)\.(?:\s|$)`)
	defaultText = regexp.MustCompile(`Default: (\S+?(?:, \S+?)*)\.(?:\s|$)`)
	valuesText  = regexp.MustCompile(`Values: (.+?)\.(?:\s[A-Z]|$)`)
)

// comments reads types.go: type → field → comment. The type itself has the name "".
func comments(t *testing.T) map[string]map[string]fieldComment {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]fieldComment{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		spec := gen.Specs[0].(*ast.TypeSpec)
		fields := map[string]fieldComment{"": {text: oneLine(gen.Doc.Text())}}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				if len(f.Names) > 0 {
					fields[f.Names[0].Name] = parseComment(oneLine(f.Doc.Text()))
				}
			}
		}
		all[spec.Name.Name] = fields
	}
	return all
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func parseComment(text string) fieldComment {
	c := fieldComment{text: text}
	if m := rangeText.FindStringSubmatch(text); m != nil {
		c.least, c.most = m[1], m[2]
	}
	if m := defaultText.FindStringSubmatch(text); m != nil {
		c.byDefault = m[1]
	}
	if m := valuesText.FindStringSubmatch(text); m != nil {
		c.values = strings.Split(m[1], ", ")
	}
	return c
}

// fields calls f for every field below a struct, with its comment and its path in JSON.
func fields(
	all map[string]map[string]fieldComment, typ reflect.Type, path string,
	f func(path string, index []int, field reflect.StructField, c fieldComment), index ...int,
) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := slices.Concat(index, []int{i})
		f(path+name, at, field, all[typ.Name()][field.Name])
		if field.Type.Kind() == reflect.Struct {
			fields(all, field.Type, path+name+".", f, at...)
		}
	}
}

func schemaOf(all map[string]map[string]fieldComment, typ reflect.Type) *document {
	s := &document{
		Type: "object", Properties: map[string]*document{}, AdditionalProperties: false,
		Description: all[typ.Name()][""].text,
	}
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			continue
		}
		c := all[typ.Name()][field.Name]
		p := propertyOf(all, field.Type, c)
		p.Description = name + strings.TrimPrefix(c.text, field.Name)
		s.Properties[name] = p
		if !strings.Contains(options, "omit") {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

func propertyOf(all map[string]map[string]fieldComment, typ reflect.Type, c fieldComment) *document {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	s := &document{Enum: c.values}
	element := fieldComment{values: c.values}
	switch {
	case typ == reflect.TypeFor[metav1.Duration]():
		s.Type, s.Pattern = "string", `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	case typ == reflect.TypeFor[resource.Quantity]():
		s.Type, s.Pattern = []string{"string", "integer"}, `^[0-9]+(\.[0-9]+)?([kMGTP]i?)?$`
	case typ.Kind() == reflect.Struct:
		return schemaOf(all, typ)
	case typ.Kind() == reflect.Slice:
		s.Type, s.Items, s.Enum = "array", propertyOf(all, typ.Elem(), element), nil
	case typ.Kind() == reflect.Map:
		s.Type, s.AdditionalProperties, s.Enum = "object", propertyOf(all, typ.Elem(), element), nil
	case typ.Kind() == reflect.Bool:
		s.Type = "boolean"
	case typ.Kind() == reflect.Int32:
		least, _ := strconv.ParseInt(c.least, 10, 64)
		most, _ := strconv.ParseInt(c.most, 10, 64)
		s.Type, s.Minimum, s.Maximum = "integer", &least, &most
	default:
		s.Type = "string"
	}
	s.Default = defaultOf(s.Type, c.byDefault)
	return s
}

func defaultOf(typ any, text string) any {
	switch {
	case text == "":
		return nil
	case typ == "boolean":
		return text == "true"
	case typ == "array":
		return strings.Split(text, ", ")
	case typ == "integer":
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	return text
}

func TestSchemaMatchesTypes(t *testing.T) {
	all := comments(t)
	s := schemaOf(all, reflect.TypeFor[NodePressureConfiguration]())
	s.Schema, s.Title = "http://json-schema.org/draft-07/schema#", Kind
	s.Properties["apiVersion"] = &document{Type: "string", Enum: []string{SchemeGroupVersion.String()}}
	s.Properties["kind"] = &document{Type: "string", Enum: []string{Kind}}
	s.Required = []string{"apiVersion", "kind"}
	want, err := json.MarshalIndent(s, "", "  ")
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
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s does not match the types; run this test with -update", schemaFile)
	}
}

// Every field has a description, and the default in its comment is that of SetDefaults.
func TestCommentsMatchDefaults(t *testing.T) {
	c := reflect.ValueOf(Default()).Elem()
	fields(comments(t), c.Type(), "", func(path string, index []int, field reflect.StructField, comment fieldComment) {
		if !strings.HasPrefix(comment.text, field.Name+" ") {
			t.Errorf("%s: the comment %q does not begin with the field's name", path, comment.text)
		}
		value := c.FieldByIndex(index)
		switch {
		case comment.byDefault != "":
			if got := written(value); got != comment.byDefault {
				t.Errorf("%s: the comment says %s, the default is %s", path, comment.byDefault, got)
			}
		case field.Type.Kind() != reflect.Struct && !value.IsZero():
			t.Errorf("%s: the comment does not say the default, %s", path, written(value))
		}
	})
}

func written(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case *metav1.Duration:
		text := value.Duration.String()
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(text, zero) {
				text = text[:len(text)-2]
			}
		}
		return text
	case *resource.Quantity:
		return value.String()
	case *int32:
		return fmt.Sprint(*value)
	case []TaintEffect:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(value), " ", ", "), "[]")
	default:
		return fmt.Sprint(value)
	}
}

// The bounds of a range are valid and values beyond are not; the error has the path of the field.
func TestCommentsMatchRanges(t *testing.T) {
	ranges := 0
	typ := reflect.TypeFor[NodePressureConfiguration]()
	fields(comments(t), typ, "", func(path string, index []int, field reflect.StructField, comment fieldComment) {
		if comment.least == "" {
			return
		}
		ranges++
		for _, tc := range []struct {
			text   string
			beyond int64
			valid  bool
		}{{comment.least, 0, true}, {comment.least, -1, false}, {comment.most, 0, true}, {comment.most, 1, false}} {
			c := Default()
			// Patience must not be less than the time to kill.
			if path != "eviction.killTime" {
				c.Eviction.KillTime.Duration = 100 * time.Millisecond
			} else {
				c.Eviction.Patience.Duration = 10 * time.Minute
			}
			// All pods must not be requested before reclaimed ones.
			if memory := &c.Plugins.Eviction.Settings.SystemMemoryPressure; strings.HasSuffix(path, ".reclaimedAfter") {
				memory.AllAfter.Duration = time.Hour
			} else {
				memory.ReclaimedAfter.Duration = 0
			}
			set(t, reflect.ValueOf(c).Elem().FieldByIndex(index), tc.text, tc.beyond)
			errs := Validate(c)
			if tc.valid != (len(errs) == 0) || (!tc.valid && errs[0].Field != path) {
				t.Errorf("%s: %s and %d more: %v", path, tc.text, tc.beyond, errs)
			}
		}
	})
	if ranges < 20 {
		t.Errorf("only %d fields have a range", ranges)
	}
}

// set sets a field to a value plus beyond.
func set(t *testing.T, v reflect.Value, text string, beyond int64) {
	t.Helper()
	switch v.Interface().(type) {
	case *metav1.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		v.Set(reflect.ValueOf(&metav1.Duration{Duration: d + time.Duration(beyond)}))
	case *resource.Quantity:
		q := resource.MustParse(text)
		q.Add(*resource.NewQuantity(beyond, resource.BinarySI))
		v.Set(reflect.ValueOf(&q))
	case *int32:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		v.Set(reflect.ValueOf(new(int32(n + beyond))))
	default:
		t.Fatalf("%s has a range", v.Type())
	}
}

// The values that a comment lists are valid, and no others.
func TestCommentsMatchValues(t *testing.T) {
	all := comments(t)
	for path, tc := range map[string]struct {
		comment fieldComment
		set     func(*NodePressureConfiguration, string)
	}{
		"memory.available": {all["MemoryConfiguration"]["Available"], func(c *NodePressureConfiguration, v string) {
			c.Memory.Available = AvailableMemory(v)
		}},
		"eviction.localStorageLimits": {all["EvictionConfiguration"]["LocalStorageLimits"],
			func(c *NodePressureConfiguration, v string) {
				c.Eviction.LocalStorageLimits = LocalStorageLimits(v)
			}},
		"eviction.fence": {all["EvictionConfiguration"]["Fence"], func(c *NodePressureConfiguration, v string) {
			c.Eviction.Fence = Fencing(v)
		}},
		"dryRun[0].signal": {all["ThresholdReference"]["Signal"], func(c *NodePressureConfiguration, v string) {
			c.DryRun = []ThresholdReference{{Signal: Signal(v)}}
		}},
		"dryRun[0].kind": {all["ThresholdReference"]["Kind"], func(c *NodePressureConfiguration, v string) {
			c.DryRun = []ThresholdReference{{Signal: "pid.available", Kind: ThresholdKind(v)}}
		}},
		"plugins.eviction.authentication": {all["EvictionPluginsConfiguration"]["Authentication"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Eviction.Authentication = PluginAuthentication(v)
			}},
		"plugins.eviction.forcedKiller": {all["EvictionPluginsConfiguration"]["ForcedKiller"],
			func(c *NodePressureConfiguration, v string) { c.Plugins.Eviction.ForcedKiller = Killer(v) }},
		"plugins.eviction.softKiller": {all["EvictionPluginsConfiguration"]["SoftKiller"],
			func(c *NodePressureConfiguration, v string) { c.Plugins.Eviction.SoftKiller = Killer(v) }},
		"plugins.eviction.killerByQoSLevel[shared_cores]": {all["EvictionPluginsConfiguration"]["KillerByQoSLevel"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Eviction.KillerByQoSLevel = map[string]Killer{"shared_cores": Killer(v)}
			}},
		"plugins.eviction.qosLevel.labelValues[a]": {all["PluginQoSLevel"]["LabelValues"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Eviction.QoSLevel.Label = "tier"
				c.Plugins.Eviction.QoSLevel.LabelValues = map[string]QoSLevel{"a": QoSLevel(v)}
			}},
		"plugins.eviction.qosLevel.priorityClasses[a]": {all["PluginQoSLevel"]["PriorityClasses"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Eviction.QoSLevel.PriorityClasses = map[string]QoSLevel{"a": QoSLevel(v)}
			}},
		"plugins.eviction.taints.effects[0]": {all["PluginTaints"]["Effects"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Eviction.Taints.Effects = []TaintEffect{TaintEffect(v)}
			}},
		"plugins.reporter.publish[0]": {all["ReporterPluginsConfiguration"]["Publish"],
			func(c *NodePressureConfiguration, v string) {
				c.Plugins.Reporter.Publish = []ReportedKind{ReportedKind(v)}
			}},
	} {
		for _, value := range tc.comment.values {
			c := Default()
			tc.set(c, value)
			if errs := Validate(c); len(errs) > 0 {
				t.Errorf("%s: %v", path, errs)
			}
		}
		c := Default()
		tc.set(c, "other")
		errs := Validate(c)
		if len(errs) != 1 || errs[0].Field != path {
			t.Fatalf("%s: %v", path, errs)
		}
		for _, value := range tc.comment.values {
			if !strings.Contains(errs[0].Detail, strconv.Quote(value)) {
				t.Errorf("%s: %s does not list %s", path, errs[0].Detail, value)
			}
		}
		if allowed := strings.Count(errs[0].Detail, `", "`) + 1; allowed != len(tc.comment.values) {
			t.Errorf("%s: %s, and the comment lists %v", path, errs[0].Detail, tc.comment.values)
		}
	}
}

// The page for operators has a row for every field, with its default.
func TestDocumentationListsFields(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/pressure.md")
	if err != nil {
		t.Fatal(err)
	}
	fields(comments(t), reflect.TypeFor[NodePressureConfiguration](), "",
		func(path string, _ []int, field reflect.StructField, comment fieldComment) {
			row := fmt.Sprintf("| `%s` | %s", path, comment.byDefault)
			if field.Type.Kind() != reflect.Struct && !strings.Contains(string(text), row) {
				t.Errorf("docs/pressure.md has no row %q", row)
			}
			if bounds := comment.least + " to " + comment.most; !strings.Contains(string(text), bounds) &&
				!strings.Contains(comment.least+comment.most, "Pi") {
				t.Errorf("docs/pressure.md does not say the range of %s, %s", path, bounds)
			}
		})
}
