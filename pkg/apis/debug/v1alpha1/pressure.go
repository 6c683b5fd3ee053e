package v1alpha1

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PressureAPIVersion is the apiVersion of the documents below /debug/pressure, and of what the decision log writes.
const PressureAPIVersion = "debug.plimsoll.dev/v1alpha1"

// The kinds of the documents below /debug/pressure.
const (
	PressureStatusKind       = "PressureStatus"
	PressureDecisionKind     = "PressureDecision"
	PressureDecisionListKind = "PressureDecisionList"
	PressureTraceKind        = "PressureTrace"
)

// PressureStatus is the page /debug/pressure/status: how far the node is from its eviction thresholds.
type PressureStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	// Time is when the page was made, Observed the time of the last round; not set before the first.
	Time     time.Time `json:"time"`
	Observed time.Time `json:"observed,omitzero"`
	// Decision is the number of the last decision.
	Decision uint64 `json:"decision"`
	// Signals has each signal that was observed, could not be, or has a threshold.
	Signals    []PressureSignal    `json:"signals"`
	Thresholds []PressureThreshold `json:"thresholds,omitempty"`
	Conditions []PressureCondition `json:"conditions,omitempty"`
	Needs      []PressureNeed      `json:"needs,omitempty"`
	// RuntimeSilent: the container runtime hangs or fails, so that there are no pod stats.
	RuntimeSilent bool `json:"runtimeSilent,omitempty"`
	// InFlight are the evictions that have begun and whose pods are not cleaned up.
	InFlight []PressureInFlight `json:"inFlight,omitempty"`
	// Waiting are the pods that wait for admission.
	Waiting []PressurePod `json:"waiting,omitempty"`
	// DryRun are the pods that the thresholds and limits in dry run would have evicted in the last round.
	DryRun []PressureVictim `json:"dryRun,omitempty"`
	// Requests are the evictions that plugins request.
	Requests []PressureRequest `json:"requests,omitempty"`
	// Plugins are the eviction plugins.
	Plugins []PressurePlugin `json:"plugins,omitempty"`
	Log     PressureLog      `json:"log"`
	// Ranked is the time of the snapshot of Rankings, which the parameter rank=true adds: the order in which pods would be
	// evicted for each resource that has a threshold.
	Ranked   time.Time         `json:"ranked,omitzero"`
	Rankings []PressureRanking `json:"rankings,omitempty"`
}

// PressureSignal is one eviction signal. Amounts are in bytes, inodes or processes.
type PressureSignal struct {
	Signal string `json:"signal"`
	// Available and Capacity are nil while the signal is blind: it cannot be observed.
	Available *int64 `json:"available,omitempty"`
	Capacity  *int64 `json:"capacity,omitempty"`
	// Observed is when the observation was true by its source, not set if the source has no time. AgeSeconds is its age
	// when the document was made, 0 if that is unknown.
	Observed   time.Time `json:"observed,omitzero"`
	AgeSeconds float64   `json:"ageSeconds,omitempty"`
	// Source is kernel for memory that was read from cgroup files in that round, else summary.
	Source string `json:"source,omitempty"`
	Blind  bool   `json:"blind,omitempty"`
	// Error is why the signal is blind.
	Error string `json:"error,omitempty"`
	// Level is calm, near or met, by the hard threshold of the signal that is met first. It is empty without one and if it
	// is unknown. The rest is about the same threshold: see PressureThreshold for others.
	Level string `json:"level,omitempty"`
	// Threshold is the amount below which the threshold is met, or stays met; nil without one. Headroom is how much more
	// is available, negative exactly if the threshold is met.
	Threshold *int64 `json:"threshold,omitempty"`
	Headroom  *int64 `json:"headroom,omitempty"`
	// GrowthPerSecond is the growth of usage in bytes per second, 0 if it is not measured: that of memory is while it is
	// less than a quarter of the capacity away from a threshold, or a plugin uses it.
	GrowthPerSecond float64 `json:"growthPerSecond,omitempty"`
	// SecondsToThreshold is nil if the threshold is met, or is not met within a day at the present growth.
	SecondsToThreshold *float64 `json:"secondsToThreshold,omitempty"`
}

