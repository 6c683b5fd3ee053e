package merge_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// FuzzMerge gives one field any value, beside a field that is right. No value panics, makes the result much longer than
// itself, changes the other field, or gives a result that is not JSON or that changes when it is merged again.
func FuzzMerge(f *testing.F) {
	zone := `[{"type":"Socket","name":"0","children":[{"type":"Numa","name":"0","resources":{"capacity":{"cpu":"4"}}}]}]`
	for _, value := range []string{
		``, `null`, `NaN`, `{"a":1e400}`, `{"a":1,"a":2}`, `["finalizer"]`, zone, strings.Repeat(`[`, 100000),
		strings.Repeat(`{"a":`, 5000), `{"node-restriction.kubernetes.io/a":"b","example.com/a":"b","cpu":"1"}`,
		`{"capacity":{"cpu":"1e999999999","memory":"-9223372036854775809","x":"0.000000000000000001","y":"1Ei"}}`,
		`[{"propertyName":"\ud800","propertyValues":["\u0000","\u2028"],"propertyQuantity":1.5}]`,
		`[{"key":"a","effect":"b","qosLevel":"shared_cores","timeAdded":"0000-01-01T00:00:00Z"}]`,
		`{"updateTime":"2026-01-01T00:00:00+23:59","groupMetric":[{"QoSLevel":"shared_cores","podList":["b","a","b"]}]}`,
	} {
		for i := range fieldShapes {
			f.Add(uint8(i), fieldShapes[i].part, fieldShapes[i].name, []byte(value))
		}
	}
	f.Add(uint8(0), int32(2), "Finalizers", []byte(`["a"]`))
	f.Add(uint8(12), int32(-1), "Capacity", []byte(`{}`))
	f.Fuzz(func(t *testing.T, field uint8, part int32, name string, value []byte) {
		kind := fieldShapes[int(field)%len(fieldShapes)].kind
		fuzzed := merge.Report{Plugin: "b", Contents: []merge.Content{{
			Kind: kinds[kind], Fields: []merge.ReportField{{Part: merge.Part(part), Name: name, Value: value}},
		}}}
		right := report("a", "Node.metadata.Labels", `{"example.com/right":"right"}`)
		result := merge.Merge([]merge.Report{fuzzed, right}, options)
		checkFuzzed(t, &result, value)
		again := merge.Merge([]merge.Report{right, fuzzed}, options)
		if !reflect.DeepEqual(result.Fields, again.Fields) {
			t.Errorf("%v in one order, %v in the other", result.Fields, again.Fields)
		}
		twice := merge.Merge(asReports(&result), options)
		findings := len(twice.Refusals) + len(twice.Conflicts)
		if findings > 0 || !reflect.DeepEqual(withPlugins(result.Fields, "x"), twice.Fields) {
			t.Errorf("%q became %q when it was merged again, with %d findings", result.Fields, twice.Fields, findings)
		}
	})
}

func checkFuzzed(t *testing.T, result *merge.Result, value []byte) {
	t.Helper()
	if result.Node.Labels["example.com/right"] != "right" {
		t.Errorf("the other field became %v", result.Node.Labels)
	}
	if len(result.Refusals) > 1 {
		t.Errorf("refusals of one field: %v", result.Refusals)
	}
	for _, r := range result.Refusals {
		if len(r.Field)+len(r.Reason) > 1000 || !utf8.ValidString(r.Field+r.Reason) {
			t.Errorf("refusal of %d bytes: %q", len(r.Reason), r)
		}
	}
	length := 0
	for _, field := range result.Fields {
		length += len(field.JSON)
		if !json.Valid(field.JSON) {
			t.Errorf("%s has %q, which is no JSON", field.Path, field.JSON)
		}
	}
	// A control character, or one of HTML, has one byte in the value and six in the result.
	if most := 1000 + 8*len(value); length > most {
		t.Errorf("%d bytes became %d, more than %d", len(value), length, most)
	}
}
