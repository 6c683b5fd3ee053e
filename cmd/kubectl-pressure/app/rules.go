package app

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// ruleOptions are the settings of a plan.
type ruleOptions struct {
	config, pressureConfig string
	thresholds             []string
}

func (r *ruleOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&r.config, "config", "", "A KubeletConfiguration whose thresholds the plan has.")
	f.StringVar(&r.pressureConfig, "pressure-config", "", "A NodePressureConfiguration whose settings the plan has.")
	f.StringArrayVar(&r.thresholds, "threshold", nil, "A hard threshold of the plan, for example memory.available=2Gi or "+
		"nodefs.available=15%. Others stay as they are.")
}

// defaultHard are the thresholds of a kubelet on Linux whose configuration has none.
var defaultHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
	"imagefs.inodesFree": "5%",
}

type rulesFunc = func(*policy.Rules, snapshot.Layout) (*policy.Rules, error)

// change changes the rules of a plan. Thresholds are as they are configured: Effective comes last.
type change = func(*policy.Rules, snapshot.Layout) error

// rules returns the rules of the plan; nil for the recorded ones.
func (r *ruleOptions) rules() (rulesFunc, error) {
	var changes []change
	for _, parse := range []func() ([]change, error){r.fromKubelet, r.fromThresholds, r.fromPressure} {
		list, err := parse()
		if err != nil {
			return nil, err
		}
		changes = append(changes, list...)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	return func(recorded *policy.Rules, layout snapshot.Layout) (*policy.Rules, error) {
		rules := *recorded
		rules.Thresholds = slices.Clone(recorded.Thresholds)
		for _, change := range changes {
			if err := change(&rules, layout); err != nil {
				return nil, err
			}
		}
		rules.Thresholds, _ = policy.Effective(rules.Thresholds, layout)
		return &rules, nil
	}, nil
}

// fromPressure reads the NodePressureConfiguration. It comes last: it says which thresholds are in dry run.
func (r *ruleOptions) fromPressure() ([]change, error) {
	if r.pressureConfig == "" {
		return nil, nil
	}
	path, err := filepath.Abs(r.pressureConfig)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	loaded, err := pressureconfig.Load(path, v1alpha1.Kubelet{RootDirectory: "/var/lib/kubelet", Kubeconfig: "/"})
	if err != nil {
		return nil, err
	}
	options := settings.OptionsFrom(loaded.Configuration())
	return []change{func(rules *policy.Rules, _ snapshot.Layout) error {
		usePressure(rules, &options)
		return nil
	}}, nil
}

// fromThresholds parses the flags --threshold.
func (r *ruleOptions) fromThresholds() (changes []change, err error) {
	seen := map[snapshot.Signal]bool{}
	for _, text := range r.thresholds {
		t, err := parseThreshold(text)
		if err != nil {
			return nil, err
		}
		if seen[t.Signal] {
			return nil, fmt.Errorf("--threshold %q: there is another one of the same signal", text)
		}
		seen[t.Signal] = true
		changes = append(changes, func(rules *policy.Rules, layout snapshot.Layout) error {
			if effective, replaced := policy.Effective([]policy.Threshold{t}, layout); len(effective) == 0 && replaced != nil {
				return fmt.Errorf("--threshold %q: on this node the threshold is a copy of that of nodefs or imagefs: set that",
					text)
			}
			useThreshold(rules, t)
			return nil
		})
	}
	return changes, nil
}

// usePressure has the rules those of options; thresholds stay, but for which of them are in dry run.
func usePressure(rules *policy.Rules, o *settings.Options) {
	k := settings.Kubelet{
		Thresholds: rules.Thresholds, PressureTransitionPeriod: rules.PressureTransitionPeriod,
		MaxPodGracePeriodSeconds: rules.MaxPodGracePeriodSeconds,
		// Limits that were off by the KubeletConfiguration look the same as those that were off by the other one.
		LocalStorageCapacityIsolation: rules.LocalStorageLimits,
	}
	growth, outlook := rules.ReportMemoryGrowth, rules.ReportOutlook
	*rules = k.Rules(o)
	rules.ReportMemoryGrowth, rules.ReportOutlook = growth, outlook
}

// fromKubelet reads the KubeletConfiguration. Which thresholds are in dry run is not its matter, and stays.
func (r *ruleOptions) fromKubelet() ([]change, error) {
	if r.config == "" {
		return nil, nil
	}
	c, err := readKubelet(r.config)
	if err != nil {
		return nil, err
	}
	thresholds, err := thresholdsOf(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.config, err)
	}
	return []change{func(rules *policy.Rules, _ snapshot.Layout) error {
		dryRun := map[policy.ThresholdID]bool{}
		for i := range rules.Thresholds {
			dryRun[rules.Thresholds[i].ID()] = rules.Thresholds[i].DryRun
		}
		rules.Thresholds = slices.Clone(thresholds)
		for i := range rules.Thresholds {
			rules.Thresholds[i].DryRun = dryRun[rules.Thresholds[i].ID()]
		}
		if p := c.EvictionPressureTransitionPeriod; p.Duration > 0 {
			rules.PressureTransitionPeriod = p.Duration
		}
		if c.EvictionMaxPodGracePeriod != 0 {
			rules.MaxPodGracePeriodSeconds = int64(c.EvictionMaxPodGracePeriod)
		}
		return nil
	}}, nil
}

