package reported

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

var (
	near    = Field{Label, "example.com/near"}
	signals = Field{Annotation, "example.com/signals"}
	gpus    = Field{Capacity, "example.com/gpu"}
	free    = Field{Allocatable, "example.com/gpu"}
)

// text is a list of fields by their names above.
func text(list []Field) string {
	names := map[Field]string{near: "near", signals: "signals", gpus: "gpus", free: "free"}
	var words []string
	for _, f := range list {
		words = append(words, names[f])
	}
	return strings.Join(words, " ")
}

func fieldsText(fields Fields) string {
	var words []string
	for _, f := range sorted(slices.Collect(maps.Keys(fields))) {
		words = append(words, text([]Field{f})+"="+fields[f])
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		in                            Input
		set, removed, record, forgets string
	}{
		"nothing": {},
		"new fields are written and recorded": {
			in:  Input{Reported: Fields{near: "1", signals: "{}", gpus: "2", free: "1"}},
			set: "free=1 signals={} gpus=2 near=1", record: "free signals gpus near",
		},
		"nothing changes when the Node is as it should be": {
			in:     Input{Node: Fields{near: "1"}, Reported: Fields{near: "1"}, Record: []Field{near}},
			record: "near",
		},
		"a new value": {
			in:  Input{Node: Fields{near: "1"}, Reported: Fields{near: "2"}, Record: []Field{near}},
			set: "near=2", record: "near",
		},
		"a field goes with its plugin, and is recorded until it is gone": {
			in:      Input{Node: Fields{near: "1", signals: "x"}, Record: []Field{near}},
			removed: "near", record: "near",
		},
		"what is gone is forgotten": {in: Input{Record: []Field{near, gpus}}, forgets: "gpus near"},
		"somebody else has removed it": {
			in: Input{Reported: Fields{near: "1"}, Record: []Field{near}}, set: "near=1", record: "near",
		},
		"somebody else has written the reported value before": {
			in: Input{Node: Fields{near: "1"}, Reported: Fields{near: "1"}},
		},
		"somebody else has written another value before": {
			in: Input{Node: Fields{near: "x"}, Reported: Fields{near: "1"}}, set: "near=1", record: "near",
		},
		"fields of others": {in: Input{Node: Fields{near: "x", gpus: "8", free: "8"}}},
		"an empty value is one": {
			in: Input{Node: Fields{}, Reported: Fields{near: ""}}, set: "near=", record: "near",
		},
		"a device plugin has the resource": {
			in: Input{Node: Fields{gpus: "8", free: "8"}, Reported: Fields{gpus: "2", free: "2"}, Record: []Field{gpus, free},
				Devices: map[string]bool{"example.com/gpu": true}},
			forgets: "free gpus",
		},
		"labels have nothing to do with device plugins": {
			in:  Input{Reported: Fields{near: "1"}, Devices: map[string]bool{"example.com/near": true}},
			set: "near=1", record: "near",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.in)
			got := []string{fieldsText(d.Set), text(d.Removed), text(d.Record), text(d.Forgotten)}
			if want := []string{c.set, c.removed, c.record, c.forgets}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if d.Changed() != (c.set+c.removed != "") {
				t.Errorf("changed: %v", d.Changed())
			}
		})
	}
}

func TestWithin(t *testing.T) {
	d := Decide(Input{
		Node: Fields{near: "1", free: "1"}, Reported: Fields{near: "2", signals: "x"}, Record: []Field{near, free},
	})
	w := d.Within([]Field{near, free})
	if got := fieldsText(w.Set); got != "near=2" || text(w.Removed) != "free" || len(d.Set) != 2 {
		t.Errorf("set %s, removed %s", got, text(w.Removed))
	}
}

// reference is Decide for one field, written again: whether and how the Node has it afterwards, and whether it is
// recorded.
func reference(in *Input, f Field) (value string, there, recorded bool) {
	value, there = in.Node[f]
	want, wanted := in.Reported[f]
	ours := slices.Contains(in.Record, f)
	switch {
	case f.IsResource() && in.Devices[f.Key]:
		return value, there, false
	case wanted:
		return want, true, ours || !there || value != want
	case ours:
		return "", false, there // recorded until the next decision
	}
	return value, there, false
}

func drawInput(t *rapid.T) Input {
	all := rapid.SampledFrom([]Field{
		near, signals, gpus, free, {Label, "b.example/x"}, {Annotation, "b.example/x"}, {Capacity, "b.example/x"},
		{Allocatable, "b.example/x"},
	})
	fields := rapid.MapOf(all, rapid.SampledFrom([]string{"", "1", "2"}))
	return Input{
		Node: fields.Draw(t, "node"), Reported: fields.Draw(t, "reported"),
		Record:  rapid.SliceOf(all).Draw(t, "record"),
		Devices: map[string]bool{"example.com/gpu": rapid.Bool().Draw(t, "device")},
	}
}

