package merge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// report is a report of one field, of the CustomNodeResource unless the name begins with "Node.".
func report(plugin, field, value string) merge.Report {
	kind := node.GroupVersionKind
	if inNode, ok := strings.CutPrefix(field, "Node."); ok {
		kind, field = merge.NodeKind, inNode
	}
	part, name, _ := strings.Cut(field, ".")
	parts := map[string]merge.Part{"spec": merge.Spec, "status": merge.Status, "metadata": merge.Metadata}
	return merge.Report{Plugin: plugin, Contents: []merge.Content{{
		Kind: kind, Fields: []merge.ReportField{{Part: parts[part], Name: name, Value: []byte(value)}},
	}}}
}

// show writes the fields, the refusals and the conflicts of a result.
func show(result *merge.Result) (lines []string) {
	for _, f := range result.Fields {
		lines = append(lines, fmt.Sprintf("%s %s %v: %s", f.Kind, f.Path, f.Plugins, f.JSON))
	}
	for _, r := range result.Refusals {
		lines = append(lines, fmt.Sprintf("refused: %s %s %s: %s", r.Plugin, r.Kind, r.Field, r.Reason))
	}
	for _, c := range result.Conflicts {
		lines = append(lines, fmt.Sprintf("conflict: %s %s: %s, not %s", c.Kind, c.Path, c.Used, c.Ignored))
	}
	return lines
}

