package kubelet

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// The configuration accepts the names of the plugins in the agent and no others.
func TestPluginsInTheAgentAreThoseOfTheConfiguration(t *testing.T) {
	b := assembled(t, busyAPI(t), nil)
	names := slices.Sorted(maps.Keys(b.plugins.eviction.inTree.Plugins()))
	if want := v1alpha1.InTreePlugins(); !slices.Equal(names, want) {
		t.Errorf("plugins %q, the configuration accepts %q", names, want)
	}
}

// Without plugins the agent has no goroutine for them. It has, once a plugin may be enabled, after a run that has left
// conditions, and for taints that are recorded.
func TestPluginsRunOnDemand(t *testing.T) {
	enabled := v1alpha1.Default()
	enabled.Plugins.Eviction.Remote = []string{"example.com/plugin"}
	left := []v1.NodeCondition{{Type: arbiter.ConditionPrefix + "Full", Status: v1.ConditionTrue}}
	for name, tc := range map[string]struct {
		happens        func(*evictionPlugins)
		driver, taints bool
	}{
		"nothing": {func(*evictionPlugins) {}, false, false},
		"default configuration, no conditions": {func(p *evictionPlugins) {
			p.apply(v1alpha1.Default())
			p.restore([]v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}})
		}, false, false},
		"enabled":       {func(p *evictionPlugins) { p.apply(enabled) }, true, true},
		"conditions":    {func(p *evictionPlugins) { p.restore(left) }, true, true},
		"no longer any": {func(p *evictionPlugins) { p.apply(enabled); p.apply(v1alpha1.Default()) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := assembled(t, busyAPI(t), nil)
			p := b.plugins.eviction
			tc.happens(p)
			if p.required.required != tc.driver || p.taintsRequired.required != tc.taints {
				t.Errorf("driver %t, writer of taints %t", p.required.required, p.taintsRequired.required)
			}
			for _, c := range b.components() {
				if onDemand := strings.HasSuffix(c.name, " plugins") || c.name == "node taints"; onDemand != (c.demand != nil) {
					t.Errorf("%s: on demand %t", c.name, c.demand != nil)
				}
			}
		})
	}
}

// The writer of taints runs if taints are recorded, without any plugin: it removes those of an earlier run.
func TestRecordedTaintsAreRemovedWithoutPlugins(t *testing.T) {
	deps := dependenciesFor(t, busyAPI(t))
	record := paths.New(deps.Flags.RootDirectory, "").PluginTaints()
	if err := errors.Join(os.MkdirAll(filepath.Dir(record), 0o750), os.WriteFile(record, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	b, err := assemble(t.Context(), deps)
	if err != nil {
		t.Fatal(err)
	}
	if p := b.plugins.eviction; p.required.required || !p.taintsRequired.required {
		t.Errorf("driver %t, writer of taints %t", p.required.required, p.taintsRequired.required)
	}
}

// The writer of taints runs if there is a record, also if that cannot be found out for the time being.
func TestTaintsOfARecordAreRequired(t *testing.T) {
	record := filepath.Join(t.TempDir(), "taints.json")
	for _, tc := range []struct {
		title    string
		prepare  func() error
		required bool
	}{
		{"no record", func() error { return nil }, false},
		// A link to itself is an error of the file system.
		{"error", func() error { return os.Symlink(record, record) }, true},
		{"record", func() error { return errors.Join(os.Remove(record), os.WriteFile(record, nil, 0o600)) }, true},
	} {
		if err := tc.prepare(); err != nil {
			t.Fatal(err)
		}
		p := &evictionPlugins{}
		p.requireIfRecorded(record)
		if p.taintsRequired.required != tc.required {
			t.Errorf("%s: required %t", tc.title, p.taintsRequired.required)
		}
	}
}

// Conditions that are restored while the writer of taints asks for them are not taken for missing.
func TestConditionsRestoredWhileTaintsAreDecided(t *testing.T) {
	p := assembled(t, busyAPI(t), nil).plugins.eviction
	list, known := p.taintState(func() bool {
		p.restore([]v1.NodeCondition{{Type: arbiter.ConditionPrefix + "Full", Status: v1.ConditionTrue}})
		return true
	})
	if known && len(list) != 1 {
		t.Errorf("all conditions are known, and they are %v", list)
	}
}

// The eviction manager reports the growth of memory only for a plugin that uses it.
func TestGrowthIsReportedForMemoryGrowth(t *testing.T) {
	c := v1alpha1.Default()
	for _, tc := range []struct {
		inTree []string
		want   bool
	}{{nil, false}, {[]string{"memory-growth"}, true}, {[]string{"*", "-memory-growth"}, false}} {
		c.Plugins.Eviction.InTree = tc.inTree
		if got := evictionOptions(c).ReportMemoryGrowth; got != tc.want {
			t.Errorf("%q: %t", tc.inTree, got)
		}
	}
}
