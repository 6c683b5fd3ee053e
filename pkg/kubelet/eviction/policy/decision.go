package policy

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Decision is what should be done about one snapshot, and why. It shares pods with the snapshot and is not changed
// afterwards.
type Decision struct {
	// Number counts the decisions of the agent since its start, from 1. What becomes of a decision is reported under it.
	Number uint64
	// At is the snapshot's time, WallTime the same by the wall clock.
	At, WallTime time.Time
	// Conditions has one entry per type of ConditionTypes, in that order.
	Conditions [len(ConditionTypes)]Condition
	// Starved says for each need what was found and what is done about it, the most urgent one first. It is empty when no
	// threshold may act.
	Starved []Starved
	// Victims are to be evicted now, side by side: first those that exceed a limit of local storage, in the order of UIDs,
	// then those evicted for a threshold, in the order of their ranking.
	Victims []Victim
	// Reclaims are the node-level reclaims to begin before pods have to go.
	Reclaims []ReclaimRequest
	// LookAgain is when there is a reason to look before the configured period is over; zero when there is none.
	LookAgain time.Duration
	// DryRun is what would be done besides if nothing were in dry run.
	DryRun DryRun
}

// Starved explains the decision about one need.
type Starved struct {
	// Signal is that of the threshold which names the need.
	Signal snapshot.Signal
	Hard   bool
	// Amount must come free, InFlight is on its way at most, Certain of that in any case, all in the unit of the signal.
	Amount, InFlight, Certain int64
	// Chosen is how many pods cover the rest. The ones that are evicted now are among them, unless all of those have to
	// await their turn and a pod that exceeds its request goes meanwhile.
	Chosen int
	// Spared is how many pods were passed over that opted out.
	Spared  int
	Outcome Outcome
}

// Outcome is what is done about a need.
type Outcome string

// The outcomes. They are part of logs and of the decision log.
const (
	// Evict: pods are evicted.
	Evict Outcome = "Evict"
	// ReclaimNode: dead containers or unused images are removed first.
	ReclaimNode Outcome = "ReclaimNode"
	// AwaitReclaim: that is being done.
	AwaitReclaim Outcome = "AwaitReclaim"
	// AwaitRelease: what is in flight will do.
	AwaitRelease Outcome = "AwaitRelease"
	// AwaitTurn: more will be needed than is in flight, but there is time to see what that brings.
	AwaitTurn Outcome = "AwaitTurn"
	// AwaitStats: the figures are not newer than what was done last, or of a file system, nobody tells what pods have on
	// it.
	AwaitStats Outcome = "AwaitStats"
	// AwaitOther: a more urgent need is being served in this round.
	AwaitOther Outcome = "AwaitOther"
	// NoCandidate: there is no pod that may be evicted.
	NoCandidate Outcome = "NoCandidate"
)

// Victim is a pod to evict.
type Victim struct {
	Pod   *snapshot.Pod
	Cause Cause
	// Since is when a threshold of the need could first act; zero for a limit.
	Since time.Time
	// GraceSeconds is what the pod gets to end.
	GraceSeconds int64
	// Expected is an upper bound of what comes free.
	Expected snapshot.Release
	// Hasten: the pod is being stopped already and only gets less time.
	Hasten bool
	// Message and Annotations are those of the pod's status and of the event.
	Message     string
	Annotations map[string]string
}

// Cause is what a pod is evicted for: a threshold of the node, or a limit of the pod itself.
type Cause struct {
	Kind CauseKind
	// Signal is that of the threshold, NoSignal for a limit.
	Signal snapshot.Signal
	// Limit is the name of the limit that the pod exceeds, empty for a threshold.
	Limit string
}

// CauseKind is the kind of a cause. Its values are labels of metrics.
type CauseKind string

// The kinds of causes.
const (
	// HardThreshold: the node is below a hard eviction threshold.
	HardThreshold CauseKind = "hard"
	// SoftThreshold: the node is below a soft eviction threshold for longer than its grace period.
	SoftThreshold CauseKind = "soft"
	// LocalStorageLimit: the pod uses more local storage than a limit of it allows.
	LocalStorageLimit CauseKind = "limit"
)

// thresholdCause is the cause of an eviction for a threshold.
func thresholdCause(signal snapshot.Signal, hard bool) Cause {
	if hard {
		return Cause{Kind: HardThreshold, Signal: signal}
	}
	return Cause{Kind: SoftThreshold, Signal: signal}
}

// Name is the name under which evictions for the cause are counted: the signal, or the limit.
func (c Cause) Name() string {
	if c.Kind == LocalStorageLimit {
		return c.Limit
	}
	return c.Signal.String()
}

// Hard reports whether pods get no time to end: hard thresholds and limits.
func (c Cause) Hard() bool { return c.Kind != SoftThreshold }

// ReclaimRequest asks for what the node itself can give back on a device.
type ReclaimRequest struct {
	Device snapshot.Device
	Signal snapshot.Signal
	// Containers: dead containers lie there. Images: unused images do.
	Containers, Images bool
	// Amount is how much is needed, in the unit of the signal. It is enough when Target is available.
	Amount, Target int64
}

// Inodes tells whether the unit is inodes, not bytes.
func (q *ReclaimRequest) Inodes() bool { return q.Signal.Resource() == snapshot.ResourceInodes }

// WallTimeOf returns a time of the decision or its snapshot by the wall clock as it was set when the decision was
// made, for people. It is the same in each decision until the clock is set: a difference between both clocks of less
// than half a second is ignored.
func (d *Decision) WallTimeOf(t time.Time) time.Time {
	return t.Add(d.WallTime.Sub(d.At).Round(time.Second))
}

// Condition finds one condition.
func (d *Decision) Condition(t v1.NodeConditionType) Condition {
	for i := range d.Conditions {
		if d.Conditions[i].Type == t {
			return d.Conditions[i]
		}
	}
	return Condition{Type: t}
}

// Resource is what is being reclaimed for the need, by the name shown to users.
func (s *Starved) Resource() v1.ResourceName { return s.Signal.Resource() }

// Cause is the cause of evictions for the need.
func (s *Starved) Cause() Cause { return thresholdCause(s.Signal, s.Hard) }

// Acting tells whether something is done or waited for, so that users should hear of it.
func (s *Starved) Acting() bool {
	return s.Outcome == Evict || s.Outcome == ReclaimNode || s.Outcome == NoCandidate
}
