package reporter

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Options are the settings of the driver, those of plugins.reporter in the NodePressureConfiguration. They may change
// while the agent runs. Options must not be modified once they are in use.
type Options struct {
	// Remote and InTree return whether a plugin of that name is enabled: one behind a socket, one in the agent. They are
	// pure functions.
	Remote, InTree func(name string) bool
	// Period is the time between two polls, CallTimeout the longest time of one.
	Period, CallTimeout time.Duration
	// StopGracePeriod is how long the answer of a plugin is served that has stopped or does not confirm it.
	StopGracePeriod time.Duration
}

// pressureDomain is the domain of the annotation and the label of the plugin pressure.
const pressureDomain = "pressure.plimsoll.dev"

// OptionsFrom returns the options of a configuration, which must be defaulted and valid.
func OptionsFrom(c *v1alpha1.NodePressureConfiguration) Options {
	r := &c.Plugins.Reporter
	return Options{
		Remote:          func(name string) bool { return v1alpha1.Selects(r.Remote, name) },
		InTree:          func(name string) bool { return v1alpha1.Selects(r.InTree, name) },
		Period:          r.Period.Duration,
		CallTimeout:     r.CallTimeout.Duration,
		StopGracePeriod: r.StopGracePeriod.Duration,
	}
}

// MergeOptionsFrom returns the options with which the reports of plugins are merged. The configuration must be
// defaulted and valid. The plugin pressure may label and annotate the Node with its own domain in any case.
func MergeOptionsFrom(c *v1alpha1.NodePressureConfiguration) merge.Options {
	r := &c.Plugins.Reporter
	leaveOut, _ := merge.ParseFields(r.Fields) // validation accepts the same entries
	return merge.Options{
		LeaveOut:       leaveOut,
		NodePrefixes:   r.NodePrefixes,
		PluginPrefixes: map[string][]string{v1alpha1.PressureReporterPlugin: {pressureDomain}},
	}
}
