package syncloop

import (
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// Resizes passes in-place resizes of pods (KEP-1287) to the allocation manager, and retries pending ones when resources
// were released. Only the loop may call its methods.
type Resizes struct {
	Allocations allocation.Manager
	Status      status.Manager
	// Enabled is the feature gate InPlacePodVerticalScaling.
	Enabled bool
	// PodLevel is the gate InPlacePodLevelResourcesVerticalScaling, PodLevelResources the gate PodLevelResources.
	PodLevel, PodLevelResources bool

	// added are the pods that were just added and have a resize. Their resizes are decided after all pods were added.
	added []types.UID
}

// PodAdmitted records an admitted pod whose requested resources differ from the allocated ones.
func (r *Resizes) PodAdmitted(pod *v1.Pod) {
	if !r.Enabled {
		return
	}
	if _, differs := r.Allocations.UpdatePodFromAllocation(pod); differs {
		r.added = append(r.added, pod.UID)
	}
}

// PodsAdded requests a decision about the resizes that PodAdmitted has recorded.
func (r *Resizes) PodsAdded(pods []*v1.Pod) {
	if !r.Enabled {
		return
	}
	r.Status.BackfillPodResizeConditions(pods)
	for _, uid := range r.added {
		r.Allocations.PushPendingResize(uid)
	}
	if len(r.added) > 0 {
		r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodsAdded)
	}
	r.added = nil
}

// PodUpdated requests a decision about the resize if an update changes the pod's resources.
func (r *Resizes) PodUpdated(old, pod *v1.Pod) {
	if !r.Enabled || !r.requestsResize(old, pod) {
		return
	}
	if _, differs := r.Allocations.UpdatePodFromAllocation(pod); !differs {
		// The update has reverted the resize.
		r.Status.ClearPodResizePendingCondition(pod.UID)
		return
	}
	r.Allocations.PushPendingResize(pod.UID)
	r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodUpdated)
}

// PodsRemoved retries pending resizes after pods were removed.
func (r *Resizes) PodsRemoved() {
	if r.Enabled {
		r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodsRemoved)
	}
}

// Pending begins a round of reconciliation. PendingResizes.Retry retries pending resizes once, if any pod has released
// resources.
func (r *Resizes) Pending() *PendingResizes {
	return &PendingResizes{resizes: r, watch: r.Enabled && r.Allocations.HasPendingResizes()}
}

// PendingResizes is one round of reconciliation.
type PendingResizes struct {
	resizes *Resizes
	watch   bool
	trigger string
}

// PodReconciled records whether the pod has ended or has less resources than before.
func (p *PendingResizes) PodReconciled(old, pod *v1.Pod) {
	if !p.watch || p.trigger != "" || old == nil {
		return
	}
	if podutil.IsPodTerminal(pod) && !podutil.IsPodTerminal(old) {
		p.trigger = allocation.TriggerReasonPodTerminated
	}
	before, after := p.resizes.requests(old), p.resizes.requests(pod)
	if after.Memory().Cmp(*before.Memory()) < 0 || after.Cpu().Cmp(*before.Cpu()) < 0 {
		p.trigger = allocation.TriggerReasonPodResized
	}
}

// Retry ends the round. The trigger that was recorded is a label of stock's metric.
func (p *PendingResizes) Retry() {
	if p.trigger != "" {
		p.resizes.Allocations.RetryPendingResizes(p.trigger)
	}
}

// requests returns the requests of the pod: the maximum of the allocated and the actual resources.
func (r *Resizes) requests(pod *v1.Pod) v1.ResourceList {
	allocated, _ := r.Allocations.UpdatePodFromAllocation(pod)
	return resourcehelper.PodRequests(allocated, resourcehelper.PodResourcesOptions{
		UseStatusResources:                             true,
		SkipPodLevelResources:                          !r.PodLevelResources,
		InPlacePodLevelResourcesVerticalScalingEnabled: r.PodLevel,
	})
}

// requestsResize is true when the update changes resources. It counts each changed request and limit in a metric.
func (r *Resizes) requestsResize(old, pod *v1.Pod) bool {
	if old == nil {
		return true
	}
	changed := !apiequality.Semantic.DeepEqual(old.Spec.Resources, pod.Spec.Resources)
	resources := map[containerKey]v1.ResourceRequirements{}
	forResizable(pod, func(key containerKey, c *v1.Container) { resources[key] = c.Resources })
	forResizable(old, func(key containerKey, c *v1.Container) {
		for _, change := range changes(c.Resources, resources[key]) {
			changed = true
			metrics.ContainerRequestedResizes.WithLabelValues(string(change.resource), change.kind, change.operation).Inc()
		}
	})
	return changed
}

type containerKey struct {
	name string
	kind podutil.ContainerType
}

func forResizable(pod *v1.Pod, visit func(containerKey, *v1.Container)) {
	for c, kind := range podutil.ContainerIter(&pod.Spec, podutil.InitContainers|podutil.Containers) {
		if allocation.IsResizableContainer(c, kind) {
			visit(containerKey{c.Name, kind}, c)
		}
	}
}

// change is one request or limit that differs; its fields are the values of the metric's labels.
type change struct {
	resource        v1.ResourceName
	kind, operation string
}

func changes(old, requested v1.ResourceRequirements) []change {
	var out []change
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		for _, list := range []struct {
			kind     string
			old, now v1.ResourceList
		}{{"requests", old.Requests, requested.Requests}, {"limits", old.Limits, requested.Limits}} {
			if op := compare(list.old[name], list.now[name]); op != "" {
				out = append(out, change{name, list.kind, op})
			}
		}
	}
	return out
}

func compare(old, now resource.Quantity) string {
	switch {
	case now.Cmp(old) == 0:
		return ""
	case now.IsZero():
		return "remove"
	case old.IsZero():
		return "add"
	case now.Cmp(old) < 0:
		return "decrease"
	default:
		return "increase"
	}
}
