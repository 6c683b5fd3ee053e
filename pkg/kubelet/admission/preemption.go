package admission

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Attempts reports the state of preemption for a pod.
type Attempts interface {
	// InProgress is true while an attempt is planned or in progress.
	InProgress(uid types.UID) bool
	// Failed is true when victims of an earlier attempt did not stop.
	Failed(uid types.UID) bool
}

// earlyPreemption runs the predicates before resources are allocated.
type earlyPreemption struct {
	predicates lifecycle.PodAdmitHandler
	attempts   Attempts
}

// NewEarlyPreemption returns a handler that starts preemption for critical pods before CPUs and devices are allocated
// to them. In stock the resource managers reject a critical pod that needs exclusive CPUs before preemption could help.
// The handler refuses the pod while an attempt is in progress, and after one has failed. Any other result of the
// predicates is ignored here and takes effect at their own position in the chain, because the check of devices depends
// on what is allocated to the pod.
func NewEarlyPreemption(predicates lifecycle.PodAdmitHandler, attempts Attempts) lifecycle.PodAdmitHandler {
	return earlyPreemption{predicates, attempts}
}

// Admit implements lifecycle.PodAdmitHandler.
func (e earlyPreemption) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if !kubetypes.IsCriticalPod(attrs.Pod) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	result := e.predicates.Admit(attrs)
	if e.attempts.InProgress(attrs.Pod.UID) || e.attempts.Failed(attrs.Pod.UID) {
		return result
	}
	return lifecycle.PodAdmitResult{Admit: true}
}

// WaitingPreemptors are critical pods that wait until their victims have stopped. WaitingPods implements it.
type WaitingPreemptors interface {
	IsWaitingForVictims(uid types.UID) bool
}

// PreemptionVictims are the pods that are being stopped for waiting preemptors.
type PreemptionVictims interface {
	IsVictim(uid types.UID) bool
}

// beforeAndAfter runs the predicates for the time before a preemption ends and for the time after.
type beforeAndAfter struct {
	predicates lifecycle.PodAdmitHandler
	preemptors WaitingPreemptors
	victims    PreemptionVictims
}

// NewBeforeAndAfterPreemption returns a handler that runs the predicates. A waiting preemptor and its victims request
// the same resources: counting both would reject pods that fit before and after the preemption. So the handler runs the
// predicates twice for a pod that is not critical, first with the victims and without the preemptors, then with the
// preemptors and without the victims; the pod must fit both times. For a critical pod all of them count.
func NewBeforeAndAfterPreemption(
	predicates lifecycle.PodAdmitHandler, preemptors WaitingPreemptors, victims PreemptionVictims,
) lifecycle.PodAdmitHandler {
	return beforeAndAfter{predicates, preemptors, victims}
}

// Admit implements lifecycle.PodAdmitHandler.
func (h beforeAndAfter) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	isPreemptor := func(p *v1.Pod) bool { return h.preemptors.IsWaitingForVictims(p.UID) }
	if kubetypes.IsCriticalPod(attrs.Pod) || !slices.ContainsFunc(attrs.OtherPods, isPreemptor) {
		return h.predicates.Admit(attrs)
	}
	before := h.admitWithout(attrs, isPreemptor)
	if !before.Admit {
		return before
	}
	return h.admitWithout(attrs, func(p *v1.Pod) bool { return h.victims.IsVictim(p.UID) })
}

// admitWithout runs the predicates without the other pods for which excluded is true.
func (h beforeAndAfter) admitWithout(
	attrs *lifecycle.PodAdmitAttributes, excluded func(*v1.Pod) bool,
) lifecycle.PodAdmitResult {
	others := *attrs
	others.OtherPods = slices.DeleteFunc(slices.Clone(attrs.OtherPods), excluded)
	return h.predicates.Admit(&others)
}
