package reporters

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// refusalCases are about fields that are left out: of this plugin alone, and nothing else of it.
func refusalCases() (cases []scenario) {
	for _, c := range []struct {
		name   string
		bad    merge.Content
		reason string
	}{
		{"R1: no JSON", content(field(merge.Status, "TopologyZone", `[{"type":`)), "status.TopologyZone: is no JSON"},
		{"R1: an unknown field", content(field(merge.Status, "Zones", `[]`)), "status.Zones: unknown field"},
		{"R1: an unknown field type", content(field(7, "Labels", `{}`)), "7.Labels: unknown field type 7"},
		{"R1: a wrong type", content(field(merge.Spec, "NodeResourceProperties", `{}`)), "must be a list"},
		{"R1: not a number", content(field(merge.Status, "Resources", `{"capacity":{"cpu":NaN}}`)), "is no JSON"},
		{"R1: a member twice", content(field(merge.Status, "Resources", `{"capacity":{},"capacity":{}}`)),
			"is there twice"},
		{"R1: deep JSON", content(field(merge.Status, "TopologyZone", strings.Repeat("[", 5000)+strings.Repeat("]", 5000))),
			"is nested more than"},
		{"R1: a great exponent", content(field(merge.Status, "Resources", `{"capacity":{"cpu":"1e999999999"}}`)),
			"an exponent of at most"},
		{"R1: finalizers", content(field(merge.Metadata, "Finalizers", `["example.com/p"]`)), "unknown field"},
		{"R1: owners", content(field(merge.Metadata, "OwnerReferences", `[]`)), "unknown field"},
		{"R1: another name of the object", content(field(merge.Metadata, "Name", `"n2"`)), "unknown field"},
		{"an unknown kind", merge.Content{
			Kind:   schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Fields: []merge.ReportField{field(merge.Metadata, "Labels", `{"example.com/p":"1"}`)},
		}, "unknown kind"},
		{"labels of Kubernetes", content(field(merge.Metadata, "Labels",
			`{"node-restriction.kubernetes.io/team":"x","example.com/p":"1","a.k8s.io/b":"c"}`)),
			`metadata.Labels: key "a.k8s.io/b": is below kubernetes.io or k8s.io; 1 more keys`},
		{"a label that is not valid", content(field(merge.Metadata, "Labels",
			`{"example.com/bad":"a b","example.com/p":"1"}`)),
			`the value "a b"`},
	} {
		cases = append(cases, scenario{
			name: c.name,
			plugins: func() scripted {
				return scripted{"p": polled(c.bad, says("p", "1")), "q": streamed(says("q", "1"))}
			},
			play: func(r *rig) {
				r.published("p=1", "q=1")
				r.refusedFields("p", c.reason)
				r.refusedFields("q")
				r.part("status.topologyZone", "")
				r.part("metadata.finalizers", "")
				labels := ""
				if strings.Contains(string(c.bad.Fields[0].Value), `"example.com/p":`) && c.bad.Kind.Kind != "Pod" {
					labels = `{"example.com/p":"1"}`
				}
				r.part("metadata.labels", labels)
			},
		})
	}
	return cases
}

