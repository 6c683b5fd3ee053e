package admission

import (
	"slices"

	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// Chain names the admit handlers. A nil handler is left out.
type Chain struct {
	Resize   lifecycle.PodAdmitHandler
	Pressure lifecycle.PodAdmitHandler
	Sysctls  lifecycle.PodAdmitHandler
	// EarlyPreemption is NewEarlyPreemption over Predicates.
	EarlyPreemption  lifecycle.PodAdmitHandler
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
		// A resize that can never succeed is refused before any other check.
		c.Resize,
		// Pressure is the cheapest check, and a refusal makes the rest unnecessary.
		c.Pressure,
		c.Sysctls,
		// Preemption for critical pods starts before anything is allocated to them.
		c.EarlyPreemption,
		// CPUs, memory and devices are allocated before the predicates, as in stock: the predicates check the allocation.
		c.Resources,
		// The scheduler's predicates, with preemption when a critical pod fails them.
		c.Predicates,
		c.AppArmor,
		c.PodFeatures,
		c.DeclaredFeatures,
		c.Shutdown,
	}
	return slices.DeleteFunc(ordered, func(h lifecycle.PodAdmitHandler) bool { return h == nil })
}
