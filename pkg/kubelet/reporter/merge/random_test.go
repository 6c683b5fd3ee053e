package merge_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

type randomReport struct {
	plugin   string
	contents []randomContent
}

type randomContent struct {
	kind    schema.GroupVersionKind
	unknown bool
	fields  []randomField
}

type randomField struct {
	shape fieldShape
	bad   bool
	tree  any
	// reported is the field if it is bad.
	reported merge.ReportField
}

var options = merge.Options{NodePrefixes: []string{"example.com"}}

var kinds = map[string]schema.GroupVersionKind{"CustomNodeResource": node.GroupVersionKind, "Node": merge.NodeKind}

func randomReports(r *rand.Rand) (reports []randomReport) {
	for range 1 + r.IntN(5) {
		report := randomReport{plugin: string(rune('a' + r.IntN(4)))}
		for range r.IntN(4) {
			report.contents = append(report.contents, randomContents(r))
		}
		reports = append(reports, report)
	}
	return reports
}

func randomContents(r *rand.Rand) (content randomContent) {
	kind := []string{"CustomNodeResource", "CustomNodeResource", "Node"}[r.IntN(3)]
	content.kind = kinds[kind]
	if r.IntN(10) == 0 {
		content.kind.Version, content.unknown = "v2", true
	}
	for range r.IntN(5) {
		shape := fieldShapes[r.IntN(len(fieldShapes))]
		if shape.kind != kind {
			continue
		}
		field := randomField{shape: shape, tree: random(r, shape.shape, 0)}
		if r.IntN(6) == 0 {
			field.bad, field.reported = true, badField(r, shape)
		}
		content.fields = append(content.fields, field)
	}
	return content
}

// badField is a field that must be left out.
func badField(r *rand.Rand, shape fieldShape) merge.ReportField {
	field := merge.ReportField{Part: merge.Part(shape.part), Name: shape.name}
	switch r.IntN(5) {
	case 0:
		field.Name, field.Value = "Finalizers", []byte(`["a"]`)
	case 1:
		field.Part, field.Value = 7, []byte(`{}`)
	case 2:
		field.Value = []byte([]string{``, `{`, `NaN`, `{}{}`, `[1,]`, "\xff"}[r.IntN(6)])
	case 3:
		field.Value = []byte(`true`)
	case 4:
		field.Value = []byte(`[[]]`)
	}
	return field
}

// encode returns the reports that Merge takes, in an order that depends on r, lists in values included.
func encode(r *rand.Rand, random []randomReport) (reports []merge.Report) {
	for _, i := range r.Perm(len(random)) {
		report := merge.Report{Plugin: random[i].plugin}
		for _, j := range r.Perm(len(random[i].contents)) {
			from := random[i].contents[j]
			content := merge.Content{Kind: from.kind}
			for _, k := range r.Perm(len(from.fields)) {
				field := from.fields[k]
				reported := merge.ReportField{Part: merge.Part(field.shape.part), Name: field.shape.name}
				if reported.Value = []byte(asJSON(shuffled(r, field.tree))); field.bad {
					reported = field.reported
				}
				content.Fields = append(content.Fields, reported)
			}
			report.Contents = append(report.Contents, content)
		}
		reports = append(reports, report)
	}
	return reports
}

// flattenResult returns the leaves of a result as naive returns them.
func flattenResult(t *testing.T, result *merge.Result) map[string]string {
	t.Helper()
	leaves := map[string]string{}
	for _, field := range result.Fields {
		i := slices.IndexFunc(fieldShapes, func(f fieldShape) bool { return f.kind == field.Kind && f.path == field.Path })
		if i < 0 {
			t.Fatalf("there is no field %s of %s", field.Path, field.Kind)
		}
		var tree any
		if err := json.Unmarshal(field.JSON, &tree); err != nil {
			t.Fatal(err)
		}
		flatten(fieldShapes[i].shape, field.Kind+" "+field.Path, tree, func(path, text string) {
			if _, twice := leaves[path]; twice && text != "" {
				t.Errorf("%s is there twice in %s", path, field.JSON)
			}
			leaves[path] = text
		})
	}
	return withoutEmptyMaps(leaves)
}

// Random reports, of which 50,000 are played by PLIMSOLL_REPORTS=50000, are merged as the naive merge does, whatever
// their order, and however often they are reported. A field that must be left out changes nothing else.
func TestRandomReports(t *testing.T) {
	count := 2000
	if text := os.Getenv("PLIMSOLL_REPORTS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	conflicts, refusals, leaves := 0, 0, 0
	for seed := range count {
		result := checkSeed(t, uint64(seed))
		conflicts, refusals = conflicts+len(result.Conflicts), refusals+len(result.Refusals)
		leaves += len(flattenResult(t, &result))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if conflicts < count/10 || refusals < count/10 || leaves < count {
		t.Errorf("%d conflicts, %d refusals and %d leaves in %d reports", conflicts, refusals, leaves, count)
	}
}

func checkSeed(t *testing.T, seed uint64) merge.Result {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 14))
	random := randomReports(r)
	reports := encode(r, random)
	result := merge.Merge(reports, options)

	want, wantConflicts := naive(random)
	if diff := cmp.Diff(want, flattenResult(t, &result)); diff != "" {
		t.Errorf("other leaves than the naive merge has (-naive +merge):\n%s", diff)
	}
	if result.MoreConflicts == 0 {
		if diff := cmp.Diff(wantConflicts, sortedConflicts(slices.Clone(result.Conflicts))); diff != "" {
			t.Errorf("other conflicts than the naive merge has (-naive +merge):\n%s", diff)
		}
	} else if len(wantConflicts) != len(result.Conflicts)+result.MoreConflicts {
		t.Errorf("%d and %d conflicts, want %d", len(result.Conflicts), result.MoreConflicts, len(wantConflicts))
	}
	checkRefusals(t, random, &result)
	checkObjects(t, &result)

	equal(t, "in another order", result, merge.Merge(encode(r, random), options))
	equal(t, "reported twice", result, merge.Merge(append(encode(r, random), reports...), options))
	again := dropObjects(merge.Merge(asReports(&result), options))
	equal(t, "merged again", merge.Result{Fields: withPlugins(result.Fields, "x")}, again)
	good := dropFindings(merge.Merge(encode(r, withoutBad(random)), options))
	equal(t, "without bad fields", good, dropFindings(result))
	return result
}

