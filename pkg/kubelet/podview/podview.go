// Package podview lists the configured pods that use resources of the node. It combines four sources: the pod manager
// (configured pods), the pod lifecycle (pods that may have running containers), the status manager (pods in a terminal
// phase) and the allocation manager (allocated resources).
package podview

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Configured lists the pods of all sources, without mirror pods.
type Configured interface {
	GetPods() []*v1.Pod
	GetPodByUID(uid types.UID) (*v1.Pod, bool)
}

// Lifecycle is the state of a pod in the pod workers.
type Lifecycle interface {
	IsPodKnownTerminated(uid types.UID) bool
	IsPodTerminationRequested(uid types.UID) bool
	ShouldPodBeFinished(uid types.UID) bool
}

// Statuses is the cache of the statuses that the agent last reported.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Allocations replaces the resources in a pod's specification by the allocated ones. It must not wait for disk I/O,
// since eviction decisions depend on it.
type Allocations interface {
	UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool)
}

// View is safe for concurrent use when its parts are. The pods it returns are shared and must not be modified.
type View struct {
	configured  Configured
	lifecycle   Lifecycle
	statuses    Statuses
	allocations Allocations
}

// New returns a view without allocations: Allocated returns the pods as they are configured.
func New(configured Configured, lifecycle Lifecycle, statuses Statuses) *View {
	return &View{configured: configured, lifecycle: lifecycle, statuses: statuses}
}

// WithAllocations returns a copy of the view whose method Allocated reads from a.
func (v *View) WithAllocations(a Allocations) *View {
	out := *v
	out.allocations = a
	return &out
}

// Active returns the configured pods that hold resources of the node. It leaves out pods that have terminated, and pods
// in a terminal phase unless their containers are still being stopped.
func (v *View) Active() []*v1.Pod {
	return v.FilterActive(v.configured.GetPods())
}

// FilterActive returns those of the given configured pods that are active, in the same order.
func (v *View) FilterActive(pods []*v1.Pod) []*v1.Pod {
	active := make([]*v1.Pod, 0, len(pods))
	for _, pod := range pods {
		if v.active(pod) {
			active = append(active, pod)
		}
	}
	return active
}

// Allocated returns the active pods, with the resources that were allocated to them in place of those in their
// specification.
func (v *View) Allocated() []*v1.Pod {
	pods := v.Active()
	if v.allocations == nil {
		return pods
	}
	for i := range pods {
		pods[i], _ = v.allocations.UpdatePodFromAllocation(pods[i])
	}
	return pods
}

// AllocatedByUID returns the pod with that UID as Allocated does, and false if Allocated does not return it.
func (v *View) AllocatedByUID(uid types.UID) (*v1.Pod, bool) {
	pod, ok := v.configured.GetPodByUID(uid)
	if !ok || !v.active(pod) {
		return nil, false
	}
	if v.allocations != nil {
		pod, _ = v.allocations.UpdatePodFromAllocation(pod)
	}
	return pod, true
}

// Finished is true when the containers, volumes and cgroups of the pod are gone from the node.
func (v *View) Finished(uid types.UID) bool { return v.lifecycle.ShouldPodBeFinished(uid) }

// Terminal is true when the pod is in a terminal phase, either at its source or in the status that the agent reported.
// It is for code that passes pods to the pod workers; other code should ask the lifecycle, since the containers of such
// a pod may still be running.
func (v *View) Terminal(pod *v1.Pod) bool {
	if podutil.IsPodPhaseTerminal(pod.Status.Phase) {
		return true
	}
	status, ok := v.statuses.GetPodStatus(pod.UID)
	return ok && podutil.IsPodPhaseTerminal(status.Phase)
}

func (v *View) active(pod *v1.Pod) bool {
	if v.lifecycle.IsPodKnownTerminated(pod.UID) {
		return false
	}
	return !v.Terminal(pod) || v.lifecycle.IsPodTerminationRequested(pod.UID)
}
