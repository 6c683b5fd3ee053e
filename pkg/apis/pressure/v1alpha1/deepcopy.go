package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy is a copy that shares nothing with the original.
func (c *NodePressureConfiguration) DeepCopy() *NodePressureConfiguration {
	if c == nil {
		return nil
	}
	out := *c
	out.MonitoringPeriod = copyOf(c.MonitoringPeriod)
	out.Memory.WorstGrowthPerSecond = copyOfQuantity(c.Memory.WorstGrowthPerSecond)
	out.Eviction.KillTime = copyOf(c.Eviction.KillTime)
	out.Eviction.Settling = copyOf(c.Eviction.Settling)
	out.Eviction.Patience = copyOf(c.Eviction.Patience)
	out.Admission.WaitForRoom = copyOf(c.Admission.WaitForRoom)
	out.DryRun = slices.Clone(c.DryRun)
	out.Protection.Namespaces = slices.Clone(c.Protection.Namespaces)
	out.Protection.MaxProtectedPods = copyOf(c.Protection.MaxProtectedPods)
	out.Protection.MaxProtectedMemory = copyOfQuantity(c.Protection.MaxProtectedMemory)
	out.Protection.MaxDelay = copyOf(c.Protection.MaxDelay)
	return &out
}

// DeepCopyObject makes the configuration a runtime.Object.
func (c *NodePressureConfiguration) DeepCopyObject() runtime.Object { return c.DeepCopy() }

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func copyOfQuantity(q *resource.Quantity) *resource.Quantity {
	if q == nil {
		return nil
	}
	return new(q.DeepCopy())
}
