package v1alpha1

import (
	"encoding/json"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PluginList is the page /debug/plugins: all eviction plugins and reporter plugins at one time. Names, scopes, reasons
// and errors are texts of plugins: they are bounded, and may contain anything.
type PluginList struct {
	Time time.Time `json:"time"`
	// Plugins are the eviction plugins in the order of names: those of the agent and those that are registered, enabled or
	// not.
	Plugins []Plugin `json:"plugins"`
	// Requests are the evictions that plugins request now, in the order in which they are served.
	Requests []PluginRequest `json:"requests,omitempty"`
	// Notices are the pods that plugins ask for and that are given notice instead of being evicted, in the order of UIDs.
	Notices []PluginNotice `json:"notices,omitempty"`
	// Conditions are those that plugins report, in the order of targets and names.
	Conditions []PluginCondition `json:"conditions,omitempty"`
	// Reporters are the reporter plugins in the order of names and sockets.
	Reporters []Reporter `json:"reporters,omitempty"`
	// Objects are what the agent publishes for reporter plugins, in the order of kinds.
	Objects []ReportedObject `json:"reportedObjects,omitempty"`
	// Refused are the last registrations of both types that were refused, in the order of their times.
	Refused []RefusedRegistration `json:"refusedRegistrations,omitempty"`
	// Omitted is the number of plugins beyond the longest list that is shown.
	Omitted int `json:"omitted,omitempty"`
}

// Plugin is the state of one eviction plugin.
type Plugin struct {
	Name string `json:"name"`
	// Type is the type with which the plugin registers: EvictionPlugin.
	Type string `json:"type"`
	// InTree is true for a plugin of the agent. Socket is the path of the socket of another one.
	InTree bool   `json:"inTree"`
	Socket string `json:"socket,omitempty"`
	// Enabled is true if the configuration selects the plugin. Others are not called.
	Enabled bool `json:"enabled"`
	// DryRun is true if the answers of the plugin are counted and have no effect.
	DryRun bool `json:"dryRun"`
	// Registered is when the plugin registered last; not set for a plugin of the agent.
	Registered time.Time    `json:"registered,omitzero"`
	Health     PluginHealth `json:"health"`
	// LastAnswer is nil until the plugin has answered in a round.
	LastAnswer *PluginAnswer `json:"lastAnswer,omitempty"`
	// Thresholds are those that the plugin reports met, in the order of scope and type, confirmed or not.
	Thresholds []PluginThreshold `json:"thresholds,omitempty"`
	Pods       PluginPods        `json:"pods"`
	// RefusedConditions are the conditions in the last answer that are not taken in.
	RefusedConditions []RefusedCondition `json:"refusedConditions,omitempty"`
}

// PluginHealth is the state of the calls of a plugin. A call that the plugin does not implement is no failure.
type PluginHealth struct {
	// Failures is the number of failed calls since the last one that succeeded.
	Failures int `json:"failures"`
	// LastError is the beginning of the error of the last call that failed, empty if none has. LastErrorTime is the end of
	// that call, if it is known.
	LastError     string    `json:"lastError,omitempty"`
	LastErrorTime time.Time `json:"lastErrorTime,omitzero"`
	// SuspendedUntil is when the plugin is called next; not set unless calls are suspended after failures.
	SuspendedUntil time.Time `json:"suspendedUntil,omitzero"`
	// LatencySeconds is the duration of the last call, 0 if there was none.
	LatencySeconds float64 `json:"latencySeconds"`
}

// PluginAnswer is the last answer of a plugin in a round.
type PluginAnswer struct {
	// Time is the beginning of the round.
	Time time.Time `json:"time"`
	// ThresholdType is NOT_MET, SOFT_MET or HARD_MET; empty if ThresholdMet was not answered in that round.
	ThresholdType string `json:"thresholdType,omitempty"`
	// Candidates is the number of candidate pods of the threshold.
	Candidates int `json:"candidates"`
	// Pods is the number of pods that GetEvictPods returned. TopPods is that of the last answer of GetTopEvictionPods.
	Pods    int `json:"pods"`
	TopPods int `json:"topPods"`
}

// PluginThreshold is a threshold that a plugin reports met.
type PluginThreshold struct {
	// Type is SOFT_MET or HARD_MET.
	Type  string `json:"type"`
	Scope string `json:"scope"`
	// Operator is LESS_THAN or GREATER_THAN: the relation of Observed to Target. Their unit is that of the plugin.
	Operator string `json:"operator"`
	Observed Number `json:"observed"`
	Target   Number `json:"target"`
	// GraceSeconds is how long the threshold must be met until pods are asked for.
	GraceSeconds float64 `json:"gracePeriodSeconds"`
	// MetSeconds is how long the threshold has been met, without the time for which answers were missing.
	MetSeconds float64 `json:"metSeconds"`
	// Missing is the number of rounds in a row without an answer.
	Missing int `json:"missing"`
	// Confirmed is true if the threshold has been met for its grace period.
	Confirmed bool `json:"confirmed"`
}

// PluginPods are the numbers of pods that a plugin has named, and what came of them.
type PluginPods struct {
	// Asked is the number of pods that the plugin asks for now, without dropped ones.
	Asked int `json:"asked"`
	// Waiting is how many of these are not being evicted.
	Waiting int `json:"waiting"`
	// InFlight is how many of these are being evicted and are not released.
	InFlight int `json:"inFlight"`
	// Evicted is the number of evictions that the plugin has caused, alone or with others, since the start of the agent.
	Evicted int64 `json:"evicted"`
	// Dropped is how often the plugin has named pods that it may not name, by reason, since the start of the agent.
	Dropped map[string]int64 `json:"dropped,omitempty"`
}

// PluginRequest is the eviction of one pod that plugins request.
type PluginRequest struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Plugins request the eviction, in the order of names.
	Plugins []string `json:"plugins"`
	Scope   string   `json:"scope"`
	Forced  bool     `json:"forced"`
	// GraceSeconds is nil for the pod's own grace period.
	GraceSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	Reason       string `json:"reason,omitempty"`
	// Since is when a plugin first asked for the pod without interruption.
	Since time.Time `json:"since"`
	// Killer is what evicts the pod: PodWorker, EvictionAPI or DeleteAPI.
	Killer string `json:"killer"`
	// State is Waiting, Blocked: the API server did not accept the eviction and is asked again, InFlight, or Overdue: in
	// flight and not stopped in time.
	State string `json:"state"`
}

