package admission

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Chain names the admit handlers. A nil handler is left out.
type Chain struct {
	Resize   lifecycle.PodAdmitHandler
	Pressure lifecycle.PodAdmitHandler
	Sysctls  lifecycle.PodAdmitHandler
	// RoomFirst is NewRoomFirst over Predicates.
	RoomFirst        lifecycle.PodAdmitHandler
	Resources        lifecycle.PodAdmitHandler
	Predicates       lifecycle.PodAdmitHandler
	AppArmor         lifecycle.PodAdmitHandler
	PodFeatures      lifecycle.PodAdmitHandler
	DeclaredFeatures lifecycle.PodAdmitHandler
	Shutdown         lifecycle.PodAdmitHandler
}

// Handlers returns the handlers in stock's order; the first refusal ends the chain.
func (c Chain) Handlers() lifecycle.PodAdmitHandlers {
	ordered := lifecycle.PodAdmitHandlers{
		// A resize that can never be is refused before anything else is asked.
		c.Resize,
		// Under pressure nothing more is looked at: it is the cheapest answer and the one that matters most.
		c.Pressure,
		c.Sysctls,
		// For critical pods room is made before anything is allocated.
		c.RoomFirst,
		// CPUs, memory and devices are allocated here, before the predicates, as in stock: these look at what was allocated.
		c.Resources,
		// The scheduler's predicates, with preemption when a critical pod fails them.
		c.Predicates,
		c.AppArmor,
		c.PodFeatures,
		c.DeclaredFeatures,
		c.Shutdown,
	}
	handlers := ordered[:0]
	for _, h := range ordered {
		if h != nil {
			handlers = append(handlers, h)
		}
	}
	return handlers
}

// roomFirst asks the predicates ahead of their turn.
type roomFirst struct {
	predicates lifecycle.PodAdmitHandler
	attempts   Attempts
}

// Attempts says how it goes with making room for a pod.
type Attempts interface {
	// Making: an attempt is planned or under way. Failed: victims of an earlier attempt have not stopped.
	Making(uid types.UID) bool
	Failed(uid types.UID) bool
}

// NewRoomFirst returns a handler that has room made for critical pods before CPUs and devices are allocated to them. In stock
// a critical pod that needs exclusive CPUs is refused by the resource managers before preemption could help. While room is being
// made the pod is refused for now, and for good when that has failed. Whatever else the predicates say is left to their own turn,
// since they judge devices by what was allocated.
func NewRoomFirst(predicates lifecycle.PodAdmitHandler, attempts Attempts) lifecycle.PodAdmitHandler {
	return roomFirst{predicates, attempts}
}

// Admit implements lifecycle.PodAdmitHandler.
func (r roomFirst) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if !kubetypes.IsCriticalPod(attrs.Pod) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	answer := r.predicates.Admit(attrs)
	if r.attempts.Making(attrs.Pod.UID) || r.attempts.Failed(attrs.Pod.UID) {
		return answer
	}
	return lifecycle.PodAdmitResult{Admit: true}
}
