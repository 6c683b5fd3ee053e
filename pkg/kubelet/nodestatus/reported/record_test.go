package reported

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestRecord(t *testing.T) {
	r := Record{NodeUID: "u", Fields: []Field{near, gpus, near}}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"nodeUID":"u","fields":{"capacity":["example.com/gpu"],"labels":["example.com/near"]}}`
	if string(data) != want {
		t.Errorf("%s", data)
	}
	read, err := DecodeRecord(data)
	if err != nil || !read.Equal(Record{NodeUID: "u", Fields: []Field{gpus, near}}) {
		t.Errorf("%v, %v", read, err)
	}
	if len(read.Of("u")) != 2 || read.Of("v") != nil || read.Equal(Record{NodeUID: "u"}) {
		t.Errorf("fields of this Node %v, of another %v", read.Of("u"), read.Of("v"))
	}
}

func TestRecordsAreRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Record{NodeUID: types.UID(rapid.StringMatching(`[a-z0-9-]{1,36}`).Draw(t, "uid"))}
		r.Fields = sorted(rapid.SliceOf(rapid.Custom(func(t *rapid.T) Field {
			return Field{rapid.SampledFrom(Kinds).Draw(t, "kind"), rapid.StringMatching(`[a-z]{1,9}\.example/[a-zA-Z]{1,9}`).
				Draw(t, "key")}
		})).Draw(t, "fields"))
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if read, err := DecodeRecord(data); err != nil || !read.Equal(r) {
			t.Fatalf("%v became %v, %v", r, read, err)
		}
	})
}

// The largest record fits: all fields that can be reported, beside as many that are being removed.
func TestLargestRecord(t *testing.T) {
	r := Record{NodeUID: types.UID(strings.Repeat("u", 36))}
	for i := range 2 * MaxFields {
		r.Fields = append(r.Fields, Field{Annotation, strings.Repeat("d", 253) + fmt.Sprintf("/%063d", i)})
	}
	data, err := r.Encode()
	if err != nil || len(data) > MaxRecordSize {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if _, err := DecodeRecord(data); err != nil {
		t.Error(err)
	}
}

func TestDecodeDamagedRecord(t *testing.T) {
	fields := func(text string) string { return `{"version":1,"nodeUID":"u","fields":` + text + `}` }
	for name, c := range map[string]struct{ data, want string }{
		"empty":            {"", "not a record"},
		"not JSON":         {"x", "not a record"},
		"two":              {fields("{}") + fields("{}"), "after top-level value"},
		"another version":  {`{"version":2,"nodeUID":"u"}`, "version"},
		"no UID":           {`{"version":1}`, "nodeUID"},
		"an unknown kind":  {fields(`{"taints":["a.b/c"]}`), "taints"},
		"no domain":        {fields(`{"capacity":["cpu"]}`), "cpu"},
		"an empty domain":  {fields(`{"labels":["/x"]}`), "/x"},
		"of Kubernetes":    {fields(`{"labels":["kubernetes.io/os"]}`), "kubernetes.io/os"},
		"below Kubernetes": {fields(`{"labels":["a.K8s.io/os"]}`), "a.K8s.io/os"},
		"a long key":       {fields(`{"labels":["a/` + strings.Repeat("x", maxKey) + `"]}`), "labels"},
	} {
		if r, err := DecodeRecord([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	// Almost a domain of Kubernetes.
	if _, err := DecodeRecord([]byte(fields(`{"labels":["notkubernetes.io/os"]}`))); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"nodeUID":"u","fields":{"labels":["a.b/c"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		encoded, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := DecodeRecord(encoded); err != nil || !again.Equal(r) {
			t.Errorf("%v became %v, %v", r, again, err)
		}
	})
}
