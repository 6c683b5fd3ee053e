package eviction

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Trigger is the cause of a round. Its values are labels of metrics.
type Trigger string

// The triggers.
const (
	// TriggerTimer: the monitoring period has passed, or the time that the last decision named.
	TriggerTimer Trigger = "timer"
	// TriggerEvent: a kill or a reclaim has ended, a pod was cleaned up, or another part of the agent requested a round.
	TriggerEvent Trigger = "event"
	// TriggerCounters: the memory counters show that a threshold was crossed.
	TriggerCounters Trigger = "counters"
	// TriggerKernel: the same, after a notification of the kernel.
	TriggerKernel Trigger = "kernel"
)

// Round is a decision with its input. All sinks share it: it must not be modified.
type Round struct {
	Trigger  Trigger
	Snapshot *snapshot.Snapshot
	// Rules and State are the other arguments of the decision: State is that before it, nil if no sink needs the round.
	Rules    *policy.Rules
	State    *policy.State
	Decision policy.Decision
	// StateReplaced: the state is not the one that the decision with the preceding number has left. Conditions of the Node
	// were taken over since, or memory is counted in another way.
	StateReplaced bool
	// MemoryRead: memory of the snapshot was read from the kernel in this round, and is not from stats.
	MemoryRead bool
	// AllPods: the snapshot has all pods, also those that no decision could be about.
	AllPods bool
	// Before are the node conditions of the previous round.
	Before []policy.Condition
	// Notices are what events and logs report about the round, in a fixed order.
	Notices []Notice
	// CountersErr is the error of reading the kernel's memory counters, which have failed since CountersErrSince; nil if
	// they can be read or are not used.
	CountersErr      error
	CountersErrSince time.Time
}

// ConditionBegan reports whether a node condition has become True.
func (r *Round) ConditionBegan() bool {
	return r.anyCondition(func(before, now *policy.Condition) bool { return now.True && !before.True })
}

// Relieved reports whether a reason to reject pods has ended: a node condition, a hard threshold that was met, or a
// restored condition that was unconfirmed.
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

// Result is what became of one part of a decision, a kill or a node-level reclaim. All sinks share it: it must not be
// modified. The results of a victim come in the order of the kinds, each at most once. If a later decision hastens the
// victim, the request of that decision has results of its own.
type Result struct {
	// Decision is the number of the decision.
	Decision uint64
	At       time.Time
	Kind     ResultKind
	// Victim is nil for a reclaim.
	Victim *policy.Victim
	// Answer is the pod workers' answer to the request, for KillAccepted and KillRefused. If the API server has accepted
	// it, it is Begun, or Unchanged if the pod was being evicted already.
	Answer podkill.Answer
	// Evicted is true for one PodStopped of a pod whose termination was begun by an eviction.
	Evicted bool
	// Released is an upper bound of what the end of the pod has released, for PodReleased.
	Released snapshot.Release
	// Reclaim is the request, Reclaimed its result, for ReclaimEnded.
	Reclaim   *policy.ReclaimRequest
	Reclaimed snapshot.Reclaimed
	// Fence is what is known of the fence of the pod, for PodFenced and FenceEnded.
	Fence *FenceReport
	// Err is the error of a kill or a reclaim, or why a kill is blocked, withdrawn or without effect.
	Err error
}

// ResultKind is the kind of a result.
type ResultKind string

// The kinds of results.
const (
	// KillBlocked: the API server refuses the eviction for the time being, for the reason Err; the attempt goes on.
	KillBlocked ResultKind = "KillBlocked"
	// KillWithdrawn: the API server has not accepted the eviction, and is not asked for it any more.
	KillWithdrawn ResultKind = "KillWithdrawn"
	// PodGone: the pod had ended, or was being deleted, before it was to be evicted.
	PodGone ResultKind = "PodGone"
	// KillRefused: the pod workers did not accept the request, since the agent is stopping.
	KillRefused ResultKind = "KillRefused"
	// KillAccepted: the killer, which is the pod workers or the API server, has accepted the request.
	KillAccepted ResultKind = "KillAccepted"
	// PodFenced: a fence limits what the pod may still use, or could not be set, for the reason Err.
	PodFenced ResultKind = "PodFenced"
	// FenceEnded: the pod has ended, or the agent stops, and its limit is restored, or is not, for the reason Err. It
	// comes after PodFenced, and before or after the end of the kill.
	FenceEnded ResultKind = "FenceEnded"
	// PodOverdue: the pod has not stopped within its grace period and the time that a kill may take. It continues to
	// terminate.
	PodOverdue ResultKind = "PodOverdue"
	// KillFailed: the wait for the pod ended with an error before it had stopped. It may still be terminating. If the
	// killer is the API server, it has not accepted the eviction, and the pod goes on running.
	KillFailed ResultKind = "KillFailed"
	// PodStopped: no container of the pod runs.
	PodStopped ResultKind = "PodStopped"
	// PodReleased: cgroups and volumes of the pod are removed too.
	PodReleased ResultKind = "PodReleased"
	// ReclaimEnded: a node-level reclaim has ended, with or without an error.
	ReclaimEnded ResultKind = "ReclaimEnded"
)
