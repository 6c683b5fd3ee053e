package preemption

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// What users see; equal to stock's.
const (
	message          = "Preempted in order to admit critical pod"
	conditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// preempt stops one victim and counts it when it is gone.
func (h *Handler) preempt(ctx context.Context, preemptor, victim *v1.Pod, requests map[v1.ResourceName]int64) error {
	logger := klog.FromContext(ctx)
	h.recorder.Eventf(victim, v1.EventTypeWarning, events.PreemptContainer, message)
	logger.V(2).Info("Preempting pod to free up resources", "pod", klog.KObj(victim), "podUID", victim.UID, "requests", requests, "requestingPod", klog.KObj(preemptor))
	if err := h.kill(ctx, victim, true, nil, func(status *v1.PodStatus) { setPreempted(status, victim.Generation) }); err != nil {
		return err
	}
	metrics.Preemptions.WithLabelValues(plan.Need(requests).First().String()).Inc()
	logger.Info("Pod preempted", "pod", klog.KObj(victim), "podUID", victim.UID, "requestingPod", klog.KObj(preemptor))
	return nil
}

func setPreempted(status *v1.PodStatus, generation int64) {
	status.Phase = v1.PodFailed
	status.Reason = events.PreemptContainer
	status.Message = message
	podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonTerminationByKubelet,
		Message:            conditionMessage,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, generation, v1.DisruptionTarget),
	})
}