// Each bad field and each unknown kind is refused, once, and nothing else but keys that are not allowed.
func checkRefusals(t *testing.T, random []randomReport, result *merge.Result) {
	t.Helper()
	for _, report := range random {
		for _, content := range report.contents {
			if content.unknown && countRefusals(result, report.plugin, "", content.kind) != 1 {
				t.Errorf("kind %v of %s: not refused once in %v", content.kind, report.plugin, result.Refusals)
			}
			for _, field := range content.fields {
				name := field.reported.Name
				if field.bad && !content.unknown && countRefusals(result, report.plugin, name, content.kind) == 0 {
					t.Errorf("field %s of %s: not refused in %v", name, report.plugin, result.Refusals)
				}
			}
		}
	}
}

func countRefusals(result *merge.Result, plugin, field string, kind schema.GroupVersionKind) (n int) {
	for _, r := range result.Refusals {
		switch {
		case r.Plugin != plugin:
		case field == "" && r.Field == "" && r.Kind == kind.Group+"/"+kind.Version+"/"+kind.Kind:
			n++
		case field != "" && r.Kind == kind.Kind && len(r.Field) > len(field) && r.Field[len(r.Field)-len(field):] == field:
			n++
		}
	}
	return n
}

// checkObjects compares the objects with the fields.
func checkObjects(t *testing.T, result *merge.Result) {
	t.Helper()
	for _, f := range result.Fields {
		o := &result.CustomNodeResource
		value := map[string]any{
			"CustomNodeResource spec.nodeResourceProperties": o.Spec.NodeResourceProperties,
			"CustomNodeResource spec.taints":                 o.Spec.Taints,
			"CustomNodeResource status.resources":            o.Status.Resources,
			"CustomNodeResource status.topologyZone":         o.Status.TopologyZone,
			"CustomNodeResource status.topologyPolicy":       o.Status.TopologyPolicy,
			"CustomNodeResource status.conditions":           o.Status.Conditions,
			"CustomNodeResource status.nodeMetricStatus":     o.Status.NodeMetricStatus,
			"CustomNodeResource metadata.labels":             o.Labels,
			"CustomNodeResource metadata.annotations":        o.Annotations,
			"Node metadata.labels":                           result.Node.Labels,
			"Node metadata.annotations":                      result.Node.Annotations,
			"Node status.capacity":                           result.Node.Capacity,
			"Node status.allocatable":                        result.Node.Allocatable,
		}[f.Kind+" "+f.Path]
		if got := asJSON(value); got != string(f.JSON) {
			t.Errorf("%s of %s: the object has %s, the field %s", f.Path, f.Kind, got, f.JSON)
		}
	}
}

func equal(t *testing.T, what string, want, got merge.Result) {
	t.Helper()
	if reflect.DeepEqual(want, got) {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	for i := range min(len(want.Fields), len(got.Fields)) {
		if !bytes.Equal(want.Fields[i].JSON, got.Fields[i].JSON) {
			t.Errorf("%s: want\n%s\ngot\n%s", what, want.Fields[i].JSON, got.Fields[i].JSON)
		}
	}
}

// asReports reports a result as one plugin would.
func asReports(result *merge.Result) (reports []merge.Report) {
	for _, f := range result.Fields {
		i := slices.IndexFunc(fieldShapes, func(s fieldShape) bool { return f.Kind == s.kind && f.Path == s.path })
		reports = append(reports, merge.Report{Plugin: "x", Contents: []merge.Content{{
			Kind: kinds[f.Kind],
			Fields: []merge.ReportField{{
				Part: merge.Part(fieldShapes[i].part), Name: fieldShapes[i].name, Value: f.JSON,
			}},
		}}})
	}
	return reports
}

func withPlugins(fields []merge.Field, plugin string) (renamed []merge.Field) {
	for _, f := range fields {
		f.Plugins = []string{plugin}
		renamed = append(renamed, f)
	}
	return renamed
}

// dropObjects leaves the fields and what was not merged.
func dropObjects(result merge.Result) merge.Result {
	result.CustomNodeResource, result.Node = node.CustomNodeResource{}, merge.Node{}
	return result
}

func dropFindings(result merge.Result) merge.Result {
	result.Refusals = nil
	return result
}

func withoutBad(random []randomReport) (good []randomReport) {
	for _, report := range random {
		report.contents = slices.Clone(report.contents)
		for i := range report.contents {
			report.contents[i].fields = slices.DeleteFunc(slices.Clone(report.contents[i].fields),
				func(f randomField) bool { return f.bad })
		}
		good = append(good, report)
	}
	return good
}
