package strictjson

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

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

// values has a field of each kind; Small, Text and the fields of embedded are always encoded.
type values struct {
	Small int8 `json:"small"`
	embedded
	*Shared
	Count    uint16            `json:"count,omitempty"`
	Share    float32           `json:"share,omitempty"`
	Is       bool              `json:"is,omitempty"`
	At       time.Time         `json:"at,omitzero"`
	Address  netip.Addr        `json:"address,omitzero"`
	Labels   map[string]string `json:"labels,omitzero"`
	Names    []string          `json:"names,omitzero"`
	Optional *int64            `json:"optional,omitempty"`
	Hidden   int               `json:"-"`
	Plain    int
}

type embedded struct {
	Text string `json:"text"`
}

// Shared is embedded as a pointer.
type Shared struct {
	Kind string `json:"kind,omitempty"`
}

var limits = Limits{Bytes: 1000, String: 20, Depth: 5, Elements: 4, Total: 30, Fields: map[string]int{"pods": 6}}

var wide = Limits{Bytes: 1000, String: 100, Depth: 5, Elements: 20, Total: 100}

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

// TestEmptyIsNotAbsent: a list or an object that is there and empty is not nil.
func TestEmptyIsNotAbsent(t *testing.T) {
	v := values{Shared: &Shared{}}
	const text = ` { "small" : -128, "text":"", "Plain":0,"labels":{ } , "names": [	] ,"optional":0} `
	if err := Unmarshal([]byte(text), &v, wide); err != nil {
		t.Fatal(err)
	}
	want := values{
		Small: -128, Shared: &Shared{}, Labels: map[string]string{}, Names: []string{}, Optional: new(int64),
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("%+v, want %+v", v, want)
	}
}

// TestValuesThatAreRefused: each error names the field, its value, and what is allowed.
func TestValuesThatAreRefused(t *testing.T) {
	const whole = `"small":1,"text":"","Plain":0`
	for text, want := range map[string]string{
		`{"small":128,"text":"","Plain":0}`:                "small: 128: must be a whole number from -128 to 127",
		`{"small":1.0,"text":"","Plain":0}`:                "small: 1.0: must be a whole number from -128 to 127",
		`{"small":1,"text":5,"Plain":0}`:                   "text: 5: must be a string",
		`{"small":1,"Plain":0}`:                            "text: is missing",
		`{"small":1,"text":""}`:                            "Plain: is missing",
		`{"small":1,"small":1}`:                            "small: must be there once",
		`{"small":null}`:                                   "small: null is not allowed",
		`{"Small":1}`:                                      `unknown field "Small": must be one of small, text, kind, count`,
		`{"Hidden":1}`:                                     `unknown field "Hidden"`,
		`{"\u0073mall":1,"small":2}`:                       "small: must be there once",
		`{"count":65536,` + whole + `}`:                    "count: 65536: must be a whole number from 0 to 65535",
		`{"count":-1,` + whole + `}`:                       "count: -1: must be a whole number from 0 to 65535",
		`{"share":1e39,` + whole + `}`:                     "share: 1e39: must be a number that fits into 32 bits",
		`{"share":"1",` + whole + `}`:                      `share: "1": must be a number`,
		`{"is":1,` + whole + `}`:                           "is: 1: must be true or false",
		`{"is":"true",` + whole + `}`:                      `is: "true": must be true or false`,
		`{"labels":[],` + whole + `}`:                      "labels: []: must be an object",
		`{"labels":{"a":1},` + whole + `}`:                 "labels.a: 1: must be a string",
		`{"labels":{"a":"","a":""},` + whole + `}`:         "labels.a: must be there once",
		`{"names":{},` + whole + `}`:                       "names: {}: must be a list",
		`{"names":["",null],` + whole + `}`:                "names[1]: null is not allowed",
		`{"optional":{"n":1},` + whole + `}`:               `optional: {"n":1}: must be a whole number from -922337203685477`,
		`{"address":1,` + whole + `}`:                      "address: 1: must be a string",
		`{"address":"1",` + whole + `}`:                    "address: ParseAddr",
		`{"at":1,` + whole + `}`:                           "at: 1: must be a time as",
		`{"at":"2026-01-01T00:00:00",` + whole + `}`:       `at: "2026-01-01T00:00:00": must be a time as`,
		`{"at":"2026-01-01T00:00:00+01:00",` + whole + `}`: `must be a time as "2006-01-02T15:04:05.999999999Z", in UTC`,
		`{"at":"1699-12-31T23:59:59Z",` + whole + `}`:      "must be a time in the years from 1700 to 2999",
		`{"at":"3000-01-01T00:00:00Z",` + whole + `}`:      "must be a time in the years from 1700 to 2999",
		`[]`:   "[]: must be an object",
		`null`: "null is not allowed",
		`{"optional":"` + strings.Repeat("x", 70) + `"}`: `optional: "` + strings.Repeat("x", 63) + "…: must be a whole",
	} {
		v := values{Shared: &Shared{}}
		if err := Unmarshal([]byte(text), &v, wide); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
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
		"a field of a name": {`{"named":{"second":{"m":1}}}`, `named.second: unknown field "m": must be one of n`},
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
		`{"small":1,"text":"","Plain":1,"at":"2026-01-01T00:00:00.5Z","share":0.1,"labels":{"a":"b"}}`,
		`{"kind":"a","small":-0,"count":1,"is":true,"address":"::1","names":["\ud800"],"optional":1,"text":"","Plain":0}`,
		`[[[[[]]]]]`, `{"a":{"b":["c",{"d":null}]}}`, `"\u00e4\\"`, `1e3`, `{"named":null}`, `{"":{"":""}}`, ` `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		likeEncodingJSON(t, data, func() any { return &values{Shared: &Shared{}} })
		likeEncodingJSON(t, data, func() any { return &outer{} })
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

// likeEncodingJSON: what is accepted is decoded as by package encoding/json.
func likeEncodingJSON(t *testing.T, data []byte, empty func() any) {
	got, want := empty(), empty()
	if Unmarshal(data, got, wide) != nil {
		return
	}
	if err := json.Unmarshal(data, want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, encoding/json: %+v", got, want)
	}
}