// PluginNotice is a pod that plugins ask for without force and that is given notice instead of being evicted, on the
// page and in a notice file.
type PluginNotice struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Plugins ask for the pod, in the order of names.
	Plugins []string `json:"plugins"`
	Scope   string   `json:"scope"`
	Reason  string   `json:"reason,omitempty"`
	// Since is when the notice was given.
	Since time.Time `json:"since"`
	// GraceSeconds is the grace period that plugins ask for, else that of the pod.
	GraceSeconds int64 `json:"gracePeriodSeconds"`
}

// PluginCondition is a condition that plugins report.
type PluginCondition struct {
	// Target is Node or CustomNodeResource.
	Target string `json:"target"`
	// Name is that of the plugins, without the prefix node.katalyst.kubewharf.io/.
	Name string `json:"name"`
	True bool   `json:"true"`
	// Effects are effects of taints, in the order of names.
	Effects []string `json:"effects,omitempty"`
	// Plugins report the condition, in the order of names. There are none for a condition of an earlier run of the agent
	// that no plugin has reported yet.
	Plugins []string `json:"plugins,omitempty"`
	// LastMet is when the condition was last reported met.
	LastMet time.Time `json:"lastMet,omitzero"`
}

// RefusedCondition is a condition that a plugin has reported and that is not taken in.
type RefusedCondition struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// RefusedRegistration is a registration that was refused.
type RefusedRegistration struct {
	Time time.Time `json:"time"`
	// Type is EvictionPlugin or ReporterPlugin.
	Type   string `json:"type"`
	Name   string `json:"name"`
	Socket string `json:"socket,omitempty"`
	Reason string `json:"reason"`
}

// Number is a number of a plugin, which need not be finite. JSON has only finite numbers; the others are null.
type Number float64

// MarshalJSON returns the number, null if it is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return json.Marshal(f)
	}
	return []byte("null"), nil
}
