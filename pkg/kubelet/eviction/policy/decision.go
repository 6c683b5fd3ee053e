package policy

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Decision is what to do about one snapshot, and why. It shares pods with the snapshot and must not be modified.
type Decision struct {
	// Number counts the decisions since the start of the agent, from 1. Results refer to it.
	Number uint64
	// At is Snapshot.Taken (monotonic clock), WallTime the same instant on the wall clock.
	At, WallTime time.Time
	// Conditions has one entry for each type in ConditionTypes, in that order.
	Conditions [len(ConditionTypes)]Condition
	// Needs has one entry for each need, the most urgent one first. It is empty while no threshold may act.
	Needs []NeedDecision
	// Victims are the pods to evict now, all at once: first those that exceed a limit on local storage, in the order of
	// UIDs, then those evicted for a threshold, in the order of their ranking, then those that eviction plugins request,
	// in the order of Snapshot.Requests. Each pod is there once, with the first of its causes.
	Victims []Victim
	// Withdrawn are the pods whose submitted requests would not be served now, in the order of Snapshot.Requests: the API
	// server must not be asked to evict them any more.
	Withdrawn []types.UID
	// Reclaims are the node-level reclaims to begin. Evictions for the same need follow if they do not release enough.
	Reclaims []ReclaimRequest
	// SyncAfter is the longest time until the next round if that is due before the monitoring period has passed,
	// otherwise zero.
	SyncAfter time.Duration
	// DryRun is what would be done in addition if the rules in dry run were enforced.
	DryRun DryRun
	// Growth is how fast memory usage grows; nil unless Rules.ReportMemoryGrowth.
	Growth *MemoryGrowth
	// Outlook is how far each signal is from its hard threshold, as function Outlook returns it; nil unless
	// Rules.ReportOutlook.
	Outlook []SignalOutlook
}

// NeedDecision is the decision about one need, with the amounts that it is based on.
type NeedDecision struct {
	// Signal is the first signal, in order, whose threshold is part of the need.
	Signal snapshot.Signal
	// Hard is true if a hard threshold acts. Then soft thresholds of the same group are not part of the need.
	Hard bool
	// Amount must come free. InFlight is an upper bound of what terminations in progress release, Certain the part of
	// that which comes free in any case. All are in the unit of the signal.
	Amount, InFlight, Certain int64
	// Chosen is the number of pods that cover what is missing beyond InFlight. Those evicted in this round are among
	// them, except for pods that would use up what is left before that, and for a pod above its request that is evicted
	// while all chosen ones await their turn.
	Chosen int
	// PassedOver is the number of pods that were not chosen because they opted out.
	PassedOver int
	// Outcome is what is done about the need in this round.
	Outcome Outcome
}

// Outcome is what is done about a need. Its values are labels of metrics and part of logs.
type Outcome string

// The outcomes.
const (
	// Evict: pods are evicted.
	Evict Outcome = "Evict"
	// ReclaimNode: a node-level reclaim of dead containers or unused images begins, before pods are evicted.
	ReclaimNode Outcome = "ReclaimNode"
	// AwaitReclaim: a node-level reclaim is running.
	AwaitReclaim Outcome = "AwaitReclaim"
	// AwaitRelease: terminations in progress release enough.
	AwaitRelease Outcome = "AwaitRelease"
	// AwaitTurn: terminations in progress do not release enough, but there is time to observe their effect before the
	// next eviction.
	AwaitTurn Outcome = "AwaitTurn"
	// AwaitStats: the observation is not newer than the last eviction or reclaim, or the usage of file systems by pods is
	// unknown.
	AwaitStats Outcome = "AwaitStats"
	// AwaitOther: a more urgent need is served in this round.
	AwaitOther Outcome = "AwaitOther"
	// NoCandidate: no pod may be evicted.
	NoCandidate Outcome = "NoCandidate"
)

// Victim is a pod to evict.
type Victim struct {
	Pod   *snapshot.Pod
	Cause Cause
	// Since is the time from which on the thresholds of the need could act; zero if the cause is no threshold.
	Since time.Time
	// GraceSeconds is the grace period of the eviction in seconds.
	GraceSeconds int64
	// Expected is an upper bound of what the eviction releases.
	Expected snapshot.Release
	// Hasten is true for a pod that is already terminating; the eviction shortens its grace period.
	Hasten bool
	// Killer is what evicts the pod: the pod workers, unless plugins alone request an eviction that begins now.
	Killer snapshot.Killer
	// Fence stops the growth of the pod as soon as its eviction is accepted; nil for a pod that is evicted without.
	Fence *Fence
	// Message and Annotations are those of the event; the status of the pod has the same message.
	Message     string
	Annotations map[string]string
}

