package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// invalidReporterPlugins are values that are rejected, with parts of the error. Bounds of ranges are in
// TestCommentsMatchRanges.
func invalidReporterPlugins() map[string]func(*ReporterPluginsConfiguration) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("plugin%d", i)
	}
	labels := func(key, value string) func(*ReporterPluginsConfiguration) {
		return func(r *ReporterPluginsConfiguration) { r.Labels = map[string]string{key: value} }
	}
	prefixes := func(domains ...string) func(*ReporterPluginsConfiguration) {
		return func(r *ReporterPluginsConfiguration) { r.NodePrefixes = domains }
	}
	leftOut := func(fields ...string) func(*ReporterPluginsConfiguration) {
		return func(r *ReporterPluginsConfiguration) { r.Fields = fields }
	}
	publish := func(kinds ...ReportedKind) func(*ReporterPluginsConfiguration) {
		return func(r *ReporterPluginsConfiguration) { r.Publish = kinds }
	}
	return map[string]func(*ReporterPluginsConfiguration){
		`remote[0]|"a b"|qualified name|"*" for all|after "-"`: func(r *ReporterPluginsConfiguration) {
			r.Remote = []string{"a b"}
		},
		`remote[0]|"-pressure"|must not be a plugin of this kubelet|inTree`: func(r *ReporterPluginsConfiguration) {
			r.Remote = []string{"-pressure"}
		},
		`remote[0]|"eviction-plugin-conditions"|must not be|conditions of eviction plugins`: func(
			r *ReporterPluginsConfiguration) {
			r.Remote = []string{"eviction-plugin-conditions"}
		},
		`remote: Too many: 65: must have at most 64`: func(r *ReporterPluginsConfiguration) { r.Remote = many },
		`inTree[1]|"memory-growth"|kubelet-reporter-plugin, pressure, system-reporter-plugin`: func(
			r *ReporterPluginsConfiguration) {
			r.InTree = []string{"*", "memory-growth"}
		},
		`inTree[1]|Duplicate value: "pressure"`: func(r *ReporterPluginsConfiguration) {
			r.InTree = []string{"pressure", "pressure"}
		},
		`publish[0]|""|supported values: "CustomNodeResource", "Node"`:       publish(""),
		`publish[1]|"node"|supported values: "CustomNodeResource", "Node"`:   publish(ReportedNode, "node"),
		`publish[1]|Duplicate value: "Node"`:                                 publish(ReportedNode, ReportedNode),
		`publish: Too many: 65: must have at most 64`:                        publish(make([]ReportedKind, 65)...),
		`fields[0]|"status.topologyZone"|minus sign|spec.taints`:             leftOut("status.topologyZone"),
		`fields[0]|"-status.TopologyZone"|status.topologyZone`:               leftOut("-status.TopologyZone"),
		`fields[1]|"*"|must be a minus sign and one of metadata.annotations`: leftOut("-spec.taints", "*"),
		`fields[1]|Duplicate value: "-spec.taints"`:                          leftOut("-spec.taints", "-spec.taints"),
		`labels[a b]|"a b"|must be a key of at most 63`:                      labels("a b", ""),
		`labels[]|""|must be a key`:                                          labels("", ""),
		`labels[kubernetes.io/os]|"kubernetes.io/os"|must not be kubernetes.io or k8s.io`: labels(
			"kubernetes.io/os", "linux"),
		`labels[node-role.kubernetes.io/a]|another domain`:                    labels("node-role.kubernetes.io/a", ""),
		`labels[a.k8s.io/a]|another domain, like example.com`:                 labels("a.k8s.io/a", "a"),
		`labels[a]|"a b"|must be empty or at most 63 letters`:                 labels("a", "a b"),
		`nodePrefixes[0]|""|must be a domain in lower case without a slash`:   prefixes(""),
		`nodePrefixes[0]|"example.com/"|without a slash, like example.com`:    prefixes("example.com/"),
		`nodePrefixes[0]|"Example.com"|lower case`:                            prefixes("Example.com"),
		`nodePrefixes[0]|"*.example.com"|must be a domain`:                    prefixes("*.example.com"),
		`nodePrefixes[1]|"kubernetes.io"|must not be kubernetes.io or k8s.io`: prefixes("a.b", "kubernetes.io"),
		`nodePrefixes[0]|"node.k8s.io"|or below one of them|another domain`:   prefixes("node.k8s.io"),
		`nodePrefixes[2]|Duplicate value: "example.com"`:                      prefixes("example.com", "a", "example.com"),
		`nodePrefixes: Too many: 65: must have at most 64 items`:              prefixes(many...),
		`period|"500ms"|must be from 1s to 5m`: func(r *ReporterPluginsConfiguration) {
			r.Period.Duration = 5e8
		},
		`stopGracePeriod|"-1ns"|must be from 0s to 1h`: func(r *ReporterPluginsConfiguration) {
			r.StopGracePeriod.Duration = -1
		},
	}
}

