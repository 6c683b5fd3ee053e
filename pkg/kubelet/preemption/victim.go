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

// overduePeriod is the time between two looks at a victim that is overdue.
const overduePeriod = time.Second

// What users see; equal to stock's.
const (
	message          = "Preempted in order to admit critical pod"
	conditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// request is a request to stop a victim, with the first answer.
type request struct {
	victim candidate
	answer podkill.Answer
	ended  <-chan podkill.Ending
}

// preempt requests the stop of a victim, and says so when the pod workers have accepted the request.
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

// join requests nothing of a pod that is terminating anyway, but to be told when it has stopped.
func (h *Handler) join(ctx context.Context, victim candidate) request {
	answer, ended := h.Kill(ctx, podkill.Request{Pod: victim.pod})
	return request{victim, answer, ended}
}

// end waits until a victim has stopped, and counts it if it was stopped for this.
func (h *Handler) end(ctx context.Context, r request) error {
	if err := h.failure(ctx, r.victim.UID, <-r.ended); err != nil {
		return err
	}
	if r.answer == podkill.Begun {
		metrics.Preemptions.WithLabelValues(plan.Need(r.victim.Requests).First().String()).Inc()
	}
	klog.FromContext(ctx).Info("Pod preempted", "pod", klog.KObj(r.victim.pod), "podUID", r.victim.UID, "answer", r.answer)
	return nil
}

// failure returns why a victim has not stopped, nil when it has. A victim that is overdue is still being stopped, by
// rougher means from rung to rung of the ladder (package escalation). It has failed when it outlives the last rung,
// and not before: its room is on its way.
func (h *Handler) failure(ctx context.Context, uid types.UID, ending podkill.Ending) error {
	switch ending.Outcome {
	case podkill.Stopped:
		return nil
	case podkill.Failed:
		return fmt.Errorf("%w: %w", errAborted, ending.Err)
	default: // it is overdue
	}
	ticker := time.NewTicker(overduePeriod)
	defer ticker.Stop()
	// A static pod that is wanted again may run again before the next look.
	for h.Lifecycle.IsPodTerminationRequested(uid) && h.Lifecycle.CouldHaveRunningContainers(uid) {
		if h.EverythingTried(uid) {
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
