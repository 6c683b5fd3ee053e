package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// showResizeProgress sets the condition PodResizeInProgress (KEP-1287) while allocated resources are not applied yet,
// and sends an event when they are. An error of an earlier attempt stays in the condition until then.
type showResizeProgress struct {
	tracker    ResizeTracker
	conditions ResizeConditions
	events     events
}

func (showResizeProgress) Name() string { return "show resize progress" }

func (s showResizeProgress) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	if s.tracker.IsPodResizeInProgress(p.Pod, p.Status) {
		s.conditions.SetPodResizeInProgressCondition(p.Pod.UID, "", "", p.Pod.Generation)
		return nextStep, nil
	}
	if generation, cleared := s.conditions.ClearPodResizeInProgressCondition(p.Pod.UID); cleared {
		message := kubeevents.PodResizeCompletedMsg(klog.FromContext(ctx), p.Pod, generation)
		s.events.note(ctx, p.Pod, kubeevents.ResizeCompleted, "%s", message)
	}
	return nextStep, nil
}

// reportResizeErrors sets the runtime's error of a resize in the condition, and sends an event when the condition
// changes.
type reportResizeErrors struct {
	conditions ResizeConditions
	events     events
}

func (reportResizeErrors) Name() string { return "report resize errors" }

func (s reportResizeErrors) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	for _, r := range p.runtime.SyncResults {
		if r.Action != kubecontainer.ResizePodInPlace || r.Error == nil {
			continue
		}
		generation, changed := s.conditions.SetPodResizeInProgressCondition(
			p.Pod.UID, v1.PodReasonError, r.Message, p.Pod.Generation)
		if changed {
			message := kubeevents.PodResizeErrorMsg(klog.FromContext(ctx), p.Pod, generation, r.Message)
			s.events.warn(ctx, p.Pod, kubeevents.ResizeError, "%s", message)
		}
	}
	return nextStep, nil
}
