package podstatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The minimum CPU settings of a cgroup, in thousandths of a CPU. If both the allocated and the enforced quantity are at
// or below the minimum, the allocated one is reported, so that the two compare as equal.
const (
	minCPURequestMilli = 2
	minCPULimitMilli   = 10
	noMinimum          = -1
)

// containerResources returns the resources of a container (KEP-1287): the ones that the runtime enforces; if it does
// not report them, those of the previous status of the same running container; else the allocated ones. Only allocated
// resources are reported, and a container that does not run has the allocated quantities.
func containerResources(
	spec *v1.Container, s *v1.ContainerStatus, record *kubecontainer.Status, previous *v1.ContainerStatus,
) *v1.ResourceRequirements {
	resources := spec.Resources.DeepCopy()
	if record.State != kubecontainer.ContainerStateRunning {
		return resources
	}
	var enforced kubecontainer.ContainerResources
	if record.Resources != nil {
		enforced = *record.Resources
	}
	before := previousResources(s, previous)
	if resources.Limits != nil {
		limits := reportedResources{list: resources.Limits, previous: before.Limits}
		limits.set(v1.ResourceCPU, enforced.CPULimit, minCPULimitMilli)
		limits.set(v1.ResourceMemory, enforced.MemoryLimit, noMinimum)
	}
	if resources.Requests != nil {
		requests := reportedResources{list: resources.Requests, previous: before.Requests}
		requests.set(v1.ResourceCPU, enforced.CPURequest, minCPURequestMilli)
		requests.set(v1.ResourceMemory, enforced.MemoryRequest, noMinimum)
	}
	return resources
}

// previousResources returns the resources of the previous status, if it was that of the same container while it ran.
func previousResources(s, previous *v1.ContainerStatus) v1.ResourceRequirements {
	if previous == nil || previous.Resources == nil || previous.State.Running == nil ||
		previous.ContainerID != s.ContainerID {
		return v1.ResourceRequirements{}
	}
	return *previous.Resources
}

// reportedResources fills a list of resources that has the allocated quantities at the beginning.
type reportedResources struct {
	list, previous v1.ResourceList
}

// set sets the enforced quantity, or the previous one if that is nil. least is the minimum that can be enforced, in
// thousandths.
func (r reportedResources) set(name v1.ResourceName, enforced *resource.Quantity, least int64) {
	if enforced == nil {
		r.setPrevious(name)
		return
	}
	allocated := r.list[name]
	if enforced.MilliValue() > least || allocated.MilliValue() > least {
		r.list[name] = enforced.DeepCopy()
	}
}

func (r reportedResources) setPrevious(name v1.ResourceName) {
	if q, ok := r.previous[name]; ok {
		r.list[name] = q.DeepCopy()
	}
}
