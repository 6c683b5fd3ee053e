package kubelet

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/conditions"
)

// The configuration accepts the names of the reporter plugins in the agent and no others, except for that of the plugin
// which has no entry.
func TestReportersInTheAgentAreThoseOfTheConfiguration(t *testing.T) {
	p := assembled(t, busyAPI(t), nil).plugins.reporter
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(p.inTree)), func(n string) bool { return n == conditions.Name })
	if want := v1alpha1.InTreeReporterPlugins(); !slices.Equal(names, want) {
		t.Errorf("plugins %q, the configuration accepts %q", names, want)
	}
}

// Reporter plugins have no goroutine until one may be enabled, or something may be published.
func TestReportersRunOnDemand(t *testing.T) {
	with := func(change func(*v1alpha1.ReporterPluginsConfiguration)) *v1alpha1.NodePressureConfiguration {
		c := v1alpha1.Default()
		change(&c.Plugins.Reporter)
		return c
	}
	for name, tc := range map[string]struct {
		c        *v1alpha1.NodePressureConfiguration
		required bool
	}{
		"default": {v1alpha1.Default(), false},
		"remote":  {with(func(r *v1alpha1.ReporterPluginsConfiguration) { r.Remote = []string{"a"} }), true},
		"in tree": {with(func(r *v1alpha1.ReporterPluginsConfiguration) { r.InTree = []string{"pressure"} }), true},
		"published": {with(func(r *v1alpha1.ReporterPluginsConfiguration) {
			r.Publish = []v1alpha1.ReportedKind{v1alpha1.ReportedCustomNodeResource}
		}), true},
	} {
		b := assembled(t, busyAPI(t), nil)
		p := b.plugins.reporter
		p.apply(tc.c)
		if p.required.required != tc.required {
			t.Errorf("%s: required %t", name, p.required.required)
		}
		for _, c := range b.components() {
			if c.name == "reporter plugins" && (c.demand != &p.required || !c.afterRuntime) {
				t.Errorf("%s: not on demand", name)
			}
		}
	}
}

// What an earlier run has published is removed, or served, without any plugin in the configuration.
func TestReportersOfAnEarlierRun(t *testing.T) {
	for _, file := range []func(paths.Layout) string{
		paths.Layout.ReporterCheckpoint, paths.Layout.ReportedNode, paths.Layout.ReporterTaints,
	} {
		deps := dependenciesFor(t, busyAPI(t))
		path := file(paths.New(deps.Flags.RootDirectory, ""))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		b, err := assemble(t.Context(), deps)
		if err != nil {
			t.Fatal(err)
		}
		if !b.plugins.reporter.required.required {
			t.Errorf("%s is not considered", path)
		}
	}
}

// A new configuration reaches all parts.
func TestReporterSettings(t *testing.T) {
	b := assembled(t, busyAPI(t), nil)
	p := b.plugins.reporter
	if _, _, known := p.node.Node(); !known || p.publisher.State().Enabled || p.inTree[conditions.Name] == nil {
		t.Error("something is published by default")
	}
	c := v1alpha1.Default()
	c.Plugins.Eviction.Authentication = v1alpha1.NoAuthentication
	c.Plugins.Reporter.Publish = []v1alpha1.ReportedKind{v1alpha1.ReportedCustomNodeResource, v1alpha1.ReportedNode}
	c.Plugins.Reporter.Remote = []string{"*", "-no"}
	c.Plugins.Reporter.InTree = []string{v1alpha1.PressureReporterPlugin}
	p.apply(c)
	s := p.settings.Load()
	if _, _, known := p.node.Node(); known || !p.publisher.State().Enabled {
		t.Error("nothing is published")
	}
	if !s.InTree(conditions.Name) || !s.InTree("pressure") || s.Remote("no") || !s.Remote("a") {
		t.Error("plugins are not selected")
	}
	if s.authentication != pluginhost.None {
		t.Errorf("authentication %s", s.authentication)
	}
	c.Plugins.Eviction.Authentication = v1alpha1.TokenAuthentication
	if got := newReporterSettings(c).authentication; got != pluginhost.SocketOwner {
		t.Errorf("authentication %s: reporter plugins have no tokens", got)
	}
	if !evictionOptions(c).ReportOutlook || evictionOptions(v1alpha1.Default()).ReportOutlook {
		t.Error("the outlook is reported without the plugin pressure, or not with it")
	}
	if list := b.plugins.list(); len(list.Reporters) != 4 || len(list.Objects) != 2 {
		t.Errorf("page: %+v", list)
	}
}

// Without an API server plugins are called, and nothing is published.
func TestReportersStandalone(t *testing.T) {
	b := assembled(t, nil, nil)
	p := b.plugins.reporter
	c := v1alpha1.Default()
	c.Plugins.Reporter.InTree = []string{"*"}
	p.apply(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx, b.node.updater, b.plugins.eviction); close(done) }()
	cancel()
	<-done
	if list := b.plugins.list(); len(list.Objects) > 0 || len(list.Reporters) != 4 {
		t.Errorf("page: %+v", list)
	}
}
