package podstatus

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// setPodResources reports what is allocated to the pod as a whole and what it really has (KEP-5419).
func (g *generation) setPodResources(out *v1.PodStatus) {
	if !g.Features.InPlacePodLevelResourcesVerticalScaling {
		return
	}
	out.AllocatedResources = g.podRequests()
	if g.Pod.Status.Phase == v1.PodRunning {
		out.Resources = g.enforcedPodResources()
	} else {
		out.Resources = g.allocatedPodResources()
	}
}

func (g *generation) allocatedPodResources() *v1.ResourceRequirements {
	resources := g.podLevelResources()
	resources.Requests = g.podRequests()
	resources.Limits = resourcehelper.PodLimits(g.Pod, g.resourceOptions())
	return resources
}

// enforcedPodResources reads the pod's cgroup. A memory request is not kept in any cgroup: it is what is allocated
// until something else has been reported.
func (g *generation) enforcedPodResources() *v1.ResourceRequirements {
	resources := g.podLevelResources()
	requests := reported{into: nonNil(resources.Requests)}
	limits := reported{into: nonNil(resources.Limits)}
	if old := g.Previous.Resources; old != nil && g.Previous.Phase == v1.PodRunning {
		requests.before, limits.before = old.Requests, old.Limits
	}
	var enforced CgroupResources
	if g.Lookups.PodCgroup != nil {
		enforced = g.Lookups.PodCgroup()
	}
	requests.set(v1.ResourceCPU, enforced.CPURequest, leastCPURequestMilli)
	if _, ok := requests.into[v1.ResourceMemory]; !ok {
		if q, ok := g.podRequests()[v1.ResourceMemory]; ok {
			requests.into[v1.ResourceMemory] = q
		}
	}
	requests.keep(v1.ResourceMemory)
	limits.set(v1.ResourceCPU, enforced.CPULimit, leastCPULimitMilli)
	limits.set(v1.ResourceMemory, enforced.MemoryLimit, noLeast)
	resources.Requests, resources.Limits = requests.into, limits.into
	return resources
}

// podLevelResources is a copy of the resources in the pod's specification; empty when there are none.
func (g *generation) podLevelResources() *v1.ResourceRequirements {
	if g.Pod.Spec.Resources == nil {
		return &v1.ResourceRequirements{}
	}
	return g.Pod.Spec.Resources.DeepCopy()
}

func (g *generation) podRequests() v1.ResourceList {
	return resourcehelper.PodRequests(g.Pod, g.resourceOptions())
}

func (g *generation) resourceOptions() resourcehelper.PodResourcesOptions {
	return resourcehelper.PodResourcesOptions{SkipPodLevelResources: !g.Features.PodLevelResources}
}

func nonNil(list v1.ResourceList) v1.ResourceList {
	if list == nil {
		return v1.ResourceList{}
	}
	return list
}
