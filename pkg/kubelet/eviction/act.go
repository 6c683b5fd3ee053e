package eviction

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
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

// evict begins one eviction. It is reported once the pod workers have accepted the request.
func (m *Manager) evict(ctx context.Context, v policy.Victim) {
	m.ledger.begin(&v, m.config.Clock.Now())
	m.work.Go(func() {
		answer, ended := m.config.Kill(ctx, killRequest(&v))
		if answer == podkill.Refused {
			m.ledger.refused(v.Pod.UID)
			return
		}
		m.ledger.accepted(v.Pod.UID, answer)
		reacted(&v, m.config.Clock.Now())
		m.report.evicting(ctx, &v, answer)
		ending := <-ended
		m.report.ended(ctx, &v, ending, m.ledger.ended(v.Pod.UID, ending, m.config.Clock.Now()))
		m.Wake()
	})
}

// killRequest asks the pod workers to evict the victim.
func killRequest(v *policy.Victim) podkill.Request {
	grace := v.GraceSeconds
	return podkill.Request{Pod: v.Pod.Object, Evict: true, GracePeriodSeconds: &grace, Disruption: &podkill.Disruption{
		Phase: v1.PodFailed, Reason: policy.ReasonEvicted, Message: v.Message,
		Conditions: []v1.PodCondition{podkill.Target(v.Pod.Object, v.Message)},
	}}
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
