// Package podview answers which of the configured pods use the node. It combines what no single part knows: the pod manager
// (what is configured), the pod lifecycle (what may have running containers), the status manager (what has ended) and the
// allocation manager (what resources were promised).
package podview

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Configured are the pods the sources want, mirror pods left out.
type Configured interface {
	GetPods() []*v1.Pod
}

// Lifecycle is what the pod workers know of a pod.
type Lifecycle interface {
	IsPodKnownTerminated(uid types.UID) bool
	IsPodTerminationRequested(uid types.UID) bool
	ShouldPodBeFinished(uid types.UID) bool
}

// Statuses are the statuses the agent last reported.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Allocations replace the resources in a pod's specification by those that were allocated. They must not wait for a disk:
// eviction decides with the answer.
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

// New returns a view over the given parts. allocations may be nil while in-place resize is off.
func New(configured Configured, lifecycle Lifecycle, statuses Statuses) *View {
	return &View{configured: configured, lifecycle: lifecycle, statuses: statuses}
}

// WithAllocations returns the same view with Allocated reading from a.
func (v *View) WithAllocations(a Allocations) *View {
	out := *v
	out.allocations = a
	return &out
}

// Active returns the configured pods that hold resources of the node: not those that are known to have terminated, nor those in a
// terminal phase, unless their containers are still being stopped.
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

// Allocated returns the active pods with the resources that were allocated to them in place of those they ask for.
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

// Finished is true when nothing of the pod is left on the node: containers, volumes and cgroups are gone.
func (v *View) Finished(pod *v1.Pod) bool { return v.lifecycle.ShouldPodBeFinished(pod.UID) }

// Terminal is true when the source or the agent itself has put the pod into a terminal phase. It is for the code that feeds
// the pod workers; everyone else asks the lifecycle.
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
