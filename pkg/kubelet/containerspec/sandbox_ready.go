package containerspec

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

// PodStatuses is the part of the status manager that SandboxReady needs.
type PodStatuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// SetPodStatus takes the status over and returns it as merged, and whether it changed anything, without waiting for
	// the API server.
	SetPodStatus(logger klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
}

// SandboxReady returns the function for Config.OnPodSandboxReady: it sets the condition PodReadyToStartContainers as
// soon as sandbox, network and volumes are ready, before the images are pulled (KEP-3085, kubernetes issue 134460).
//
// It runs in the caller's goroutine, the pod's worker. Stock starts another goroutine, which reads the status and
// writes it later, and can so undo what the worker wrote in between. That is not necessary: the status manager does not
// block.
//
// enabled is the gate PodReadyToStartContainersCondition; without it the function does nothing.
func SandboxReady(statuses PodStatuses, enabled bool) func(ctx context.Context, pod *v1.Pod) error {
	return func(ctx context.Context, pod *v1.Pod) error {
		if !enabled {
			return nil
		}
		logger := klog.FromContext(ctx)
		known, ok := statuses.GetPodStatus(pod.UID)
		if !ok {
			known = pod.Status
		}
		status := known.DeepCopy()
		status.Conditions = utilpod.ReplaceOrAppendPodCondition(status.Conditions, &v1.PodCondition{
			Type:   v1.PodReadyToStartContainers,
			Status: v1.ConditionTrue,
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation,
				v1.PodReadyToStartContainers),
		})
		statuses.SetPodStatus(logger, pod, *status)
		logger.V(3).Info("Updated the PodReadyToStartContainers condition after sandbox creation", "pod", klog.KObj(pod),
			"podUID", pod.UID)
		return nil
	}
}
