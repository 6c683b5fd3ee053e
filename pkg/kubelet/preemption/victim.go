package preemption

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// overduePollInterval is the time between two checks of an overdue victim.
const overduePollInterval = time.Second

// Messages of the event and of the condition, equal to stock's.
const (
	message          = "Preempted in order to admit critical pod"
	conditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// request is a request to stop a victim, with its first answer.
type request struct {
	victim candidate
	answer podkill.Answer
	ended  <-chan podkill.Ending
}

// preempt requests the stop of a victim, and writes an event when the pod workers have accepted the request.
func (h *Handler) preempt(ctx context.Context, preemptor *v1.Pod, victim candidate) request {
	pod := victim.pod
	answer, ended := h.Kill(ctx, podkill.Request{Pod: pod, Evict: true, Disruption: &podkill.Disruption{
		Phase: v1.PodFailed, KeepSucceeded: true, Reason: events.PreemptContainer, Message: message,
		Conditions: []v1.PodCondition{podkill.DisruptionTarget(pod, conditionMessage)},
	}})
	if answer == podkill.Begun {
		h.Recorder.Eventf(pod, v1.EventTypeWarning, events.PreemptContainer, message)
	}
	klog.FromContext(ctx).V(2).Info("Preempting pod to free up resources", "pod", klog.KObj(pod), "podUID", pod.UID,
		"requests", victim.Requests, "requestingPod", klog.KObj(preemptor), "answer", answer)
	return request{victim, answer, ended}
}

// awaitTerminating returns a request with the ending of a pod that is terminating already. It does not affect the pod.
func (h *Handler) awaitTerminating(ctx context.Context, victim candidate) request {
	answer, ended := h.Kill(ctx, podkill.Request{Pod: victim.pod})
	return request{victim, answer, ended}
}

// awaitVictim waits until a victim has stopped, and counts a preemption if the request began its termination.
func (h *Handler) awaitVictim(ctx context.Context, r request) error {
	if err := h.awaitStopped(ctx, r.victim.UID, <-r.ended); err != nil {
		return err
	}
	if r.answer == podkill.Begun {
		metrics.Preemptions.WithLabelValues(plan.Need(r.victim.Requests).First().String()).Inc()
	}
	klog.FromContext(ctx).Info("Pod preempted", "pod", klog.KObj(r.victim.pod), "podUID", r.victim.UID, "answer", r.answer)
	return nil
}

// awaitStopped returns nil when a victim has stopped. The termination of an overdue victim continues with the steps of
// package escalation; it has failed only when the pod is still terminating after the last step.
func (h *Handler) awaitStopped(ctx context.Context, uid types.UID, ending podkill.Ending) error {
	switch ending.Outcome {
	case podkill.Stopped:
		return nil
	case podkill.Failed:
		return fmt.Errorf("%w: %w", errAborted, ending.Err)
	default: // podkill.Overdue
	}
	ticker := time.NewTicker(overduePollInterval)
	defer ticker.Stop()
	// A static pod whose manifest is back may run again before the next check.
	for h.Lifecycle.IsPodTerminationRequested(uid) && h.Lifecycle.CouldHaveRunningContainers(uid) {
		if h.EscalationExhausted(uid) {
			return ending.Err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errAborted, context.Cause(ctx))
		case <-ticker.C:
		}
	}
	return nil
}