// mergeCases are about what several plugins report.
func mergeCases() []scenario {
	properties := func(value string) merge.Content { return content(field(merge.Spec, "NodeResourceProperties", value)) }
	zones := func(value string) merge.Content { return content(field(merge.Status, "TopologyZone", value)) }
	return []scenario{{
		name: "for the same leaf the first name wins, whoever came last",
		plugins: func() scripted {
			return scripted{"q": polled(says("x", "q", "q", "1")), "p": streamed(says("x", "p"))}
		},
		play: func(r *rig) {
			r.published("q=1", "x=p")
			r.scripts["q"].set(func(s *script) { s.poll = []merge.Content{says("x", "q2", "q", "2")} })
			r.published("q=2", "x=p")
			r.await("the conflict", func() string {
				result := r.merger.Last().Result
				write := reporter.Write{Kind: node.GroupVersionKind.Kind, Selected: true}
				object := reporter.ObjectOf(&result, write, r.clock.Now())
				want := debugv1alpha1.ReportConflict{Path: "metadata.annotations[example.com/x]", Used: "p", Ignored: "q"}
				if !slices.Equal(object.Conflicts, []debugv1alpha1.ReportConflict{want}) {
					return fmt.Sprintf("%+v", object.Conflicts)
				}
				return ""
			})
			// The other value is published when the plugin that won has it no more.
			r.scripts["p"].set(func(s *script) { s.message = []merge.Content{says("p", "1")} })
			r.published("p=1", "q=2", "x=q2")
		},
	}, {
		name: "null leaves a leaf to others",
		plugins: func() scripted {
			return scripted{
				"p": polled(content(field(merge.Metadata, "Annotations", `{"example.com/x":null,"example.com/p":"1"}`))),
				"q": polled(says("x", "q")),
			}
		},
		play: func(r *rig) { r.published("p=1", "x=q") },
	}, {
		name: "lists are merged by name and sorted",
		plugins: func() scripted {
			return scripted{
				"p": polled(properties(`[{"propertyName":"z","propertyValues":["1"]},` +
					`{"propertyName":"m","propertyQuantity":"2"}]`)),
				"q": polled(properties(`[{"propertyName":"z","propertyValues":["0"]},` +
					`{"propertyName":"a","propertyQuantity":"1"}]`)),
			}
		},
		play: func(r *rig) {
			r.part("spec.nodeResourceProperties", `[{"propertyName":"a","propertyQuantity":"1"},`+
				`{"propertyName":"m","propertyQuantity":"2"},{"propertyName":"z","propertyValues":["0","1"]}]`)
		},
	}, {
		name: "zones are merged down the tree",
		plugins: func() scripted {
			return scripted{
				"p": polled(zones(`[{"type":"Socket","name":"0","resources":{},"children":[{"type":"Numa","name":"0",` +
					`"resources":{"capacity":{"cpu":"4"}}}]}]`)),
				"q": streamed(zones(`[{"type":"Socket","name":"1","resources":{}},{"type":"Socket","name":"0","resources":{},` +
					`"children":[{"type":"Numa","name":"0","resources":{"capacity":{"memory":"1Gi"}},` +
					`"attributes":[{"name":"b","value":"1"},{"name":"a","value":"1"}]}]}]`)),
			}
		},
		play: func(r *rig) {
			r.part("status.topologyZone", `[{"children":[{"attributes":[{"name":"a","value":"1"},{"name":"b","value":"1"}],`+
				`"name":"0","resources":{"capacity":{"cpu":"4","memory":"1Gi"}},"type":"Numa"}],"name":"0","resources":{},`+
				`"type":"Socket"},{"name":"1","resources":{},"type":"Socket"}]`)
		},
	}, {
		name: "several contents of one object are one report",
		plugins: one(func() *script {
			return polled(says("a", "1"), says("b", "1"),
				content(field(merge.Metadata, "Annotations", annotations("c", "1"))))
		}),
		play: func(r *rig) { r.published("a=1", "b=1", "c=1") },
	}, {
		name: "taints are published, conditions are not",
		plugins: one(func() *script {
			return polled(says("p", "1"),
				content(field(merge.Spec, "Taints", `[{"key":"hot","effect":"NoSchedule","qosLevel":"reclaimed_cores"}]`)),
				content(field(merge.Status, "Conditions",
					`[{"type":"Hot","status":"True","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]`)))
		}),
		play: func(r *rig) {
			r.published("p=1")
			r.part("spec.taints", `[{"effect":"NoSchedule","key":"hot","qosLevel":"reclaimed_cores"}]`)
			r.part("status.conditions", "")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", "2")} })
			r.published("p=2")
			r.part("spec.taints", "")
		},
	}}
}

