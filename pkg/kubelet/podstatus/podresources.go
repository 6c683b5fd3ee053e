package podstatus

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// setPodResources sets the pod-level resources: the allocated and the enforced ones (KEP-5419).
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

// enforcedPodResources returns the settings of the pod's cgroup. No cgroup has a setting for a memory request, so the
// allocated one is reported unless there is another one in the previous status.
func (g *generation) enforcedPodResources() *v1.ResourceRequirements {
	resources := g.podLevelResources()
	requests := reportedResources{list: nonNil(resources.Requests)}
	limits := reportedResources{list: nonNil(resources.Limits)}
	if old := g.Previous.Resources; old != nil && g.Previous.Phase == v1.PodRunning {
		requests.previous, limits.previous = old.Requests, old.Limits
	}
	var enforced CgroupResources
	if g.Lookups.PodCgroup != nil {
		enforced = g.Lookups.PodCgroup()
	}
	requests.set(v1.ResourceCPU, enforced.CPURequest, minCPURequestMilli)
	if _, ok := requests.list[v1.ResourceMemory]; !ok {
		if q, ok := g.podRequests()[v1.ResourceMemory]; ok {
			requests.list[v1.ResourceMemory] = q
		}
	}
	requests.setPrevious(v1.ResourceMemory)
	limits.set(v1.ResourceCPU, enforced.CPULimit, minCPULimitMilli)
	limits.set(v1.ResourceMemory, enforced.MemoryLimit, noMinimum)
	resources.Requests, resources.Limits = requests.list, limits.list
	return resources
}

// podLevelResources returns a copy of the resources in the pod's specification, empty if it has none.
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