// An error has the path of its field, its value and the allowed values.
func TestValidateReporterPlugins(t *testing.T) {
	for says, change := range invalidReporterPlugins() {
		c := Default()
		change(&c.Plugins.Reporter)
		expectOne(t, Validate(c), strings.Split("plugins.reporter."+says, "|")...)
	}
}

// Each of many errors is returned, in an order that does not depend on that of a map.
func TestValidateReporterPluginsReturnsAllErrors(t *testing.T) {
	c := Default()
	r := &c.Plugins.Reporter
	r.Remote, r.InTree, r.Publish, r.Fields = []string{""}, []string{"a"}, []ReportedKind{"a"}, []string{"a"}
	r.Period.Duration, r.CallTimeout.Duration, r.StopGracePeriod.Duration, r.Sustained.Duration = 0, 0, -1, 0
	r.Labels = map[string]string{"c": "/", "b d": "/", "k8s.io/a": ""}
	r.NodePrefixes = []string{"k8s.io"}
	var paths []string
	for _, err := range Validate(c) {
		paths = append(paths, strings.TrimPrefix(err.Field, "plugins.reporter."))
	}
	want := []string{
		"remote[0]", "inTree[0]", "publish[0]", "fields[0]", "period", "callTimeout", "stopGracePeriod", "sustained",
		"labels[b d]", "labels[b d]", "labels[c]", "labels[k8s.io/a]", "nodePrefixes[0]",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("errors of %q, want %q", paths, want)
	}
}

func TestValidReporterPlugins(t *testing.T) {
	c := Default()
	r := &c.Plugins.Reporter
	r.Remote = []string{"*", "-a", "example.com/a", "memory-growth"} // an eviction plugin of this kubelet has that name
	r.InTree = append([]string{"*", "-pressure"}, InTreeReporterPlugins()...)
	r.Publish = []ReportedKind{ReportedNode, ReportedCustomNodeResource}
	for _, path := range ReportedFields() {
		r.Fields = append(r.Fields, "-"+path)
	}
	r.StopGracePeriod.Duration = 0
	r.Labels = map[string]string{"a": "", "example.com/a": "b", "notkubernetes.io/a": "a", "kubernetes.io": "a"}
	r.NodePrefixes = []string{"example.com", "notk8s.io", "kubernetes.io.example.com"}
	if errs := append(Validate(c), ValidateFor(c, ofKubelet)...); len(errs) > 0 {
		t.Error(errs)
	}
	expectOne(t, ValidateFor(func() *NodePressureConfiguration {
		r.Publish = r.Publish[:1]
		return c
	}(), Kubelet{RootDirectory: "/var/lib/kubelet"}),
		"plugins.reporter.publish[0]", `"Node"`, "there is no API server (standalone): must be absent")
}

// Defaulting enables no reporter plugin and publishes nothing; the names of plugins in the tree are valid and sorted.
func TestNoReporterPluginIsEnabledByDefault(t *testing.T) {
	r := Default().Plugins.Reporter
	if len(r.Remote)+len(r.InTree)+len(r.Publish)+len(r.NodePrefixes)+len(r.Labels) > 0 {
		t.Errorf("%+v", r)
	}
	if names := InTreeReporterPlugins(); !slices.IsSorted(names) || slices.ContainsFunc(names, func(name string) bool {
		return CheckPluginName(name) != ""
	}) {
		t.Errorf("plugins in the tree: %q", names)
	}
}