// settingCases are about the configuration.
func settingCases() []scenario {
	return []scenario{{
		name: "fields are left out, and return",
		plugins: one(func() *script {
			return polled(says("p", "1"), content(field(merge.Status, "TopologyPolicy", `"None"`)))
		}),
		play: func(r *rig) {
			r.part("status.topologyPolicy", `"None"`)
			r.reload(func(p *pressure.ReporterPluginsConfiguration) { p.Fields = []string{"-status.topologyPolicy"} })
			r.part("status.topologyPolicy", "")
			r.published("p=1")
			r.reload(func(p *pressure.ReporterPluginsConfiguration) { p.Fields = []string{"-metadata.annotations"} })
			r.part("status.topologyPolicy", `"None"`)
			r.published()
		},
	}, {
		name: "labels and annotations of the Node below a prefix",
		plugins: one(func() *script {
			return polled(nodeContent(field(merge.Metadata, "Labels",
				`{"example.com/a":"1","gpu.example.com/b":"2","example.org/c":"3","plain":"4","node.kubernetes.io/d":"5"}`),
				field(merge.Metadata, "Annotations", `{"example.com/a":"x","another.org/b":"y"}`)), says("p", "1"))
		}),
		play: func(r *rig) {
			r.published("p=1")
			r.onNode("labels: example.com/a=1 gpu.example.com/b=2; annotations: example.com/a=x; capacity:")
			r.refusedFields("p", `metadata.Annotations: key "another.org/b": is below none of nodePrefixes`,
				`metadata.Labels: key "example.org/c": is below none of nodePrefixes; 2 more keys`)
			r.reload(func(p *pressure.ReporterPluginsConfiguration) { p.NodePrefixes = []string{"example.org"} })
			r.onNode("labels: example.org/c=3; annotations:; capacity:")
		},
	}, {
		name: "extended resources of the Node",
		plugins: one(func() *script {
			return polled(nodeContent(field(merge.Status, "Capacity",
				`{"example.com/gpu":"2","cpu":"100","kubernetes.io/x":"1","example.com/half":"500m","example.com/less":"-1"}`)))
		}),
		play: func(r *rig) {
			r.onNode("labels:; annotations:; capacity: example.com/gpu=2")
			r.refusedFields("p", "status.Capacity: ")
			r.reload(func(p *pressure.ReporterPluginsConfiguration) {
				p.Publish = []pressure.ReportedKind{pressure.ReportedCustomNodeResource}
			})
			r.onNode("labels:; annotations:; capacity:")
		},
	}, {
		name:    "labels of the configuration win",
		options: func(p *pressure.ReporterPluginsConfiguration) { p.Labels = map[string]string{"example.com/pool": "a"} },
		plugins: one(func() *script {
			return polled(content(field(merge.Metadata, "Labels", `{"example.com/pool":"b","example.com/p":"1"}`)))
		}),
		play: func(r *rig) { r.part("metadata.labels", `{"example.com/p":"1","example.com/pool":"a"}`) },
	}, {
		name: "no longer published, the object stays without what was published", plugins: one(func() *script {
			return polled(says("p", "1"), content(field(merge.Status, "TopologyPolicy", `"None"`)))
		}),
		play: func(r *rig) {
			r.published("p=1")
			r.part("status.topologyPolicy", `"None"`)
			r.reload(func(p *pressure.ReporterPluginsConfiguration) { p.Publish = nil })
			r.published()
			r.part("status.topologyPolicy", "")
			r.reload(func(p *pressure.ReporterPluginsConfiguration) {
				p.Publish = []pressure.ReportedKind{pressure.ReportedCustomNodeResource}
			})
			r.published("p=1")
			r.part("status.topologyPolicy", `"None"`)
		},
	}}
}

func nodeContent(fields ...merge.ReportField) merge.Content {
	return merge.Content{Kind: merge.NodeKind, Fields: fields}
}

// onNode waits until this is what the Node should have.
func (r *rig) onNode(want string) {
	r.t.Helper()
	r.await("what the Node should have", func() string {
		n, _, _ := r.node.Node()
		var capacity []string
		for name, quantity := range n.Capacity {
			capacity = append(capacity, string(name)+"="+quantity.String())
		}
		slices.Sort(capacity)
		got := "labels:" + words(pairs(n.Labels)) + "; annotations:" + words(pairs(n.Annotations)) + "; capacity:" +
			words(capacity)
		if got != want {
			return got
		}
		return ""
	})
}

func pairs(m map[string]string) (list []string) {
	for key, value := range m {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return list
}

func words(list []string) (text string) {
	for _, word := range list {
		text += " " + word
	}
	return text
}
