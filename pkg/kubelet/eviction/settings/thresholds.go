package settings

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// ThresholdConfig is the part of the KubeletConfiguration that defines thresholds. Keys of its maps are signals.
type ThresholdConfig struct {
	// AllocatableEnforced is enforceNodeAllocatable: if it includes "pods", hard memory thresholds apply to all pods
	// together too.
	AllocatableEnforced []string
	// Hard and Soft are quantities or percentages.
	Hard, Soft map[string]string
	// SoftGracePeriods are durations, at least one for each soft threshold.
	SoftGracePeriods map[string]string
	// MinimumReclaim are quantities or percentages.
	MinimumReclaim map[string]string
}

// Names of the settings in the kubelet's configuration file.
const (
	hardSetting    = "evictionHard"
	softSetting    = "evictionSoft"
	graceSetting   = "evictionSoftGracePeriod"
	reclaimSetting = "evictionMinimumReclaim"
)

// ParseThresholds returns the configured thresholds, hard ones first, each kind in the order of signals. It accepts
// what stock accepts, except for a percentage that is not a number, which stock accepts and never meets. The error
// joins all invalid values, each with the setting, the signal, the value and what is allowed.
func ParseThresholds(c ThresholdConfig) ([]policy.Threshold, error) {
	p := &parser{}
	hard := p.thresholds(hardSetting, c.Hard)
	soft := p.thresholds(softSetting, c.Soft)
	grace := p.gracePeriods(c.SoftGracePeriods)
	reclaim := p.reclaims(c.MinimumReclaim)
	for i := range soft {
		t := &soft[i]
		t.Soft = true
		period, ok := grace[t.Signal]
		if _, present := c.SoftGracePeriods[t.Signal.String()]; !ok && !present {
			p.reject(softSetting, t.Signal.String(), c.Soft[t.Signal.String()],
				fmt.Sprintf("a soft threshold needs a grace period: set %s[%q] to a duration such as 1m30s", graceSetting,
					t.Signal))
		}
		t.GracePeriod = period
	}
	all := slices.Concat(hard, soft)
	for i := range all {
		if v, ok := reclaim[all[i].Signal]; ok {
			all[i].MinReclaim = &v
		}
	}
	if slices.Contains(c.AllocatableEnforced, kubetypes.NodeAllocatableEnforcementKey) {
		all = append(all, allocatable(all)...)
	}
	if err := errors.Join(p.problems...); err != nil {
		return nil, err
	}
	return all, nil
}

// allocatable returns copies of the hard memory thresholds of the node, for all pods together.
func allocatable(all []policy.Threshold) []policy.Threshold {
	var added []policy.Threshold
	for _, t := range all {
		if t.Signal == snapshot.MemoryAvailable && t.Hard() {
			t.Signal = snapshot.AllocatableMemoryAvailable
			added = append(added, t)
		}
	}
	return added
}

// HardThresholds returns the hard thresholds in the type of stock's packages. The container manager subtracts them from
// the allocatable resources of the node.
func HardThresholds(all []policy.Threshold) []evictionapi.Threshold {
	var hard []evictionapi.Threshold
	for _, t := range all {
		if t.Hard() {
			hard = append(hard, evictionapi.Threshold{
				Signal: t.Signal.API(), Operator: evictionapi.OpLessThan, Value: t.Value, MinReclaim: t.MinReclaim,
			})
		}
	}
	return hard
}

// parser collects all errors.
type parser struct{ problems []error }

func (p *parser) reject(setting, key, value, allowed string) {
	p.problems = append(p.problems, fmt.Errorf("%s[%q]: invalid value %q: %s", setting, key, value, allowed))
}

// signals calls use for each signal of a setting, in order, after rejecting keys that are not signals.
func (p *parser) signals(setting string, values map[string]string, use func(sig snapshot.Signal, value string)) {
	var unknown []string
	for key := range values {
		if _, ok := snapshot.ParseSignal(key); !ok {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		p.reject(setting, key, values[key], fmt.Sprintf("unsupported eviction signal %q, supported are %s", key,
			signalNames()))
	}
	for _, sig := range snapshot.AllSignals() {
		if value, ok := values[sig.String()]; ok {
			use(sig, value)
		}
	}
}

func signalNames() string {
	var names []string
	for _, sig := range snapshot.AllSignals() {
		names = append(names, sig.String())
	}
	return strings.Join(names, ", ")
}

func (p *parser) thresholds(setting string, values map[string]string) []policy.Threshold {
	const allowed = `must be a quantity above zero such as "100Mi", ` +
		`or a percentage from "0%" to "100%" (both ends switch the threshold off)`
	var list []policy.Threshold
	p.signals(setting, values, func(sig snapshot.Signal, value string) {
		if value == "0%" || value == "100%" {
			return
		}
		v, ok := parseAmount(value)
		if !ok || (v.Quantity != nil && v.Quantity.Sign() <= 0) || v.Percentage < 0 || v.Percentage > 1 {
			p.reject(setting, sig.String(), value, allowed)
			return
		}
		list = append(list, policy.Threshold{Signal: sig, Value: v})
	})
	return list
}

func (p *parser) gracePeriods(values map[string]string) map[snapshot.Signal]time.Duration {
	periods := map[snapshot.Signal]time.Duration{}
	p.signals(graceSetting, values, func(sig snapshot.Signal, value string) {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			p.reject(graceSetting, sig.String(), value, `must be a duration of zero or more such as "1m30s"`)
			return
		}
		periods[sig] = d
	})
	return periods
}

func (p *parser) reclaims(values map[string]string) map[snapshot.Signal]evictionapi.ThresholdValue {
	reclaims := map[snapshot.Signal]evictionapi.ThresholdValue{}
	p.signals(reclaimSetting, values, func(sig snapshot.Signal, value string) {
		v, ok := parseAmount(value)
		if !ok || (v.Quantity != nil && v.Quantity.Sign() < 0) || (v.Quantity == nil && v.Percentage <= 0) {
			p.reject(reclaimSetting, sig.String(), value,
				`must be a quantity of zero or more such as "500Mi", or a percentage above "0%"`)
			return
		}
		reclaims[sig] = v
	})
	return reclaims
}

// parseAmount parses a percentage or a quantity. It accepts repeated percent signs, as stock does.
func parseAmount(value string) (evictionapi.ThresholdValue, bool) {
	if strings.HasSuffix(value, "%") {
		percent, err := strconv.ParseFloat(strings.TrimRight(value, "%"), 32)
		if err != nil || math.IsNaN(percent) {
			return evictionapi.ThresholdValue{}, false
		}
		return evictionapi.ThresholdValue{Percentage: float32(percent) / 100}, true
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return evictionapi.ThresholdValue{}, false
	}
	return evictionapi.ThresholdValue{Quantity: &q}, true
}