// Fence is a limit on the cgroup of a victim that would use up what is left before it is stopped. It is set when the
// pod workers have accepted the eviction, and never before. The pod then ends by its cgroup, sooner than other victims.
type Fence struct {
	// Slack is by how much memory usage may still grow: the limit is the usage at the time of the fence and Slack. The
	// slacks of all victims of a decision are at most half of what is left of memory. It is zero with PIDs, and when
	// nothing is left.
	Slack snapshot.Bytes
	// Growth is how fast the memory usage of the pod grew, per second; zero with PIDs.
	Growth snapshot.Bytes
	// PIDs: the number of processes is limited to the present one, not memory.
	PIDs bool
}

// Cause is why a pod is evicted: a threshold of the node, a limit of the pod, or a request of eviction plugins.
type Cause struct {
	Kind CauseKind
	// Signal is that of the threshold, NoSignal without one.
	Signal snapshot.Signal
	// Limit is the name of the limit that the pod exceeds, empty without one.
	Limit string
	// Plugins are the names of the plugins that request the eviction, joined with commas, in order; empty without a
	// request.
	Plugins string
}

// CauseKind distinguishes causes. Its values are labels of metrics.
type CauseKind string

// The kinds of causes.
const (
	// HardThreshold: the node is below a hard eviction threshold.
	HardThreshold CauseKind = "hard"
	// SoftThreshold: the node has been below a soft eviction threshold for at least its grace period.
	SoftThreshold CauseKind = "soft"
	// LocalStorageLimit: the pod exceeds one of its limits on local storage.
	LocalStorageLimit CauseKind = "limit"
	// PluginRequest: eviction plugins request the eviction.
	PluginRequest CauseKind = "plugin"
)

// thresholdCause returns the cause of an eviction for a threshold.
func thresholdCause(signal snapshot.Signal, hard bool) Cause {
	if hard {
		return Cause{Kind: HardThreshold, Signal: signal}
	}
	return Cause{Kind: SoftThreshold, Signal: signal}
}

// Name returns the name under which evictions are counted: that of the signal or of the limit, and "plugin" for all
// requests of plugins, since the number of plugins over time has no bound.
func (c Cause) Name() string {
	switch c.Kind {
	case LocalStorageLimit:
		return c.Limit
	case PluginRequest:
		return string(PluginRequest)
	case HardThreshold, SoftThreshold:
	}
	return c.Signal.String()
}

// Hard reports whether the pod has only the minimal grace period, as with hard thresholds and limits.
func (c Cause) Hard() bool { return c.Kind == HardThreshold || c.Kind == LocalStorageLimit }

// ReclaimRequest is a request to remove dead containers and unused images from a device.
type ReclaimRequest struct {
	Device snapshot.Device
	Signal snapshot.Signal
	// Containers is true if dead containers occupy space on the device, Images if images do.
	Containers, Images bool
	// Amount is how much must come free, Target how much is available then, in the unit of the signal.
	Amount, Target int64
}

// Inodes reports whether the unit is inodes, not bytes.
func (q *ReclaimRequest) Inodes() bool { return q.Signal.Resource() == snapshot.ResourceInodes }

// WallTimeOf converts a time of the decision or of its snapshot to wall time, as the wall clock was set when the
// decision was made. Decisions return the same result until the wall clock is set: the difference of the clocks is
// rounded to seconds.
func (d *Decision) WallTimeOf(t time.Time) time.Time {
	return t.Add(d.WallTime.Sub(d.At).Round(time.Second))
}

// Condition returns the condition of a type, one that is False if there is none.
func (d *Decision) Condition(t v1.NodeConditionType) Condition {
	for i := range d.Conditions {
		if d.Conditions[i].Type == t {
			return d.Conditions[i]
		}
	}
	return Condition{Type: t}
}

// Resource returns the resource of the need, by the name that messages and events of stock use.
func (s *NeedDecision) Resource() v1.ResourceName { return s.Signal.Resource() }

// Cause returns the cause of evictions for the need.
func (s *NeedDecision) Cause() Cause { return thresholdCause(s.Signal, s.Hard) }

// Acting reports whether the agent evicts or reclaims for the need, or would if there were a candidate. Users are
// notified of that.
func (s *NeedDecision) Acting() bool {
	return s.Outcome == Evict || s.Outcome == ReclaimNode || s.Outcome == NoCandidate
}