func TestMerge(t *testing.T) {
	const (
		properties = "CustomNodeResource spec.nodeResourceProperties "
		zones      = "CustomNodeResource status.topologyZone "
		labels     = "CustomNodeResource metadata.labels "
	)
	for name, tc := range map[string]struct {
		reports []merge.Report
		want    []string
	}{
		"nothing": {},
		"null is no value": {
			[]merge.Report{
				report("a", "spec.Taints", `null`),
				report("a", "metadata.Labels", `{"a": null}`),
				report("a", "status.TopologyZone", `[null]`),
				report("b", "spec.NodeResourceProperties", `[{"propertyName":"x","propertyQuantity":null}]`),
			},
			[]string{properties + `[b]: [{"propertyName":"x"}]`},
		},
		"properties by name": {
			[]merge.Report{
				report("b", "spec.NodeResourceProperties",
					`[{"propertyName":"x","propertyQuantity":"1"},{"propertyName":"cis","propertyValues":["sse","avx"]}]`),
				report("a", "spec.NodeResourceProperties",
					`[{"propertyName":"x","propertyQuantity":"0"},{"propertyName":"cis","propertyValues":["sse","bmi"]}]`),
			},
			[]string{
				properties + `[a b]: [{"propertyName":"cis","propertyValues":["avx","bmi","sse"]},` +
					`{"propertyName":"x","propertyQuantity":"0"}]`,
				`conflict: CustomNodeResource spec.nodeResourceProperties[x].propertyQuantity: a, not b`,
			},
		},
		"zones down the tree": {
			[]merge.Report{
				report("a", "status.TopologyZone", `[{"type":"Socket","name":"0","children":[
					{"type":"Numa","name":"0","resources":{"capacity":{"cpu":"4"}}}]}]`),
				report("b", "status.TopologyZone", `[{"type":"Socket","name":"0","children":[
					{"type":"Numa","name":"1"},
					{"type":"Numa","name":"0","resources":{"capacity":{"cpu":4000m,"memory":"1Gi"}},
					"allocations":[{"consumer":"p","requests":{"cpu":"1"}}],
					"siblings":[{"type":"Numa","name":"1","attributes":[{"name":"distance","value":"21"}]}]}]}]`),
				report("c", "status.TopologyZone", `[{"type":"Socket","name":"0","children":[
					{"type":"Numa","name":"1"},
					{"type":"Numa","name":"0","resources":{"capacity":{"cpu":"4000m","memory":"1Gi"}},
					"allocations":[{"consumer":"p","requests":{"cpu":"1"}}],
					"siblings":[{"type":"Numa","name":"1","attributes":[{"name":"distance","value":"21"}]}]}]}]`),
				report("d", "status.TopologyZone", `[{"type":"Socket","name":"0","children":[{"type":"Numa","name":"0",
					"siblings":[{"type":"GPU","name":"1"},{"type":"Numa","name":"1","attributes":[
					{"name":"distance","value":"20"},{"name":"link"}]}]}]}]`),
			},
			[]string{
				zones + `[a c d]: [{"type":"Socket","name":"0","resources":{},"children":[` +
					`{"type":"Numa","name":"0","resources":{"capacity":{"cpu":"4","memory":"1Gi"}},` +
					`"allocations":[{"consumer":"p","requests":{"cpu":"1"}}],` +
					`"siblings":[{"type":"GPU","name":"1"},{"type":"Numa","name":"1","attributes":` +
					`[{"name":"distance","value":"21"},{"name":"link","value":""}]}]},` +
					`{"type":"Numa","name":"1","resources":{}}]}]`,
				`refused: b CustomNodeResource status.TopologyZone: is no JSON: ` +
					`invalid character 'm' after object key:value pair`,
				`conflict: CustomNodeResource status.topologyZone[Socket/0].children[Numa/0].siblings[Numa/1]` +
					`.attributes[distance].value: c, not d`,
			},
		},
		"taints by key, effect and QoS level": {
			[]merge.Report{
				report("a", "spec.Taints", `[{"key":"k","effect":"NoSchedule","qosLevel":"shared_cores","value":"1"},
					{"key":"k","effect":"NoExecute","qosLevel":"shared_cores"}]`),
				report("b", "spec.Taints", `[{"key":"k","effect":"NoSchedule","qosLevel":"reclaimed_cores"},
					{"key":"k","effect":"NoSchedule","qosLevel":"shared_cores","value":"2"}]`),
			},
			[]string{
				`CustomNodeResource spec.taints [a b]: [{"key":"k","effect":"NoExecute","qosLevel":"shared_cores"},` +
					`{"key":"k","effect":"NoSchedule","qosLevel":"reclaimed_cores"},` +
					`{"key":"k","value":"1","effect":"NoSchedule","qosLevel":"shared_cores"}]`,
				`conflict: CustomNodeResource spec.taints[k/NoSchedule/shared_cores].value: a, not b`,
			},
		},
		"keys with separators are different keys": {
			[]merge.Report{report("a", "status.TopologyZone",
				`[{"type":"a\u0000b","name":"c"},{"type":"a","name":"b\u0000c"},{"type":"a/b","name":"c"},
				{"type":"a","name":"b/c"}]`)},
			[]string{zones + `[a]: [{"type":"a","name":"b\u0000c","resources":{}},{"type":"a","name":"b/c","resources":{}},` +
				`{"type":"a\u0000b","name":"c","resources":{}},{"type":"a/b","name":"c","resources":{}}]`},
		},
		"a plugin gives a leaf twice": {
			[]merge.Report{
				report("a", "metadata.Labels", `{"x":"2"}`), report("a", "metadata.Labels", `{"x":"1"}`),
				report("b", "metadata.Labels", `{"x":"1"}`),
			},
			[]string{labels + `[a b]: {"x":"1"}`, `conflict: CustomNodeResource metadata.labels[x]: a, not a`},
		},
		"an empty label is a value": {
			[]merge.Report{report("a", "metadata.Labels", `{"x":""}`), report("b", "metadata.Labels", `{"x":"1"}`)},
			[]string{labels + `[a b]: {"x":""}`, `conflict: CustomNodeResource metadata.labels[x]: a, not b`},
		},
		"an empty string of a struct is none": {
			[]merge.Report{report("a", "status.TopologyPolicy", `""`), report("b", "status.TopologyPolicy", `"None"`)},
			[]string{`CustomNodeResource status.topologyPolicy [b]: "None"`},
		},
		"quantities are equal that are written differently": {
			[]merge.Report{
				report("a", "status.Resources", `{"capacity":{"cpu":"+1"}}`),
				report("b", "status.Resources", `{"capacity":{"cpu":1000m},"allocatable":{}}`),
				report("c", "status.Resources", `{"capacity":{"cpu":"1000m"},"allocatable":{}}`),
			},
			[]string{
				`CustomNodeResource status.resources [a c]: {"allocatable":{},"capacity":{"cpu":"1"}}`,
				`refused: b CustomNodeResource status.Resources: is no JSON: ` +
					`invalid character 'm' after object key:value pair`,
			},
		},
		"times are equal in a second": {
			[]merge.Report{
				report("a", "status.NodeMetricStatus", `{"updateTime":"2026-01-02T03:04:05.4+01:00"}`),
				report("b", "status.NodeMetricStatus", `{"updateTime":"2026-01-02T02:04:05Z"}`),
			},
			[]string{`CustomNodeResource status.nodeMetricStatus [a b]: {"updateTime":"2026-01-02T02:04:05Z"}`},
		},
		"members that are unknown": {
			[]merge.Report{report("a", "spec.NodeResourceProperties", `[{"propertyName":"x","new":[1]}]`)},
			[]string{properties + `[a]: [{"propertyName":"x"}]`},
		},
		"metadata": {
			[]merge.Report{
				report("a", "metadata.Labels", `{"kubernetes.io/hostname":"b","node-restriction.kubernetes.io/a":"b",
					"a.k8s.io/b":"c","K8S.io/b":"c","a b":"c","d":"not valid","example.com/a":"b","mykubernetes.io/a":"b"}`),
				report("a", "metadata.Annotations", `{"X.kubernetes.io/a":"b","example.com/A":"any text"}`),
				report("a", "metadata.Finalizers", `["a"]`),
				report("a", "metadata.OwnerReferences", `[]`),
				report("b", "metadata.Labels", `{"d":"valid"}`),
			},
			[]string{
				`CustomNodeResource metadata.annotations [a]: {"example.com/A":"any text"}`,
				labels + `[a b]: {"d":"valid","example.com/a":"b","mykubernetes.io/a":"b"}`,
				`refused: a CustomNodeResource metadata.Annotations: key "X.kubernetes.io/a": is below kubernetes.io or k8s.io`,
				`refused: a CustomNodeResource metadata.Finalizers: unknown field: must be one of Annotations, Labels`,
				`refused: a CustomNodeResource metadata.Labels: key "K8S.io/b": prefix part a lowercase RFC 1123 subdomain ` +
					`must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an ` +
					`alphanumeric character (e.g. 'example.com', regex used for validation is ` +
					`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); 5 more keys are left out`,
				`refused: a CustomNodeResource metadata.OwnerReferences: unknown field: must be one of Annotations, Labels`,
			},
		},
		"the Node": {
			[]merge.Report{
				report("a", "Node.metadata.Labels", `{"example.com/a":"1","b.example.com/a":"2","plain":"3"}`),
				report("a", "Node.metadata.Annotations", `{"own.dev/a":"1","myexample.com/a":"2"}`),
				report("b", "Node.metadata.Annotations", `{"own.dev/b":"1"}`),
				report("a", "Node.status.Capacity", `{"example.com/gpu":"8","example.com/half":"500m","cpu":"1"}`),
				report("a", "Node.status.Allocatable", `{"example.com/gpu":-1,"other.com/gpu":"1","example.com/x":"1e30"}`),
				report("a", "Node.spec.Taints", `[]`),
				report("a", "Node.status.Conditions", `[]`),
			},
			[]string{
				`Node metadata.annotations [a]: {"own.dev/a":"1"}`,
				`Node metadata.labels [a]: {"b.example.com/a":"2","example.com/a":"1"}`,
				`Node status.capacity [a]: {"example.com/gpu":"8"}`,
				`refused: a Node metadata.Annotations: key "myexample.com/a": is below none of nodePrefixes`,
				`refused: a Node metadata.Labels: key "plain": is below none of nodePrefixes`,
				`refused: a Node spec.Taints: unknown field: no field of the spec of a Node can be reported`,
				`refused: a Node status.Allocatable: key "example.com/gpu": -1: ` +
					`must be a whole number that is not negative, below 2^63; 2 more keys are left out`,
				`refused: a Node status.Capacity: key "cpu": is below none of nodePrefixes; 1 more keys are left out`,
				`refused: a Node status.Conditions: unknown field: must be one of Allocatable, Capacity`,
				`refused: b Node metadata.Annotations: key "own.dev/b": is below none of nodePrefixes`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := merge.Options{
				NodePrefixes: []string{"example.com"}, PluginPrefixes: map[string][]string{"a": {"own.dev"}},
			}
			result := merge.Merge(tc.reports, options)
			if diff := cmp.Diff(tc.want, show(&result)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each of these values leaves out its field, with a reason that names the place, the value and what is allowed.
func TestRefusedValues(t *testing.T) {
	deep := strings.Repeat(`[{"type":"a","name":"b","children":`, 40) + `[]` + strings.Repeat(`}]`, 40)
	for _, tc := range [][3]string{
		{"status.TopologyZone", ``, `is no JSON: unexpected end of JSON input`},
		{"status.TopologyZone", `NaN`, `is no JSON: invalid character 'N' looking for beginning of value`},
		{"status.TopologyZone", `[]x`, `is no JSON: invalid character 'x' after top-level value`},
		{"status.TopologyZone", `{}`, `an object: must be a list`},
		{
			"status.topologyZone", `[]`, `unknown field: must be one of ` +
				`Conditions, NodeMetricStatus, Resources, TopologyPolicy, TopologyZone`,
		},
		{"status.TopologyZone", `[{"type":"Numa"}]`, `[0].name: is missing or empty`},
		{"status.TopologyZone", `[{"type":"Numa","name":1}]`, `[0].name: 1: must be a string`},
		{"status.TopologyZone", deep, `is nested more than 64 deep`},
		{
			"status.TopologyZone", `[{"type":"a","name":"b","children":[null,{"type":"c","name":"d","resources":[]}]}]`,
			`[0].children[1].resources: a list: must be an object`,
		},
		{"status.Resources", `{"capacity":{"cpu":"1","cpu":"2"}}`, `member "cpu" is there twice`},
		{"status.Resources", `{"capacity":{"cpu":true}}`, `capacity[cpu]: true: must be a quantity`},
		{
			"status.Resources", `{"capacity":{"cpu":"much"}}`,
			`capacity[cpu]: "much": must be a quantity, such as 4, 100m or 2Gi`,
		},
		{
			"status.Resources", `{"capacity":{"cpu":1e2147483647}}`, `capacity[cpu]: "1e2147483647": ` +
				`must be a quantity of at most 64 characters, with an exponent of at most 30`,
		},
		{
			"status.Resources", `{"capacity":{"cpu":"1E-99999999999999999999"}}`,
			`capacity[cpu]: "1E-99999999999999999999": ` +
				`must be a quantity of at most 64 characters, with an exponent of at most 30`,
		},
		{
			"status.Resources", `{"capacity":{"cpu":"1E-9223372036854775808"}}`,
			`capacity[cpu]: "1E-9223372036854775808": ` +
				`must be a quantity of at most 64 characters, with an exponent of at most 30`,
		},
		{
			"spec.Taints", `[{"key":"k","effect":"NoSchedule","qosLevel":"best"}]`,
			`[0].qosLevel: "best": must be one of [reclaimed_cores shared_cores dedicated_cores system_cores]`,
		},
		{"spec.Taints", `[{"key":"k","effect":"NoSchedule"}]`, `[0].qosLevel: is missing or empty`},
		{"spec.Taints", `[{"effect":"NoSchedule","qosLevel":"shared_cores"}]`, `[0].key: is missing or empty`},
		{
			"spec.Taints", `[{"key":"k","effect":"NoSchedule","qosLevel":"shared_cores","timeAdded":"now"}]`,
			`[0].timeAdded: "now": must be a time as 2006-01-02T15:04:05Z`,
		},
		{"status.NodeMetricStatus", `{}`, `updateTime: is missing or empty`},
		{
			"status.NodeMetricStatus", `{"updateTime":"9999-12-31T23:59:59-01:00"}`,
			`updateTime: "9999-12-31T23:59:59-01:00": must be a time as 2006-01-02T15:04:05Z`,
		},
		{
			"status.NodeMetricStatus", `{"updateTime":"2026-01-01T00:00:00Z","nodeMetric":{"numaUsage":[{"numaId":1.5}]}}`,
			`nodeMetric.numaUsage[0].numaId: 1.5: must be a whole number of 32 bits`,
		},
		{
			"status.NodeMetricStatus", `{"updateTime":"2026-01-01T00:00:00Z","nodeMetric":{"numaUsage":[{"numaId":1}]}}`,
			`nodeMetric.numaUsage[0].usage: is missing or empty`,
		},
	} {
		result := merge.Merge([]merge.Report{
			report("a", tc[0], tc[1]), report("a", "metadata.Labels", `{"a":"b"}`),
		}, merge.Options{})
		want := []string{
			`CustomNodeResource metadata.labels [a]: {"a":"b"}`, `refused: a CustomNodeResource ` + tc[0] + `: ` + tc[2],
		}
		if diff := cmp.Diff(want, show(&result)); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", tc[1], tc[0], diff)
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	unknown := merge.Content{Kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}}
	core := merge.Content{
		Kind:   schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Fields: []merge.ReportField{{Part: 7, Name: "X"}, {Part: 7, Name: "Y"}},
	}
	named := report("a", "metadata.Labels", `{}`)
	named.Contents[0].Fields[0].Part = -1
	result := merge.Merge([]merge.Report{
		{Plugin: "a", Contents: []merge.Content{unknown, core, unknown}}, {Plugin: "b", Contents: []merge.Content{unknown}},
		{Plugin: "a", Contents: []merge.Content{unknown}}, named,
	}, merge.Options{})
	const must = `unknown kind: must be node.katalyst.kubewharf.io/v1alpha1/CustomNodeResource or v1/Node`
	want := []string{
		`refused: a /v1/Pod : ` + must,
		`refused: a CustomNodeResource -1.Labels: unknown field type -1: must be 0 (Spec), 1 (Status) or 2 (Metadata)`,
		`refused: a g/v1/K : ` + must, `refused: b g/v1/K : ` + must,
	}
	if diff := cmp.Diff(want, show(&result)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFieldsThatAreLeftOut(t *testing.T) {
	leaveOut, err := merge.ParseFields([]string{"-status.topologyZone", "-metadata.labels", "-status.topologyZone"})
	if want := []string{"metadata.labels", "status.topologyZone"}; err != nil || !slices.Equal(leaveOut, want) {
		t.Fatalf("%v, %v, want %v", leaveOut, err, want)
	}
	result := merge.Merge([]merge.Report{
		report("a", "status.TopologyZone", `not read`), report("a", "status.TopologyPolicy", `"None"`),
		report("a", "metadata.Labels", `{"a":"b"}`), report("a", "Node.metadata.Labels", `{"example.com/a":"b"}`),
	}, merge.Options{LeaveOut: leaveOut, NodePrefixes: []string{"example.com"}})
	want := []string{`CustomNodeResource status.topologyPolicy [a]: "None"`}
	if diff := cmp.Diff(want, show(&result)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, entry := range []string{"", "-", "status.topologyZone", "-status.TopologyZone", "--status.topologyZone", "*"} {
		_, err := merge.ParseFields([]string{"-spec.taints", entry})
		want := fmt.Sprintf("fields[1]: %q: must be - and one of metadata.annotations, metadata.labels, "+
			"spec.nodeResourceProperties, spec.taints, status.allocatable, status.capacity, status.conditions, "+
			"status.nodeMetricStatus, status.resources, status.topologyPolicy, status.topologyZone", entry)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", entry, err, want)
		}
	}
}

// The list of conflicts is bounded, and so is each of them, however long the keys of plugins are.
func TestManyConflicts(t *testing.T) {
	long := strings.Repeat("long", 10_000)
	value := func(attribute string) string {
		var names []string
		for i := range 5000 {
			names = append(names, fmt.Sprintf(`{"name":"%05d","value":%q}`, i, attribute))
		}
		return `[{"type":"Numa","name":"` + long + `","attributes":[` + strings.Join(names, ",") + `]}]`
	}
	result := merge.Merge([]merge.Report{
		report("a", "status.TopologyZone", value("a")), report("b", "status.TopologyZone", value("b")),
	}, merge.Options{})
	if len(result.Conflicts) != merge.MaxConflicts || result.MoreConflicts != 4900 {
		t.Errorf("%d and %d conflicts, want %d and 4900", len(result.Conflicts), result.MoreConflicts, merge.MaxConflicts)
	}
	first := result.Conflicts[0]
	if !strings.HasSuffix(first.Path, ".attributes[00000].value") || len(first.Path) > 200 {
		t.Errorf("path %s", first.Path)
	}
}

// A plugin that makes an object too large is left out, and keeps no other plugin out.
func TestLargeObjects(t *testing.T) {
	zone := func(name string, length int) string {
		return fmt.Sprintf(`[{"type":"GPU","name":%q,"attributes":[{"name":"a","value":%q}]}]`,
			name, strings.Repeat("v", length))
	}
	annotation := func(length int) string { return fmt.Sprintf(`{"example.com/a":%q}`, strings.Repeat("v", length)) }
	result := merge.Merge([]merge.Report{
		report("a", "status.TopologyZone", zone("a", 600<<10)), report("b", "status.TopologyZone", zone("b", 500<<10)),
		report("c", "status.TopologyZone", zone("c", 600<<10)), report("c", "status.TopologyPolicy", `"None"`),
		report("d", "metadata.Annotations", annotation(100<<10)), report("e", "metadata.Annotations", annotation(200<<10)),
		report("e", "metadata.Labels", `{"a":"b"}`), report("z", "status.TopologyZone", zone("z", 10)),
		report("a", "Node.metadata.Annotations", annotation(200<<10)),
	}, options)
	var got []string
	for _, f := range result.Fields {
		got = append(got, fmt.Sprintf("%s %s %v", f.Kind, f.Path, f.Plugins))
	}
	for _, r := range result.Refusals {
		got = append(got, fmt.Sprintf("refused: %s %s %s: %s", r.Plugin, r.Kind, r.Field, r.Reason))
	}
	want := []string{
		"CustomNodeResource metadata.annotations [d]", "CustomNodeResource metadata.labels [e]",
		"CustomNodeResource status.topologyZone [b z]", "Node metadata.annotations [a]",
		"refused: a CustomNodeResource : has 614481 bytes: at most 1048576 are allowed for all plugins together",
		"refused: c CustomNodeResource : has 614487 bytes: at most 1048576 are allowed for all plugins together",
		"refused: e CustomNodeResource metadata.annotations: " +
			"has 204820 bytes: at most 262144 are allowed for all plugins together",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	fields := func(count, length int) merge.Content {
		content := merge.Content{Kind: node.GroupVersionKind}
		for range count {
			content.Fields = append(content.Fields, merge.ReportField{Value: make([]byte, length)})
		}
		return content
	}
	const kindLength = len("node.katalyst.kubewharf.iov1alpha1CustomNodeResource")
	for _, tc := range []struct {
		contents []merge.Content
		want     string
	}{
		{nil, ""},
		{make([]merge.Content, 64), ""},
		{make([]merge.Content, 65), "the answer has 65 contents: at most 64 are allowed"},
		{[]merge.Content{fields(200, 0), fields(56, 0)}, ""},
		{[]merge.Content{fields(200, 0), fields(57, 0)}, "the answer has 257 fields: at most 256 are allowed"},
		{[]merge.Content{fields(1, 262144)}, ""},
		{
			[]merge.Content{fields(1, 0), fields(1, 262145)},
			"content[1].field[0] (): the value has 262145 bytes: at most 262144 are allowed",
		},
		{[]merge.Content{fields(3, 262144), fields(1, 262144-2*kindLength)}, ""},
		{[]merge.Content{fields(4, 262144)}, "the answer has 1048628 bytes: at most 1048576 are allowed"},
	} {
		if err := merge.Validate(tc.contents); fmt.Sprint(err) != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%d contents: %v, want %q", len(tc.contents), err, tc.want)
		}
	}
}
