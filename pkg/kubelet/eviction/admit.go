package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// Judge answers a pod that wants to enter: admitted, rejected, or better kept waiting; the message says why. Whoever is
// told to wait should ask again each second or so: being asked makes the manager look at the node more often, and
// OnRelief tells when it pays to ask at once.
func (m *Manager) Judge(pod *v1.Pod) (policy.Verdict, string) {
	conditions := *m.conditions.Load()
	verdict, message := policy.Admit(conditions, policy.Applicant{
		Pod:                 pod,
		Running:             m.config.Readmitted != nil && m.config.Readmitted(pod),
		ComparisonOperators: m.config.Features.TaintTolerationComparisonOperators,
	})
	switch verdict {
	case policy.Admitted:
		m.checkWishes(pod)
	case policy.Waits:
		signal(m.asked)
	case policy.Rejected:
	}
	return verdict, message
}

// Admit is Judge for callers that know no waiting: such pods are rejected. It implements lifecycle.PodAdmitHandler.
func (m *Manager) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	verdict, message := m.Judge(attrs.Pod)
	if verdict == policy.Admitted {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: policy.ReasonEvicted, Message: message}
}

// Conditions is what was decided last, one entry per pressure condition; empty before the first look. The caller must
// not modify it.
func (m *Manager) Conditions() []policy.Condition { return *m.conditions.Load() }

// IsUnderMemoryPressure tells whether the node has the condition MemoryPressure.
func (m *Manager) IsUnderMemoryPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodeMemoryPressure)
}

// IsUnderDiskPressure tells whether the node has the condition DiskPressure.
func (m *Manager) IsUnderDiskPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodeDiskPressure)
}

// IsUnderPIDPressure tells whether the node has the condition PIDPressure.
func (m *Manager) IsUnderPIDPressure() bool {
	return isTrue(*m.conditions.Load(), v1.NodePIDPressure)
}

// Blind lists the signals of a pressure condition that have been unknown for a while, and since when the first of them
// has been, by the wall clock; none while all are known. The condition stays what it was: what is unknown is never a
// reason to change it.
func (m *Manager) Blind(t v1.NodeConditionType) (signals []string, since time.Time) {
	now := m.clock.now()
	for _, c := range *m.conditions.Load() {
		if c.Type != t || !isUnknown(&c, now) {
			continue
		}
		for _, sig := range c.Blind {
			signals = append(signals, sig.String())
		}
		// A condition with unknown signals comes from a round.
		return signals, m.last.Load().Decision.WallTimeOf(c.BlindSince)
	}
	return nil, time.Time{}
}
