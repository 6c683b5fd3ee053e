package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// AdmitOrWait decides whether a pod is admitted, rejected, or may wait; the message is the reason. Callers call it
// again about every second for a pod that waits: for as long as they do, the manager observes the node more often. A
// sink made by OnRelief reports when the answer may have changed. It is safe for concurrent use.
func (m *Manager) AdmitOrWait(pod *v1.Pod) (policy.Verdict, string) {
	conditions := *m.conditions.Load()
	verdict, message := policy.Admit(conditions, policy.AdmitAttributes{
		Pod:                 pod,
		Running:             m.config.Readmitted != nil && m.config.Readmitted(pod),
		ComparisonOperators: m.config.Features.TaintTolerationComparisonOperators,
	})
	switch verdict {
	case policy.Admitted:
		m.checkAnnotations(pod)
	case policy.Waits:
		signal(m.asked)
		m.ring()
	case policy.Rejected:
	}
	return verdict, message
}

// Admit implements lifecycle.PodAdmitHandler. It is AdmitOrWait for callers without support for waiting: pods that may
// wait are rejected.
func (m *Manager) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	verdict, message := m.AdmitOrWait(attrs.Pod)
	if verdict == policy.Admitted {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: policy.ReasonEvicted, Message: message}
}

// Conditions returns the pressure conditions of the last decision, in the order of policy.ConditionTypes; empty before
// the first. The caller must not modify them.
func (m *Manager) Conditions() []policy.Condition { return *m.conditions.Load() }

// IsUnderMemoryPressure reports whether the node condition MemoryPressure is True.
func (m *Manager) IsUnderMemoryPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodeMemoryPressure)
}

// IsUnderDiskPressure reports whether the node condition DiskPressure is True.
func (m *Manager) IsUnderDiskPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodeDiskPressure)
}

// IsUnderPIDPressure reports whether the node condition PIDPressure is True.
func (m *Manager) IsUnderPIDPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodePIDPressure)
}

// UnknownSignals returns the signals of a pressure condition that have been unknown for at least half a minute, and the
// wall time since when the first of them is unknown; none while all are known. An unknown signal does not change the
// condition.
func (m *Manager) UnknownSignals(t v1.NodeConditionType) (signals []string, since time.Time) {
	now := m.clock.now()
	for _, c := range *m.conditions.Load() {
		if c.Type != t || !isUnknown(&c, now) {
			continue
		}
		for _, sig := range c.UnknownSignals {
			signals = append(signals, sig.String())
		}
		// A condition with unknown signals comes from a round.
		return signals, m.last.Load().Decision.WallTimeOf(c.UnknownSince)
	}
	return nil, time.Time{}
}