// PressureThreshold is an eviction threshold and the state of its clocks.
type PressureThreshold struct {
	Signal string `json:"signal"`
	// Kind is Hard or Soft.
	Kind   string `json:"kind"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Value is the threshold as it is configured, a quantity or a percentage, MinimumReclaim likewise.
	Value          string `json:"value"`
	MinimumReclaim string `json:"minimumReclaim,omitempty"`
	// Amount is below which the threshold is met, Target from which on it is resolved after it was active; nil while the
	// signal is blind.
	Amount *int64 `json:"amount,omitempty"`
	Target *int64 `json:"target,omitempty"`
	// Met is true if less is available. Active: its grace period has passed besides, so that pods may be evicted for it.
	Met    bool `json:"met"`
	Active bool `json:"active"`
	// GracePeriodSeconds is that of a soft threshold, GracePeriodElapsedSeconds how much of it has passed, NotMetSeconds
	// for how long the threshold has not been met.
	GracePeriodSeconds        float64 `json:"gracePeriodSeconds,omitempty"`
	GracePeriodElapsedSeconds float64 `json:"gracePeriodElapsedSeconds,omitempty"`
	NotMetSeconds             float64 `json:"notMetSeconds,omitempty"`
	// UnknownSince is the time since when the signal is blind.
	UnknownSince time.Time `json:"unknownSince,omitzero"`
}

// PressureCondition is a pressure condition of the Node, as it was decided.
type PressureCondition struct {
	Type string `json:"type"`
	True bool   `json:"true"`
	// HardMet: a hard threshold of the condition is met. A condition that is True without lasts for its transition period,
	// or is due to a soft threshold.
	HardMet bool `json:"hardMet,omitempty"`
	// Restored: it was taken over from the Node at the start of the agent.
	Restored bool `json:"restored,omitempty"`
	// Since is the last transition, not set if that was before the start of the agent.
	Since        time.Time `json:"since,omitzero"`
	BlindSignals []string  `json:"blindSignals,omitempty"`
}

// PressurePod identifies a pod.
type PressurePod struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid"`
}

