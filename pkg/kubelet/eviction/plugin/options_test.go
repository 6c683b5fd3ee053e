package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// As in Katalyst, an excluded plugin is not selected, whatever the other entries are and whatever the order is.
func TestSelector(t *testing.T) {
	for _, tc := range []struct {
		selector Selector
		name     string
		want     bool
	}{
		{nil, "a", false},
		{Selector{"a"}, "a", true},
		{Selector{"a"}, "b", false},
		{Selector{"*"}, "a", true},
		{Selector{"b", "*"}, "a", true},
		{Selector{"*", "-a"}, "a", false},
		{Selector{"-a", "*"}, "a", false},
		{Selector{"a", "-a"}, "a", false},
		{Selector{"-a", "a"}, "a", false},
		{Selector{"-a", "*", "a"}, "a", false},
		{Selector{"*", "-a"}, "b", true},
		{Selector{"-a"}, "b", false},
		{Selector{"*", "-a"}, "aa", true},
		{Selector{"*", "-a-b"}, "a", true},
	} {
		if got := tc.selector.Selects(tc.name); got != tc.want {
			t.Errorf("%q selects %s: %v", []string(tc.selector), tc.name, got)
		}
	}
}

func TestNoPluginIsSelectedByDefault(t *testing.T) {
	o := OptionsFrom(v1alpha1.Default(), false)
	for _, name := range append(v1alpha1.InTreePlugins(), "a", "*") {
		if o.Remote.Selects(name) || o.InTree.Selects(name) || o.DryRun.Selects(name) {
			t.Errorf("%s is selected", name)
		}
	}
}

// Without a setting, the API server evicts the pods of soft requests, if there is one.
func TestKillers(t *testing.T) {
	c := v1alpha1.Default()
	for standalone, want := range map[bool]arbiter.Killers{
		false: {Forced: snapshot.PodWorker, Soft: snapshot.EvictionAPI}, true: {},
	} {
		if diff := cmp.Diff(want, OptionsFrom(c, standalone).Rules.Killers); diff != "" {
			t.Errorf("standalone %v: %s", standalone, diff)
		}
	}
	e := &c.Plugins.Eviction
	e.ForcedKiller, e.SoftKiller = v1alpha1.EvictionAPI, v1alpha1.PodWorker
	e.KillerByQoSLevel = map[string]v1alpha1.Killer{"a": v1alpha1.DeleteAPI, "b": v1alpha1.PodWorker}
	want := arbiter.Killers{Forced: snapshot.EvictionAPI, Soft: snapshot.PodWorker, ByQoSLevel: map[string]snapshot.Killer{
		"a": snapshot.DeleteAPI, "b": snapshot.PodWorker,
	}}
	if diff := cmp.Diff(want, OptionsFrom(c, false).Rules.Killers); diff != "" {
		t.Error(diff)
	}
}
