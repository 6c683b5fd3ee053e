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

// Resizes tells the allocation manager when a pod asks for other resources in place (KEP-1287) and when resources have
// become free that a waiting resize could use. The loop alone calls it.
type Resizes struct {
	Allocations allocation.Manager
	Status      status.Manager
	// Enabled is the InPlacePodVerticalScaling gate.
	Enabled bool
	// PodLevel is the InPlacePodLevelResourcesVerticalScaling gate, PodLevelResources that of pod-level resources.
	PodLevel, PodLevelResources bool

	// waiting collects resizes of pods that were just added: none may be decided before all of them are known.
	waiting []types.UID
}

// PodAdmitted notes whether an admitted pod asks for other resources than it was given.
func (r *Resizes) PodAdmitted(pod *v1.Pod) {
	if !r.Enabled {
		return
	}
	if _, differs := r.Allocations.UpdatePodFromAllocation(pod); differs {
		r.waiting = append(r.waiting, pod.UID)
	}
}

// PodsAdded decides the resizes noted since the last call.
func (r *Resizes) PodsAdded(pods []*v1.Pod) {
	if !r.Enabled {
		return
	}
	r.Status.BackfillPodResizeConditions(pods)
	for _, uid := range r.waiting {
		r.Allocations.PushPendingResize(uid)
	}
	if len(r.waiting) > 0 {
		r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodsAdded)
	}
	r.waiting = nil
}

// PodUpdated decides the resize that an update of the pod asks for, if it does.
func (r *Resizes) PodUpdated(old, pod *v1.Pod) {
	if !r.Enabled || !r.asks(old, pod) {
		return
	}
	if _, differs := r.Allocations.UpdatePodFromAllocation(pod); !differs {
		// The pod went back to what it has.
		r.Status.ClearPodResizePendingCondition(pod.UID)
		return
	}
	r.Allocations.PushPendingResize(pod.UID)
	r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodUpdated)
}

// PodsRemoved retries waiting resizes with what removed pods have left.
func (r *Resizes) PodsRemoved() {
	if r.Enabled {
		r.Allocations.RetryPendingResizes(allocation.TriggerReasonPodsRemoved)
	}
}

// Pending starts a round of reconciliation; its Retry retries waiting resizes once if any pod released something.
func (r *Resizes) Pending() *PendingResizes {
	return &PendingResizes{resizes: r, watch: r.Enabled && r.Allocations.HasPendingResizes()}
}

// PendingResizes is one round of reconciliation.
type PendingResizes struct {
	resizes *Resizes
	watch   bool
	trigger string
}

// PodReconciled notes whether the pod has ended or shrunk. The last reason found labels the metric.
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

// Retry ends the round.
func (p *PendingResizes) Retry() {
	if p.trigger != "" {
		p.resizes.Allocations.RetryPendingResizes(p.trigger)
	}
}

// requests are what the pod holds: the greater of what was allocated to it and what its containers actually have.
func (r *Resizes) requests(pod *v1.Pod) v1.ResourceList {
	allocated, _ := r.Allocations.UpdatePodFromAllocation(pod)
	return resourcehelper.PodRequests(allocated, resourcehelper.PodResourcesOptions{
		UseStatusResources:                             true,
		SkipPodLevelResources:                          !r.PodLevelResources,
		InPlacePodLevelResourcesVerticalScalingEnabled: r.PodLevel,
	})
}

// asks is true when the update changes resources; each changed request and limit is counted.
func (r *Resizes) asks(old, pod *v1.Pod) bool {
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

// change is one request or limit that differs, in the words of the metric's labels.
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
