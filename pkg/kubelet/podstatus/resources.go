package podstatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The smallest CPU settings that a cgroup can express, in thousandths of a CPU. When both what is allocated and what is
// enforced are at or below them, the allocated value is reported, so that the two compare as equal.
const (
	leastCPURequestMilli = 2
	leastCPULimitMilli   = 10
	noLeast              = -1
)

// containerResources is what a container really has (KEP-1287): what the runtime enforces, where it says so; else what
// was reported for the same running container before; else what is allocated. Only what is allocated at all is
// reported, and a container that does not run has what is allocated.
func containerResources(spec *v1.Container, s *v1.ContainerStatus, record *kubecontainer.Status,
	previous *v1.ContainerStatus,
) *v1.ResourceRequirements {
	resources := spec.Resources.DeepCopy()
	if record.State != kubecontainer.ContainerStateRunning {
		return resources
	}
	var enforced kubecontainer.ContainerResources
	if record.Resources != nil {
		enforced = *record.Resources
	}
	before := reportedBefore(s, previous)
	if resources.Limits != nil {
		limits := reported{into: resources.Limits, before: before.Limits}
		limits.set(v1.ResourceCPU, enforced.CPULimit, leastCPULimitMilli)
		limits.set(v1.ResourceMemory, enforced.MemoryLimit, noLeast)
	}
	if resources.Requests != nil {
		requests := reported{into: resources.Requests, before: before.Requests}
		requests.set(v1.ResourceCPU, enforced.CPURequest, leastCPURequestMilli)
		requests.set(v1.ResourceMemory, enforced.MemoryRequest, noLeast)
	}
	return resources
}

// reportedBefore are the resources of the previous status, if it was about the same container while it ran.
func reportedBefore(s, previous *v1.ContainerStatus) v1.ResourceRequirements {
	if previous == nil || previous.Resources == nil || previous.State.Running == nil ||
		previous.ContainerID != s.ContainerID {
		return v1.ResourceRequirements{}
	}
	return *previous.Resources
}

// reported fills a list of resources that starts as what is allocated.
type reported struct {
	into, before v1.ResourceList
}

// set reports the enforced quantity, or if that is nil the one reported before. least is the smallest quantity that can
// be enforced, in thousandths.
func (r reported) set(name v1.ResourceName, enforced *resource.Quantity, least int64) {
	if enforced == nil {
		r.keep(name)
		return
	}
	allocated := r.into[name]
	if enforced.MilliValue() > least || allocated.MilliValue() > least {
		r.into[name] = enforced.DeepCopy()
	}
}

func (r reported) keep(name v1.ResourceName) {
	if q, ok := r.before[name]; ok {
		r.into[name] = q.DeepCopy()
	}
}
