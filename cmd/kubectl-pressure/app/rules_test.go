package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	pressureKind = "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\n"
	kubeletKind  = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
)

// file writes a file and returns its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// nodeRules are the rules of a node with these hard thresholds and this layout; those in dryRun are in dry run.
func nodeRules(t *testing.T, hard map[string]string, l snapshot.Layout, dryRun ...snapshot.Signal) *policy.Rules {
	t.Helper()
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{
		AllocatableEnforced: []string{"pods"}, Hard: hard,
	})
	if err != nil {
		t.Fatal(err)
	}
	options := settings.Options{}
	for _, s := range dryRun {
		options.DryRun = append(options.DryRun, policy.ThresholdID{Signal: s})
	}
	k := settings.Kubelet{Thresholds: thresholds}
	rules := k.Rules(&options)
	rules.Thresholds, _ = policy.Effective(rules.Thresholds, l)
	return &rules
}

// values has the value of each threshold, with a mark for dry run.
func values(rules *policy.Rules) map[string]string {
	all := map[string]string{}
	for i := range rules.Thresholds {
		t := &rules.Thresholds[i]
		text := resource.NewQuantity(t.Quantity(1<<40).Value(), resource.BinarySI).String()
		if t.DryRun {
			text += " dry run"
		}
		all[t.Signal.String()] = text
	}
	return all
}

var layouts = map[string]snapshot.Layout{
	"one device": {Known: true}, "images apart": {Known: true, DedicatedImageFs: true},
	"split": {Known: true, DedicatedImageFs: true, SplitContainerFs: true},
}

// Settings of a plan have the effect that they would have on the node, whatever its layout.
func TestSettingsAreThoseOfANode(t *testing.T) {
	hard := map[string]string{"memory.available": "1Gi", "nodefs.available": "10Gi", "imagefs.available": "20Gi"}
	higher := map[string]string{"memory.available": "2Gi", "nodefs.available": "30Gi", "imagefs.available": "40Gi"}
	config := kubeletKind + "evictionHard:\n"
	o := ruleOptions{}
	for name, value := range higher {
		o.thresholds = append(o.thresholds, name+"="+value)
		config += "  " + name + ": " + value + "\n"
	}
	allDry := []snapshot.Signal{snapshot.MemoryAvailable, snapshot.NodeFsAvailable, snapshot.ImageFsAvailable}
	dry := file(t, pressureKind+"dryRun:\n- signal: memory.available\n- signal: nodefs.available\n"+
		"- signal: imagefs.available\n")
	for name, layout := range layouts {
		for what, tc := range map[string]struct {
			options  ruleOptions
			recorded *policy.Rules
			want     *policy.Rules
		}{
			"thresholds": {options: o, recorded: nodeRules(t, hard, layout), want: nodeRules(t, higher, layout)},
			"thresholds in dry run": {options: o, recorded: nodeRules(t, hard, layout, allDry...),
				want: nodeRules(t, higher, layout, allDry...)},
			"file": {options: ruleOptions{config: file(t, config)}, recorded: nodeRules(t, hard, layout),
				want: nodeRules(t, higher, layout)},
			"file, in dry run": {options: ruleOptions{config: file(t, config)}, recorded: nodeRules(t, hard, layout, allDry...),
				want: nodeRules(t, higher, layout, allDry...)},
			"dry run": {options: ruleOptions{pressureConfig: dry}, recorded: nodeRules(t, hard, layout),
				want: nodeRules(t, hard, layout, allDry...)},
			"both files": {options: ruleOptions{config: file(t, config), pressureConfig: dry},
				recorded: nodeRules(t, hard, layout), want: nodeRules(t, higher, layout, allDry...)},
			"end of dry run": {options: ruleOptions{pressureConfig: file(t, pressureKind)},
				recorded: nodeRules(t, hard, layout, allDry...), want: nodeRules(t, hard, layout)},
			"default thresholds": {options: ruleOptions{config: file(t, kubeletKind)}, recorded: nodeRules(t, hard, layout),
				want: nodeRules(t, defaultHard, layout)},
			"some default thresholds": {recorded: nodeRules(t, hard, layout), options: ruleOptions{config: file(t, kubeletKind+
				"mergeDefaultEvictionSettings: true\nevictionHard: {nodefs.inodesFree: 7%}\n")},
				want: nodeRules(t, map[string]string{"memory.available": "100Mi", "nodefs.available": "10%",
					"nodefs.inodesFree": "7%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}, layout)},
		} {
			change, err := tc.options.rules()
			if err != nil {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			got, err := change(tc.recorded, layout)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			have, want := values(got), values(tc.want)
			for signal := range want {
				if have[signal] != want[signal] {
					t.Errorf("%s, %s: %s: %q, want %q", name, what, signal, have[signal], want[signal])
				}
			}
			if len(have) != len(want) || len(got.Thresholds) != len(tc.want.Thresholds) {
				t.Errorf("%s, %s: %v, want %v", name, what, have, want)
			}
		}
	}
}

func TestThresholdsOfAPlanAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"memory.available": "--threshold", "=1Gi": "--threshold", "memory.available=100%": "0% or 100%",
		"memory.available=-1Gi": "--threshold", "memory.availble=1Gi": "--threshold",
		"memory.available=\u202e": "--threshold",
		"memory.available=NaN%":   "--threshold",
	} {
		o := ruleOptions{thresholds: []string{text}}
		if _, err := o.rules(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	o := ruleOptions{thresholds: []string{"memory.available=1Gi", "memory.available=2Gi"}}
	if _, err := o.rules(); err == nil {
		t.Error("two thresholds of one signal are accepted")
	}
	o = ruleOptions{thresholds: []string{"containerfs.available=1Gi"}}
	change, err := o.rules()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := change(&policy.Rules{}, layouts["split"]); err == nil {
		t.Error("a threshold that no node has is accepted")
	}
}
