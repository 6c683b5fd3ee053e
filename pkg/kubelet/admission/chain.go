package admission

import "k8s.io/kubernetes/pkg/kubelet/lifecycle"

// Chain names the admit handlers. A nil handler is left out.
type Chain struct {
	Resize           lifecycle.PodAdmitHandler
	Pressure         lifecycle.PodAdmitHandler
	Sysctls          lifecycle.PodAdmitHandler
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
		// CPUs, memory and devices are allocated here, before the predicates, as in stock (stock-defects D38 says what is wrong
		// with that: a critical pod that needs exclusive CPUs is refused before preemption could make room).
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