func apply(node Fields, d *Decision) Fields {
	after := maps.Clone(node)
	maps.Copy(after, d.Set)
	for _, f := range d.Removed {
		delete(after, f)
	}
	return after
}

// TestDecideRandomly compares decisions with the reference field by field, and has the fields of others never changed.
// A second decision on the result changes nothing.
func TestDecideRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := Decide(in)
		after := apply(in.Node, &d)
		union := Fields{}
		for _, fields := range []Fields{in.Node, in.Reported} {
			maps.Copy(union, fields)
		}
		for _, f := range in.Record {
			union[f] = ""
		}
		for f := range union {
			value, there, recorded := reference(&in, f)
			got, is := after[f]
			if got != value || is != there || slices.Contains(d.Record, f) != recorded {
				t.Fatalf("%v: %q %v, recorded %v; want %q %v %v", f, got, is, slices.Contains(d.Record, f), value, there, recorded)
			}
			if was := slices.Contains(in.Record, f); slices.Contains(d.Forgotten, f) != (was && !recorded) {
				t.Fatalf("%v: forgotten %v", f, slices.Contains(d.Forgotten, f))
			}
		}
		for _, list := range [][]Field{d.Removed, d.Record, d.Forgotten} {
			if !slices.Equal(list, sorted(list)) {
				t.Fatalf("not sorted: %v", list)
			}
		}
		again := Decide(Input{Node: after, Reported: in.Reported, Record: d.Record, Devices: in.Devices})
		if again.Changed() {
			t.Fatalf("a second decision changes %v, %v", again.Set, again.Removed)
		}
	})
}

// TestLivesOfPlugins runs random reports of plugins, writes of others, and restarts, each with a Node write that may be
// lost after the record was stored. Fields that no plugin ever reported are never changed, and in the end, when no
// plugin reports anything, nothing is left of what only the agent has written.
func TestLivesOfPlugins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SampledFrom([]Field{near, signals, gpus, free})
		values := rapid.SampledFrom([]string{"1", "2"})
		theirs := Fields{{Label, "their.example/x"}: "x", {Capacity, "their.example/x"}: "8"}
		node := maps.Clone(theirs)
		var record []Field
		round := func(reported Fields, lost bool) {
			d := Decide(Input{Node: node, Reported: reported, Record: record})
			record = d.Record
			if !lost {
				node = apply(node, &d)
			}
		}
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			round(rapid.MapOf(keys, values).Draw(t, "reported"), rapid.Bool().Draw(t, "lost"))
		}
		round(nil, false)
		round(nil, false)
		if !maps.Equal(node, theirs) || len(record) > 0 {
			t.Fatalf("left: %v, recorded %v", node, record)
		}
	})
}

func list(capacity string) v1.ResourceList {
	return v1.ResourceList{"example.com/gpu": resource.MustParse(capacity)}
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		node merge.Node
		want string
	}{
		"nothing":       {},
		"capacity only": {merge.Node{Capacity: list("1k")}, "free=1000 gpus=1000"},
		"allocatable":   {merge.Node{Allocatable: list("3")}, "free=3 gpus=3"},
		"both":          {merge.Node{Capacity: list("4"), Allocatable: list("0")}, "free=0 gpus=4"},
		"labels and more": {
			merge.Node{Labels: map[string]string{near.Key: ""}, Annotations: map[string]string{signals.Key: "x"}},
			"signals=x near=",
		},
	} {
		fields, err := Of(&c.node)
		if err != nil || fieldsText(fields) != c.want {
			t.Errorf("%s: %s, %v", name, fieldsText(fields), err)
		}
	}
	many := merge.Node{Labels: map[string]string{}}
	for i := range MaxFields {
		many.Labels[fmt.Sprintf("example.com/%d", i)] = ""
	}
	if _, err := Of(&many); err != nil {
		t.Error(err)
	}
	many.Annotations = map[string]string{"example.com/a": ""}
	if _, err := Of(&many); err == nil || !strings.Contains(err.Error(), "2049") {
		t.Errorf("too many: %v", err)
	}
}

// Quantities of the Node are compared by what they are, not by how they are written.
func TestOfNode(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Capacity: list("2000"), Allocatable: list("2k")}}
	if got := fieldsText(OfNode(node)); got != "free=2000 gpus=2000" {
		t.Error(got)
	}
}
