package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	N int `json:"n,omitempty"`
}

// named is a list whose elements have names.
type named [2]inner

func nameOf(i int) string { return []string{"first", "second"}[i] }

func (n named) MarshalJSON() ([]byte, error)     { return MarshalNamed(n[:], nameOf) }
func (n *named) UnmarshalJSON(data []byte) error { return UnmarshalNamed(data, n[:], nameOf) }

type outer struct {
	Lists []list `json:"lists,omitempty"`
	Named named  `json:"named,omitzero"`
	Text  string `json:"text,omitempty"`
	Next  *outer `json:"next,omitempty"`
}

type list struct {
	Pods []inner `json:"pods,omitempty"`
}

var limits = Limits{Bytes: 1000, String: 20, Depth: 5, Elements: 4, Total: 30, Fields: map[string]int{"pods": 6}}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	v := outer{
		Lists: []list{{Pods: []inner{{1}, {2}, {3}, {4}, {5}, {6}}}}, Named: named{{}, {N: 7}},
		Text: `{"[,]"} \ " ü`, Next: &outer{Text: `\"`},
	}
	data, err := json.Marshal(&v)
	if err != nil {
		t.Fatal(err)
	}
	var got outer
	if err := Unmarshal(data, &got, limits); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if d := cmp.Diff(v, got); d != "" {
		t.Error(d)
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a list":        {`{"lists":[{},{},{},{},{}]}`, "lists: more than 4 elements"},
		"a larger list": {`{"lists":[{},{"pods":[{},{},{},{},{},{},{}]}]}`, "lists[1].pods: more than 6 elements"},
		"members":       {`{"a":1,"b":1,"c":1,"d":1,"e":1}`, "the document: more than 4 elements"},
		"in total": {
			`{"lists":[` + strings.Repeat(`{"pods":[{},{},{},{}]},`, 3) + `{}]}`,
			"lists[2].pods[3]: more than 30 elements in the document",
		},
		"depth":             {`{"next":{"next":{"next":{"next":{"next":{}}}}}}`, "next.next.next: nested"},
		"a string":          {`{"next":{"text":"` + strings.Repeat("x", 21) + `"}}`, "next.text: a string of 21 bytes"},
		"a name":            {`{"` + strings.Repeat("x", 21) + `":1}`, "a string of 21 bytes"},
		"the whole":         {`"` + strings.Repeat(" ", 1000) + `"`, "the document has 1002 bytes, more than 1000"},
		"syntax":            {`{"lists":[}`, "invalid character"},
		"an empty document": {``, "unexpected end"},
		"an unknown field":  {`{"other":1}`, `unknown field "other"`},
		"an unknown name":   {`{"named":{"third":{}}}`, `unknown name "third"`},
		"a field of a name": {`{"named":{"second":{"m":1}}}`, `second: json: unknown field "m"`},
		"two values":        {`{} {}`, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			var v outer
			err := Unmarshal([]byte(test.text), &v, limits)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestNamesThatAreAbsentAreZero(t *testing.T) {
	v := outer{Named: named{{N: 1}, {N: 2}}}
	if err := Unmarshal([]byte(`{"named":{"second":{"n":3}}}`), &v, limits); err != nil {
		t.Fatal(err)
	}
	if want := (named{{}, {N: 3}}); v.Named != want {
		t.Errorf("%v, want %v", v.Named, want)
	}
}

// FuzzUnmarshal: whatever the document is, nothing panics, and what is accepted keeps the limits.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{
		`{"lists":[{"pods":[{"n":1}]}],"named":{"first":{"n":2}},"text":"\"\\","next":{"text":"{["}}`,
		`[[[[[]]]]]`, `{"a":{"b":["c",{"d":null}]}}`, `"\u00e4\\"`, `1e3`, `{"named":null}`, `{"":{"":""}}`, ` `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v outer
		if Unmarshal(data, &v, limits) != nil {
			return
		}
		depth := 0
		for o := &v; o != nil; o = o.Next {
			if depth++; depth > limits.Depth || len(o.Lists) > limits.Elements || len(o.Text) > 3*limits.String {
				t.Fatalf("%+v", v)
			}
			for _, l := range o.Lists {
				if len(l.Pods) > limits.Fields["pods"] {
					t.Fatalf("%+v", v)
				}
			}
		}
	})
}
