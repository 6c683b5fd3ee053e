package eviction

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Trigger is what causes a round. Its values are labels of metrics.
type Trigger string

// The triggers.
const (
	// TriggerTimer: the monitoring period is over, or the time that the last decision named.
	TriggerTimer Trigger = "timer"
	// TriggerEvent: a kill or a reclaim has ended, a pod was cleaned up, or another part of the agent asked for a round.
	TriggerEvent Trigger = "event"
	// TriggerCounters: the memory counters show that a threshold was crossed.
	TriggerCounters Trigger = "counters"
	// TriggerKernel: as TriggerCounters, seen because of a notification of the kernel.
	TriggerKernel Trigger = "kernel"
)

// Round is one decision with what it was made from. All sinks share it; nobody may change it.
type Round struct {
	Trigger  Trigger
	Snapshot *snapshot.Snapshot
	Decision policy.Decision
	// Before are the node conditions of the round before.
	Before []policy.Condition
	// Notices are what has begun or ended with this round and is worth telling users, in a fixed order.
	Notices []Notice
	// CountersErr says why the kernel's memory counters cannot be read, since CountersErrSince; nil while they can, or are
	// not used.
	CountersErr      error
	CountersErrSince time.Time
}

// Began reports whether a node condition has become True.
func (r *Round) Began() bool {
	return r.anyCondition(func(before, now *policy.Condition) bool { return now.True && !before.True })
}

// Relieved reports whether something that kept pods from being admitted is over: a node condition, or a hard threshold
// that was met.
func (r *Round) Relieved() bool {
	return r.anyCondition(func(before, now *policy.Condition) bool {
		return (before.True && !now.True) || (before.HardMet && !now.HardMet) || (before.Restored && !now.Restored)
	})
}

func (r *Round) anyCondition(changed func(before, now *policy.Condition) bool) bool {
	for i := range r.Decision.Conditions {
		now := &r.Decision.Conditions[i]
		before := conditionIn(r.Before, now.Type)
		if changed(&before, now) {
			return true
		}
	}
	return false
}

// Result is what became of one part of a decision, a kill or a node-level reclaim. All sinks share it; nobody may
// change it. The results of one victim come in the order of the kinds, each at most once, but for a victim that is
// hastened by a later decision: the request of that decision has results of its own.
type Result struct {
	// Decision is the number of the decision.
	Decision uint64
	At       time.Time
	Kind     ResultKind
	// Victim is nil for a reclaim.
	Victim *policy.Victim
	// Answer is that of the pod workers to the request, for KillAccepted and KillRefused.
	Answer podkill.Answer
	// Evicted is true for one PodStopped of a pod whose termination an eviction began.
	Evicted bool
	// Released is an upper bound of what the pod gave back, for PodReleased.
	Released snapshot.Release
	// Reclaim is what was asked for and Reclaimed what it brought, for ReclaimEnded.
	Reclaim   *policy.ReclaimRequest
	Reclaimed snapshot.Reclaimed
	// Err is why a kill or a reclaim has failed.
	Err error
}

// ResultKind is what became of a part of a decision.
type ResultKind string

// The kinds of results.
const (
	// PodGone: the pod was gone when it was to be evicted; no request was made.
	PodGone ResultKind = "PodGone"
	// KillRefused: the pod workers did not accept the request, since the agent stops.
	KillRefused ResultKind = "KillRefused"
	// KillAccepted: the pod workers terminate the pod.
	KillAccepted ResultKind = "KillAccepted"
	// PodOverdue: the pod has not stopped within its grace period and the time that a kill may take; it goes on
	// terminating.
	PodOverdue ResultKind = "PodOverdue"
	// KillFailed: nobody waits any more for the end of the pod.
	KillFailed ResultKind = "KillFailed"
	// PodStopped: no container of the pod runs any more.
	PodStopped ResultKind = "PodStopped"
	// PodReleased: cgroups and volumes of the pod are gone too.
	PodReleased ResultKind = "PodReleased"
	// ReclaimEnded: a node-level reclaim has ended, well or with an error.
	ReclaimEnded ResultKind = "ReclaimEnded"
)
