package eviction

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// apply carries out a decision. Everything that takes time is begun here and goes on beside the loop.
func (m *Manager) apply(ctx context.Context, s *snapshot.Snapshot, d *policy.Decision) {
	m.report.starved(ctx, s, d)
	for i := range d.Reclaims {
		m.reclaim(ctx, d.Reclaims[i])
	}
	for _, victims := range [][]policy.Victim{d.LocalStorage, d.Victims} {
		for i := range victims {
			m.evict(ctx, victims[i])
		}
	}
}

// evict begins one eviction.
func (m *Manager) evict(ctx context.Context, v policy.Victim) {
	m.ledger.begin(&v, m.config.Clock.Now())
	m.report.evicting(ctx, &v)
	reacted(&v, m.config.Clock.Now())
	m.work.Go(func() {
		grace := v.GraceSeconds
		err := m.config.Kill(ctx, v.Pod.Object, true, &grace, evictedStatus(&v))
		m.ledger.ended(v.Pod.UID, err, m.config.Clock.Now())
		m.report.evicted(ctx, &v, err)
		m.Wake()
	})
}

// evictedStatus amends the status of an evicted pod. It may be called more than once and for different statuses.
func evictedStatus(v *policy.Victim) func(*v1.PodStatus) {
	pod, message := v.Pod.Object, v.Message
	return func(status *v1.PodStatus) {
		status.Phase = v1.PodFailed
		status.Reason = policy.ReasonEvicted
		status.Message = message
		podutil.UpdatePodCondition(status, &v1.PodCondition{
			Type:               v1.DisruptionTarget,
			Status:             v1.ConditionTrue,
			Reason:             v1.PodReasonTerminationByKubelet,
			Message:            message,
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.DisruptionTarget),
		})
	}
}

// publish makes the conditions visible and tells when one has become True, and when what kept pods out is over.
func (m *Manager) publish(ctx context.Context, d *policy.Decision) {
	before := *m.conditions.Load()
	if slices.EqualFunc(before, d.Conditions[:], policy.Condition.Equal) {
		return
	}
	now := slices.Clone(d.Conditions[:])
	m.conditions.Store(&now)
	began, relieved := false, false
	for i := range now {
		was := conditionIn(before, now[i].Type)
		if now[i].True != was.True {
			klog.FromContext(ctx).Info("Eviction manager: node condition changed", "condition", now[i].Type, "status", now[i].True)
		}
		began = began || (now[i].True && !was.True)
		relieved = relieved || (was.True && !now[i].True) || (was.HardMet && !now[i].HardMet) || (was.Restored && !now[i].Restored)
	}
	if began && m.config.OnConditionChange != nil {
		m.config.OnConditionChange()
	}
	if relieved && m.config.OnRelief != nil {
		m.config.OnRelief()
	}
}

// conditionIn is the condition of that type, one that is False when it is not among them.
func conditionIn(conditions []policy.Condition, t v1.NodeConditionType) policy.Condition {
	for i := range conditions {
		if conditions[i].Type == t {
			return conditions[i]
		}
	}
	return policy.Condition{Type: t}
}

func isTrue(conditions []policy.Condition, t v1.NodeConditionType) bool {
	return conditionIn(conditions, t).True
}

// EvictionIsTold tells from the status that the API server has of a pod whether it was evicted and says how its containers ended.
// It is Failed from the beginning of its eviction on, while they are still being stopped: what is left of them must not be removed
// before, or their exit codes are lost.
func EvictionIsTold(status *v1.PodStatus) bool {
	running := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return status.Phase == v1.PodFailed && status.Reason == policy.ReasonEvicted && !slices.ContainsFunc(status.ContainerStatuses, running) &&
		!slices.ContainsFunc(status.InitContainerStatuses, running) && !slices.ContainsFunc(status.EphemeralContainerStatuses, running)
}