// PressureInFlight is an eviction that has begun, until everything that the pod used is released; or a pod that has
// ended for another reason, until it is cleaned up.
type PressureInFlight struct {
	PressurePod
	// Signal is that of the threshold, empty for a limit of the pod and a request of plugins.
	Signal string `json:"signal,omitempty"`
	Hard   bool   `json:"hard,omitempty"`
	// State is stopping, stopped or failed.
	State string `json:"state"`
	// Started is when the eviction began; absent for a pod that has ended for another reason.
	Started  time.Time `json:"started,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// ExpectedMemoryBytes is an upper bound of the memory that the end of the pod releases.
	ExpectedMemoryBytes int64 `json:"expectedMemoryBytes,omitempty"`
}

// PressureRequest is an eviction that plugins request.
type PressureRequest struct {
	PressurePod
	Plugins []string `json:"plugins"`
	Scope   string   `json:"scope,omitempty"`
	Forced  bool     `json:"forced,omitempty"`
	// Killer is what evicts the pod: PodWorker, EvictionAPI or DeleteAPI.
	Killer string    `json:"killer"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// PressurePlugin is the state of an eviction plugin in short; /debug/plugins has the rest.
type PressurePlugin struct {
	Name      string `json:"name"`
	Enabled   bool   `json:"enabled"`
	DryRun    bool   `json:"dryRun,omitempty"`
	Failures  int    `json:"failures,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	// Asked is how many pods the plugin asks for now, Evicted how many evictions it has caused since the start.
	Asked   int   `json:"asked,omitempty"`
	Evicted int64 `json:"evicted,omitempty"`
}

// PressureLog is the state of the decision log.
type PressureLog struct {
	// Records is the number of records in memory, Bytes what they occupy, LimitBytes the bound of that. Oldest is the time
	// of the first record, not set if there is none.
	Records    int       `json:"records"`
	Bytes      int64     `json:"bytes"`
	LimitBytes int64     `json:"limitBytes"`
	Oldest     time.Time `json:"oldest,omitzero"`
	// Watchers is the number of clients of /debug/pressure/watch.
	Watchers int `json:"watchers"`
	// Directory is where records are written, empty if they are not. LostOnDisk is the number of lines that were not
	// written there since the start, DiskError why the last write failed, empty if it succeeded.
	Directory  string `json:"directory,omitempty"`
	LostOnDisk int64  `json:"lostOnDisk,omitempty"`
	DiskError  string `json:"diskError,omitempty"`
}

// PressureDecisionList is the page /debug/pressure/decisions.
type PressureDecisionList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Node       string `json:"node"`
	// Items are the newest decisions that match, the oldest of them first. Candidates are left out: /decisions/ID has
	// them.
	Items []PressureDecision `json:"items"`
	// Omitted is the number of older decisions that match and were left out because of the limit.
	Omitted     int                  `json:"omitted,omitempty"`
	Admissions  []PressureAdmission  `json:"admissions,omitempty"`
	Preemptions []PressurePreemption `json:"preemptions,omitempty"`
}

// PressureDecision is one decision with what it was based on and what became of it. /debug/pressure/decisions/ID
// returns one.
type PressureDecision struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Number counts the decisions since the start of the agent, from 1.
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
	// Trigger is timer, event, counters or kernel. Heartbeat: nothing has changed, and the last record is a minute old.
	Trigger       string              `json:"trigger"`
	Heartbeat     bool                `json:"heartbeat,omitempty"`
	Signals       []PressureSignal    `json:"signals"`
	Thresholds    []PressureThreshold `json:"thresholds,omitempty"`
	Conditions    []PressureCondition `json:"conditions"`
	RuntimeSilent bool                `json:"runtimeSilent,omitempty"`
	// Needs are the resources that were scarce, the most urgent first, with what was done about them.
	Needs []PressureNeed `json:"needs,omitempty"`
	// Rankings are the candidates for each need.
	Rankings []PressureRanking `json:"rankings,omitempty"`
	// Victims were evicted by this decision; those with DryRun would have been.
	Victims  []PressureVictim   `json:"victims,omitempty"`
	Reclaims []PressureReclaim  `json:"reclaims,omitempty"`
	InFlight []PressureInFlight `json:"inFlight,omitempty"`
	Requests []PressureRequest  `json:"requests,omitempty"`
	// Withdrawn are pods that the API server is no longer asked to evict.
	Withdrawn []types.UID `json:"withdrawn,omitempty"`
	// Outcomes are what became of victims and reclaims, as it happened.
	Outcomes []PressureOutcome `json:"outcomes,omitempty"`
	// Replay is what the same decision can be made from again. Only traces have it.
	Replay *PressureReplay `json:"replay,omitempty"`
}

// PressureNeed is a resource that is scarce. Amounts are in the unit of the signal.
type PressureNeed struct {
	Signal string `json:"signal"`
	Hard   bool   `json:"hard"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Amount must come free. InFlight is an upper bound of what terminations in progress release, Certain the part that
	// comes free in any case.
	Amount   int64 `json:"amount"`
	InFlight int64 `json:"inFlight,omitempty"`
	Certain  int64 `json:"certain,omitempty"`
	// Chosen pods cover what is missing. PassedOver opted out.
	Chosen     int `json:"chosen,omitempty"`
	PassedOver int `json:"passedOver,omitempty"`
	// Outcome is Evict, ReclaimNode, AwaitReclaim, AwaitRelease, AwaitTurn, AwaitStats, AwaitOther or NoCandidate.
	Outcome string `json:"outcome"`
}

// PressureRanking is the order in which pods are evicted for one resource.
type PressureRanking struct {
	Signal string `json:"signal"`
	Hard   bool   `json:"hard"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Needed is false if no threshold is met: it is what would happen.
	Needed     bool                `json:"needed"`
	Candidates []PressureCandidate `json:"candidates"`
}

// PressureCandidate is a pod that may be evicted. Amounts are in the unit of the signal.
type PressureCandidate struct {
	PressurePod
	Priority int32  `json:"priority"`
	QOSClass string `json:"qosClass"`
	// Usage is nil if it is unknown.
	Usage           *int64  `json:"usage,omitempty"`
	Request         int64   `json:"request"`
	GrowthPerSecond float64 `json:"growthPerSecond,omitempty"`
	Preference      int32   `json:"preference,omitempty"`
	AboveRequest    bool    `json:"aboveRequest,omitempty"`
	Terminating     bool    `json:"terminating,omitempty"`
	OptedOut        bool    `json:"optedOut,omitempty"`
	// Reason is by what the pod ranks after the one before it (the first: before the one after it): Terminating,
	// AboveRequest, Priority, KnownUsage, Preference, Usage, UID, or OnlyCandidate.
	Reason string `json:"reason"`
}

// PressureVictim is a pod that is evicted.
type PressureVictim struct {
	PressurePod
	DryRun bool `json:"dryRun,omitempty"`
	// Cause is hard, soft, limit or plugin. Signal, Limit or Plugins says more.
	Cause   string `json:"cause"`
	Signal  string `json:"signal,omitempty"`
	Limit   string `json:"limit,omitempty"`
	Plugins string `json:"plugins,omitempty"`
	// Since is when the threshold could act first.
	Since              time.Time `json:"since,omitzero"`
	GracePeriodSeconds int64     `json:"gracePeriodSeconds"`
	// ExpectedMemoryBytes and the others are upper bounds of what the eviction releases.
	ExpectedMemoryBytes int64 `json:"expectedMemoryBytes,omitempty"`
	ExpectedPIDs        int64 `json:"expectedPIDs,omitempty"`
	ExpectedDiskBytes   int64 `json:"expectedDiskBytes,omitempty"`
	// Hastened: the pod was terminating already.
	Hastened bool   `json:"hastened,omitempty"`
	Killer   string `json:"killer"`
	// Fence is what limits the pod until it has ended, nil without one.
	Fence *PressureFence `json:"fence,omitempty"`
	// Message is that of the event and of the status of the pod.
	Message string `json:"message"`
}

// PressureFence is a limit on the cgroup of a victim.
type PressureFence struct {
	PIDs            bool  `json:"pids,omitempty"`
	SlackBytes      int64 `json:"slackBytes,omitempty"`
	GrowthPerSecond int64 `json:"growthPerSecond,omitempty"`
}

// PressureReclaim is a node-level reclaim of dead containers and unused images.
type PressureReclaim struct {
	Signal     string `json:"signal"`
	Device     string `json:"device"`
	DryRun     bool   `json:"dryRun,omitempty"`
	Containers bool   `json:"containers,omitempty"`
	Images     bool   `json:"images,omitempty"`
	Amount     int64  `json:"amount"`
	Target     int64  `json:"target"`
}

// PressureOutcome is what became of a victim or a reclaim.
type PressureOutcome struct {
	// Decision is the number of the decision; traces and watches have outcomes apart from it.
	Decision uint64    `json:"decision"`
	Time     time.Time `json:"time"`
	// Kind is one of the kinds of results, for example KillAccepted, PodFenced, PodStopped, PodReleased, ReclaimEnded.
	Kind string `json:"kind"`
	// Pod is nil for a reclaim.
	Pod *PressurePod `json:"pod,omitempty"`
	// Detail is the answer of the killer, the fence, or the result of the reclaim.
	Detail string `json:"detail,omitempty"`
	// ReleasedMemoryBytes is an upper bound of what the end of the pod has released, for PodReleased.
	ReleasedMemoryBytes int64  `json:"releasedMemoryBytes,omitempty"`
	Error               string `json:"error,omitempty"`
}

// PressureAdmission is a pod that was not admitted.
type PressureAdmission struct {
	PressurePod
	Time time.Time `json:"time"`
	// Outcome is Rejected or Waiting.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// PressurePreemption is a plan to stop pods for a critical pod.
type PressurePreemption struct {
	PressurePod
	Time time.Time `json:"time"`
	// Stop are the pods to stop, Await those that are terminating already and suffice with them.
	Stop  []PressurePod `json:"stop,omitempty"`
	Await []PressurePod `json:"await,omitempty"`
	// Error is why no set of pods suffices, empty for a plan.
	Error string `json:"error,omitempty"`
}

// PressureTrace is a line of a trace or of a file of the decision log. It has exactly one of the fields beside the
// first two.
type PressureTrace struct {
	// APIVersion and Kind are set in the first line of a trace or a file.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	// Start is the first line.
	Start *PressureTraceStart `json:"start,omitempty"`
	// Rules are what the following decisions refer to.
	Rules *PressureTraceRules `json:"rules,omitempty"`
	// Pod is a pod as the following snapshots refer to it, by its UID.
	Pod        *PressureTracePod   `json:"pod,omitempty"`
	Decision   *PressureDecision   `json:"decision,omitempty"`
	Outcome    *PressureOutcome    `json:"outcome,omitempty"`
	Admission  *PressureAdmission  `json:"admission,omitempty"`
	Preemption *PressurePreemption `json:"preemption,omitempty"`
}

// PressureTraceStart is the first line of a trace or a file.
type PressureTraceStart struct {
	Node string    `json:"node"`
	Time time.Time `json:"time"`
	// Lost is the number of lines that could not be written before this file.
	Lost int64 `json:"lost,omitempty"`
}

// PressureTraceRules are rules of decisions: package policy decodes them.
type PressureTraceRules struct {
	ID    string          `json:"id"`
	Rules json.RawMessage `json:"rules"`
}

// PressureTracePod is what decisions use of a pod's API object: package snapshot decodes it. It has the pod's requests
// and limits, and the names of containers and of volumes on the node; no environment, command, label or annotation.
// What decisions use of annotations is EvictionPreference and OptOut.
type PressureTracePod struct {
	Facts              json.RawMessage `json:"facts"`
	EvictionPreference int             `json:"evictionPreference,omitempty"`
	OptOut             []string        `json:"optOut,omitempty"`
}

// PressureReplay is what a decision was made from.
type PressureReplay struct {
	// Rules is the ID of the rules.
	Rules string `json:"rules"`
	// PartialPods: the snapshot has only the pods that the decision needed, since the node was far from all thresholds.
	PartialPods bool `json:"partialPods,omitempty"`
	// Snapshot is decoded by package snapshot. Its pods have their UID and their usage; the last PressureTracePod of the
	// same UID has the rest.
	Snapshot json.RawMessage `json:"snapshot"`
	// State is that before the decision, which package policy decodes. Without it, it is the state after the decision with
	// the number before.
	State json.RawMessage `json:"state,omitempty"`
}
