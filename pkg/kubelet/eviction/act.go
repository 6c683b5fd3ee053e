package eviction

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// carryOut delivers a round to the sinks, with the state before it, and carries out its decision. Where that may set
// fences, sinks wait for them.
func (m *Manager) carryOut(ctx context.Context, r *Round, before *policy.State) {
	var hold *hold
	if len(r.Decision.Victims) > 0 || len(m.waiting) > 0 {
		hold = m.sinks.hold()
	}
	m.sinks.round(ctx, r, before)
	m.fenceLate(r.Snapshot, &r.Decision)
	m.act(ctx, &r.Decision)
	if hold != nil {
		m.releaseSinks(ctx, hold)
	}
}

// act begins what was decided: kills and reclaims, which run in goroutines of their own.
func (m *Manager) act(ctx context.Context, d *policy.Decision) {
	for i := range d.Reclaims {
		m.reclaim(ctx, d.Number, d.Reclaims[i])
	}
	for _, uid := range d.Withdrawn {
		m.attempts.withdraw(uid)
	}
	for i := range d.Victims {
		m.evict(ctx, d.Number, &d.Victims[i])
	}
}

// evict begins one eviction by the pod workers, or by the API server if the victim's killer is another one. An attempt
// of the API server that is under way for the pod is withdrawn: at most one killer evicts a pod. For a pod that has
// ended since the snapshot it makes no request and no entry in the ledger; an entry of an earlier request stays.
func (m *Manager) evict(ctx context.Context, decision uint64, v *policy.Victim) {
	pod, ok := m.config.PodByUID(v.Pod.UID)
	if !ok {
		m.sinks.result(ctx, &Result{Decision: decision, At: m.clock.now(), Kind: PodGone, Victim: v})
		return
	}
	m.attempts.withdraw(v.Pod.UID)
	if v.Killer != snapshot.PodWorker && m.config.APIKiller != nil {
		m.evictByAPI(ctx, decision, pod, v)
		return
	}
	m.ledger.begin(v, decision, m.clock.now())
	fencing := m.newFencing(decision, pod, v)
	m.work.Go(func() {
		answer, ended := m.config.Kill(ctx, killRequest(pod, v, fencing))
		now := m.clock.now()
		if answer == podkill.Refused {
			fencing.answered(answer)
			m.ledger.refused(v.Pod.UID)
			m.sinks.result(ctx, &Result{Decision: decision, At: now, Kind: KillRefused, Victim: v, Answer: answer})
			return
		}
		m.ledger.accepted(v.Pod.UID, answer)
		fencing.answered(answer)
		m.sinks.result(ctx, &Result{Decision: decision, At: now, Kind: KillAccepted, Victim: v, Answer: answer})
		fencing.follow(ctx)
		ending := <-ended
		fencing.ended(ending)
		now = m.clock.now()
		evicted := m.ledger.ended(v.Pod.UID, ending, now)
		m.sinks.result(ctx, &Result{
			Decision: decision, At: now, Kind: resultOf(ending), Victim: v, Evicted: evicted, Err: ending.Err,
		})
		m.ledger.reported(v.Pod.UID)
		m.Wake()
	})
}

// resultOf returns the kind of result for the end of a kill request.
func resultOf(e podkill.Ending) ResultKind {
	switch e.Outcome {
	case podkill.Stopped:
		return PodStopped
	case podkill.Overdue:
		return PodOverdue
	case podkill.Failed:
	}
	return KillFailed
}

// killRequest returns the request to evict the victim; fencing is nil for a victim without a fence.
func killRequest(pod *v1.Pod, v *policy.Victim, fencing *fencing) podkill.Request {
	grace := v.GraceSeconds
	d := &podkill.Disruption{
		Phase: v1.PodFailed, Reason: policy.ReasonEvicted, Message: v.Message,
		Conditions: []v1.PodCondition{podkill.DisruptionTarget(pod, v.Message)},
	}
	if fencing != nil {
		d.Detail = fencing.detail
	}
	return podkill.Request{Pod: pod, Evict: true, GracePeriodSeconds: &grace, Disruption: d}
}

// publish sets the node conditions that readers of other goroutines get.
func (m *Manager) publish(r *Round) {
	r.Before = *m.conditions.Load()
	if !slices.EqualFunc(r.Before, r.Decision.Conditions[:], policy.Condition.Equal) {
		m.conditions.Store(new(slices.Clone(r.Decision.Conditions[:])))
	}
}

// EvictedAndStopped reports, by the status of a pod at the API server, whether the pod was evicted and the status has
// the exit codes of all containers. The pod is Failed from the beginning of its eviction, while containers still run:
// if they were removed before, their exit codes would be lost.
func EvictedAndStopped(status *v1.PodStatus) bool {
	running := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return status.Phase == v1.PodFailed && status.Reason == policy.ReasonEvicted &&
		!slices.ContainsFunc(status.ContainerStatuses, running) &&
		!slices.ContainsFunc(status.InitContainerStatuses, running) &&
		!slices.ContainsFunc(status.EphemeralContainerStatuses, running)
}
