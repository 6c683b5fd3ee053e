package eviction

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// act carries out a decision. Everything that takes time is begun here and goes on beside the loop.
func (m *Manager) act(ctx context.Context, d *policy.Decision) {
	for i := range d.Reclaims {
		m.reclaim(ctx, d.Number, d.Reclaims[i])
	}
	for i := range d.Victims {
		m.evict(ctx, d.Number, &d.Victims[i])
	}
}

// evict begins one eviction. A pod that is gone since the snapshot was taken gives back what it used without being
// evicted: no request is made and no entry of the ledger; one from an earlier request goes on.
func (m *Manager) evict(ctx context.Context, decision uint64, v *policy.Victim) {
	pod, ok := m.config.PodByUID(v.Pod.UID)
	if !ok {
		m.sinks.result(ctx, &Result{Decision: decision, At: m.clock.now(), Kind: PodGone, Victim: v})
		return
	}
	m.ledger.begin(v, decision, m.clock.now())
	m.work.Go(func() {
		answer, ended := m.config.Kill(ctx, killRequest(pod, v))
		now := m.clock.now()
		if answer == podkill.Refused {
			m.ledger.refused(v.Pod.UID)
			m.sinks.result(ctx, &Result{Decision: decision, At: now, Kind: KillRefused, Victim: v, Answer: answer})
			return
		}
		m.ledger.accepted(v.Pod.UID, answer)
		m.sinks.result(ctx, &Result{Decision: decision, At: now, Kind: KillAccepted, Victim: v, Answer: answer})
		ending := <-ended
		now = m.clock.now()
		evicted := m.ledger.ended(v.Pod.UID, ending, now)
		m.sinks.result(ctx, &Result{
			Decision: decision, At: now, Kind: resultOf(ending), Victim: v, Evicted: evicted, Err: ending.Err,
		})
		m.Wake()
	})
}

// resultOf is what an ending means for the victim.
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

// killRequest asks the pod workers to evict the victim.
func killRequest(pod *v1.Pod, v *policy.Victim) podkill.Request {
	grace := v.GraceSeconds
	return podkill.Request{Pod: pod, Evict: true, GracePeriodSeconds: &grace, Disruption: &podkill.Disruption{
		Phase: v1.PodFailed, Reason: policy.ReasonEvicted, Message: v.Message,
		Conditions: []v1.PodCondition{podkill.DisruptionTarget(pod, v.Message)},
	}}
}

// publish makes the conditions of a round visible to readers.
func (m *Manager) publish(r *Round) {
	r.Before = *m.conditions.Load()
	if !slices.EqualFunc(r.Before, r.Decision.Conditions[:], policy.Condition.Equal) {
		m.conditions.Store(new(slices.Clone(r.Decision.Conditions[:])))
	}
}

// EvictedAndStopped tells from the status that the API server has of a pod whether it was evicted and says how its
// containers ended. It is Failed from the beginning of its eviction on, while they are still being stopped: what is
// left of them must not be removed before, or their exit codes are lost.
func EvictedAndStopped(status *v1.PodStatus) bool {
	running := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return status.Phase == v1.PodFailed && status.Reason == policy.ReasonEvicted &&
		!slices.ContainsFunc(status.ContainerStatuses, running) &&
		!slices.ContainsFunc(status.InitContainerStatuses, running) &&
		!slices.ContainsFunc(status.EphemeralContainerStatuses, running)
}
