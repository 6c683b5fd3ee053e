package admission

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// RuntimePods lists the pods the runtime knows, from a short-lived cache.
type RuntimePods interface {
	GetPods(ctx context.Context) ([]*kubecontainer.Pod, error)
}

// Allocations tells what was allocated to a container when its pod was admitted, also by an earlier process.
type Allocations interface {
	GetContainerResourceAllocation(uid types.UID, container string) (v1.ResourceRequirements, bool)
}

// Readmission knows whether the pod whose admission is under way ran on this node before the agent was restarted. Such a pod
// has been admitted already: pressure, taints and lack of resources are no reason to stop it now (kubernetes/kubernetes#83612,
// stock kills all BestEffort pods of a node that is restarted under memory pressure). Stock keeps the resources of such pods in
// its allocation checkpoint for the same purpose.
//
// It answers for one admission at a time: a later resize of the pod is no readmission.
type Readmission struct {
	runtime     RuntimePods
	allocations Allocations

	mu      sync.Mutex
	current types.UID
}

// NewReadmission reads the runtime and the allocation checkpoint.
func NewReadmission(runtime RuntimePods, allocations Allocations) *Readmission {
	return &Readmission{runtime: runtime, allocations: allocations}
}

// Readmitted is true while the given pod's readmission is under way.
func (r *Readmission) Readmitted(pod *v1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current != "" && r.current == pod.UID
}

// begin marks the pod when it ran here before; the returned function ends its admission.
func (r *Readmission) begin(ctx context.Context, pod *v1.Pod) (end func()) {
	if !r.ranBefore(ctx, pod) {
		return func() {}
	}
	r.set(pod.UID)
	return func() { r.set("") }
}

func (r *Readmission) set(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = uid
}

func (r *Readmission) ranBefore(ctx context.Context, pod *v1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if _, ok := r.allocations.GetContainerResourceAllocation(pod.UID, c.Name); ok {
			return true
		}
	}
	pods, err := r.runtime.GetPods(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot ask the runtime whether the pod ran before, treating it as new", "pod", klog.KObj(pod))
		return false
	}
	return slices.ContainsFunc(pods, func(p *kubecontainer.Pod) bool { return p.ID == pod.UID && hasRunning(p) })
}

// hasRunning is true when a container or a sandbox of the pod is up.
func hasRunning(pod *kubecontainer.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Containers, pod.Sandboxes), func(c *kubecontainer.Container) bool {
		return c.State == kubecontainer.ContainerStateRunning
	})
}