func readKubelet(file string) (*kubeletv1beta1.KubeletConfiguration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &kubeletv1beta1.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if c.Kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("%s: kind %q: must be KubeletConfiguration", file, c.Kind)
	}
	return c, nil
}

// thresholdsOf returns the thresholds of a configuration, with the defaults as the kubelet has them.
func thresholdsOf(c *kubeletv1beta1.KubeletConfiguration) ([]policy.Threshold, error) {
	enforced := c.EnforceNodeAllocatable
	if enforced == nil {
		enforced = []string{"pods"}
	}
	hard := maps.Clone(c.EvictionHard)
	if hard == nil || (c.MergeDefaultEvictionSettings != nil && *c.MergeDefaultEvictionSettings) {
		hard = maps.Clone(defaultHard)
		maps.Copy(hard, c.EvictionHard)
	}
	return settings.ParseThresholds(settings.ThresholdConfig{
		AllocatableEnforced: enforced, Hard: hard, Soft: c.EvictionSoft, SoftGracePeriods: c.EvictionSoftGracePeriod,
		MinimumReclaim: c.EvictionMinimumReclaim,
	})
}

// parseThreshold parses a hard threshold as in evictionHard.
func parseThreshold(text string) (policy.Threshold, error) {
	name, value, _ := strings.Cut(text, "=")
	list, err := settings.ParseThresholds(settings.ThresholdConfig{Hard: map[string]string{name: value}})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("must not be 0%% or 100%%")
	}
	if err != nil {
		return policy.Threshold{}, fmt.Errorf("--threshold %q: %w", text, err)
	}
	return list[0], nil
}

// useThreshold replaces the hard threshold of a signal, or adds it. Those that are derived from it follow.
func useThreshold(rules *policy.Rules, t policy.Threshold) {
	found := false
	for i := range rules.Thresholds {
		have := &rules.Thresholds[i]
		if have.Soft || (have.Signal != t.Signal && !derives(t.Signal, have.Signal)) {
			continue
		}
		found = found || have.Signal == t.Signal
		have.Value = t.Value
	}
	if !found {
		rules.Thresholds = append(rules.Thresholds, t)
	}
}

// derives reports whether thresholds on one signal are derived from those on another one.
func derives(from, signal snapshot.Signal) bool {
	return from == snapshot.MemoryAvailable && signal == snapshot.AllocatableMemoryAvailable
}
