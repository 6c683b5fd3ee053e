package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// goldenFiles has the JSON that Katalyst's types encode an object with every field, and one with none, to.
// test/katalyst/reporter_golden_test.go writes it.
const goldenFiles = "../../../../test/katalyst/testdata/reporter"

// The types decode what Katalyst's types have encoded, and encode it to the same bytes.
func TestJSONOfKatalyst(t *testing.T) {
	for _, name := range []string{"full", "empty"} {
		want, err := os.ReadFile(goldenFiles + "/CustomNodeResource-" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var object v1alpha1.CustomNodeResource
		decoder := json.NewDecoder(bytes.NewReader(want))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&object); err != nil {
			t.Fatal(err)
		}
		got, err := json.MarshalIndent(&object, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, '\n'); !bytes.Equal(got, want) {
			t.Errorf("%s: decoded and encoded to\n%s\nwant\n%s", name, got, want)
		}
		if name == "full" {
			report(t, zeroes("", reflect.ValueOf(object.Spec)))
			report(t, zeroes("", reflect.ValueOf(object.Status)))
		}
	}
}

// The full object has a value for every field, in the last place where its type appears, so that no field is forgotten.
func zeroes(path string, v reflect.Value) (empty []string) {
	switch v.Kind() {
	case reflect.Pointer:
		return zeroes(path, v.Elem())
	case reflect.Slice:
		if v.Len() > 0 {
			return zeroes(path+"[0]", v.Index(0))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || skipped[path+"."+field.Name] {
				continue
			}
			if v.Field(i).IsZero() {
				empty = append(empty, fmt.Sprintf("%s.%s", path, field.Name))
				continue
			}
			empty = append(empty, zeroes(path+"."+field.Name, v.Field(i))...)
		}
	}
	return empty
}

// skipped are fields that are empty in the first element of a list, and are not in another one.
var skipped = map[string]bool{
	".NodeResourceProperties[0].PropertyQuantity": true,
	".TopologyZone[0].Resources":                  true,
	".TopologyZone[0].Attributes":                 true,
	".TopologyZone[0].Allocations":                true,
	".TopologyZone[0].Siblings":                   true,
	".TopologyZone[0].Children[0].Children":       true,
}

func report(t *testing.T, empty []string) {
	t.Helper()
	for _, path := range empty {
		t.Errorf("the full object has no value for %s", path)
	}
}
