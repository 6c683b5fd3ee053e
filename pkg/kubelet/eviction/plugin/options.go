package plugin

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Options are the settings plugins.eviction of the NodePressureConfiguration. They may change while the agent runs.
// Options and what they refer to must not be modified once they are in use.
type Options struct {
	// Remote and InTree select the plugins that are enabled, by name: those that register through a socket, and those in
	// the agent. DryRun selects those whose requests are only reported.
	Remote, InTree, DryRun Selector
	// Period is the time between two rounds, CallTimeout the longest time of one call.
	Period, CallTimeout time.Duration
	// Rules are those of the arbiter.
	Rules arbiter.Rules
	// Skip is which pods plugins may not name.
	Skip arbiter.Skip
	// Authentication is how it is verified that a plugin may register.
	Authentication v1alpha1.PluginAuthentication
	// SoftNoticeDirectory is the absolute path of the directory of notice files; empty for none.
	SoftNoticeDirectory string
	// Settings are those of the plugins in the agent.
	Settings v1alpha1.PluginSettings
}

// OptionsFrom returns the options of a configuration, which must be defaulted and valid. An agent is standalone if
// it has no API server: soft requests are served by pod workers then, unless configured otherwise.
func OptionsFrom(c *v1alpha1.NodePressureConfiguration, standalone bool) Options {
	e := &c.Plugins.Eviction
	return Options{
		Remote:      e.Remote,
		InTree:      e.InTree,
		DryRun:      e.DryRun,
		Period:      e.Period.Duration,
		CallTimeout: e.CallTimeout.Duration,
		Rules: arbiter.Rules{
			Burst:                     int(*e.Burst),
			MaxInFlight:               int(*e.MaxInFlight),
			MaxGracePeriodSeconds:     int64(e.MaxGracePeriod.Duration / time.Second),
			ConditionTransitionPeriod: e.ConditionTransitionPeriod.Duration,
			Killers:                   killersFrom(e, standalone),
		},
		Skip: arbiter.Skip{
			AnnotationKeys: e.SkipAnnotationKeys, LabelKeys: e.SkipLabelKeys, OwnerKinds: e.SkipOwnerKinds,
			Levels: arbiter.Levels{
				Label: e.QoSLevel.Label, LabelValues: levels(e.QoSLevel.LabelValues),
				PriorityClasses: levels(e.QoSLevel.PriorityClasses),
			},
		},
		Authentication:      e.Authentication,
		SoftNoticeDirectory: e.SoftNoticeDirectory,
		Settings:            e.Settings,
	}
}

// levels returns QoS levels in the type of the arbiter.
func levels(configured map[string]v1alpha1.QoSLevel) map[string]string {
	list := make(map[string]string, len(configured))
	for key, level := range configured {
		list[key] = string(level)
	}
	return list
}

func killersFrom(e *v1alpha1.EvictionPluginsConfiguration, standalone bool) arbiter.Killers {
	soft := e.SoftKiller
	switch {
	case soft != "":
	case standalone:
		soft = v1alpha1.PodWorker
	default:
		soft = v1alpha1.EvictionAPI
	}
	k := arbiter.Killers{Forced: killer(e.ForcedKiller), Soft: killer(soft)}
	if len(e.KillerByQoSLevel) > 0 {
		k.ByQoSLevel = make(map[string]snapshot.Killer, len(e.KillerByQoSLevel))
	}
	for level, name := range e.KillerByQoSLevel {
		k.ByQoSLevel[level] = killer(name)
	}
	return k
}

func killer(name v1alpha1.Killer) snapshot.Killer {
	switch name {
	case v1alpha1.EvictionAPI:
		return snapshot.EvictionAPI
	case v1alpha1.DeleteAPI:
		return snapshot.DeleteAPI
	case v1alpha1.PodWorker:
	}
	return snapshot.PodWorker
}

// Selector selects plugins by name, in the form of Katalyst: a name, "*" for all, "-name" for none of this name, which
// counts more than the other two, in whatever order. The zero value selects none.
type Selector []string

// Selects reports whether the plugin is selected.
func (s Selector) Selects(name string) bool { return v1alpha1.Selects(s, name) }
