package admission

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Heirs are pods that wait until others have stopped for them. Room implements it.
type Heirs interface {
	HoldsForVictims(uid types.UID) bool
}

// Leavers are the pods that are being stopped for them.
type Leavers interface {
	Leaving(uid types.UID) bool
}

// handover asks the predicates for the time before a room changes hands and for the time after.
type handover struct {
	predicates lifecycle.PodAdmitHandler
	heirs      Heirs
	leavers    Leavers
}

// NewHandover returns a handler that asks the predicates. While room is being made for a critical pod, what its victims have and
// what it will have is the same room: to count both would reject pods for which there is room all the time. So an ordinary pod is
// asked about twice, beside those who are leaving without those they leave for, and the other way round; it has to fit both times.
// Critical pods are asked about beside all of them.
func NewHandover(predicates lifecycle.PodAdmitHandler, heirs Heirs, leavers Leavers) lifecycle.PodAdmitHandler {
	return handover{predicates, heirs, leavers}
}

// Admit implements lifecycle.PodAdmitHandler.
func (h handover) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	isHeir := func(p *v1.Pod) bool { return h.heirs.HoldsForVictims(p.UID) }
	if kubetypes.IsCriticalPod(attrs.Pod) || !slices.ContainsFunc(attrs.OtherPods, isHeir) {
		return h.predicates.Admit(attrs)
	}
	before := h.without(attrs, isHeir)
	if !before.Admit {
		return before
	}
	return h.without(attrs, func(p *v1.Pod) bool { return h.leavers.Leaving(p.UID) })
}

func (h handover) without(attrs *lifecycle.PodAdmitAttributes, left func(*v1.Pod) bool) lifecycle.PodAdmitResult {
	others := *attrs
	others.OtherPods = slices.DeleteFunc(slices.Clone(attrs.OtherPods), left)
	return h.predicates.Admit(&others)
}
