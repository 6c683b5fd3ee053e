package taints

import (
	"strings"
	"testing"
)

// Later releases have to read the files of this release.
const written = `{"version":1,"nodeUID":"u1","taints":[` +
	`{"key":"node.katalyst.kubewharf.io/Cold","effect":"NoExecute"},` +
	`{"key":"node.katalyst.kubewharf.io/Hot","effect":"NoSchedule"}]}`

func TestFormatOfTheRecord(t *testing.T) {
	r := Record{NodeUID: "u1", Taints: []Taint{{hot, noSchedule}, {cold, noExecute}, {hot, noSchedule}}}
	data, err := r.Encode()
	if err != nil || string(data) != written {
		t.Errorf("the format has changed (%v); it is\n%s", err, data)
	}
	want := Record{NodeUID: "u1", Taints: []Taint{{cold, noExecute}, {hot, noSchedule}}}
	later := strings.Replace(written, `"version":1`, `"version":1,"more":{}`, 1)
	for _, text := range []string{written, later} {
		if got, err := DecodeRecord([]byte(text)); err != nil || !got.Equal(want) {
			t.Errorf("%s\nis decoded as %+v, %v", text, got, err)
		}
	}
	const none = `{"version":1,"nodeUID":"u1","taints":[]}`
	if data, err := (Record{NodeUID: "u1"}).Encode(); err != nil || string(data) != none {
		t.Errorf("without taints it is %s, %v", data, err)
	}
}

func TestRecordIsOfOneNode(t *testing.T) {
	r := Record{NodeUID: "u1", Taints: []Taint{{hot, noSchedule}}}
	if len(r.Of("u1")) != 1 || len(r.Of("u2")) != 0 {
		t.Errorf("of its Node %v, of another %v", r.Of("u1"), r.Of("u2"))
	}
	if r.Equal(Record{NodeUID: "u2", Taints: r.Taints}) || r.Equal(Record{NodeUID: "u1"}) || !r.Equal(r) {
		t.Error("equal is wrong")
	}
}

func TestErrorsOfRecordsNameTheField(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"empty":         {written, ``, "not a record of taints"},
		"truncated":     {`"NoSchedule"}]}`, ``, "not a record of taints"},
		"array":         {written, `[]`, "not a record of taints"},
		"null":          {written, `null`, `version: Invalid value: 0: must be 1`},
		"later version": {`"version":1`, `"version":2`, `version: Invalid value: 2: must be 1`},
		"trailing data": {`]}`, `]} {}`, "after top-level value"},
		"no Node":       {`"u1"`, `""`, "nodeUID: Required value"},
		"effect":        {`"NoExecute"`, `"Never"`, `taints[0].effect: Unsupported value: "Never"`},
		"other prefix":  {`node.katalyst.kubewharf.io/Hot`, `team`, `taints[1].key: Invalid value: "team"`},
		"no name":       {`kubewharf.io/Hot`, `kubewharf.io/`, `taints[1].key: Invalid value`},
		"two slashes":   {`kubewharf.io/Hot`, `kubewharf.io/a/b`, `taints[1].key: Invalid value`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(written, c.old, c.new, 1)
			if text == written {
				t.Fatal("nothing was replaced")
			}
			if r, err := DecodeRecord([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, error %v, want one with %q", r, err, c.want)
			}
		})
	}
}

// FuzzDecodeRecord checks that DecodeRecord returns either an error, or a record that is encoded and decoded to the
// same, with which no taint of another prefix is ever removed.
func FuzzDecodeRecord(f *testing.F) {
	for _, seed := range []string{written, `{}`, `null`, strings.ToUpper(written), `{"version":1,"taints":[{}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		for _, taint := range r.Taints {
			if !taint.valid() {
				t.Errorf("%v", taint)
			}
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("%+v is decoded and cannot be encoded: %v", r, err)
		}
		if back, err := DecodeRecord(again); err != nil || !back.Equal(r) {
			t.Errorf("%+v\nis decoded as %+v: %v", r, back, err)
		}
	})
}
