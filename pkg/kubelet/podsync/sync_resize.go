package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// showResizeProgress keeps the PodResizeInProgress condition (KEP-1287): there while what is allocated is not yet applied, with
// an event when it is. An error that an earlier attempt left in the condition stays until then.
type showResizeProgress struct {
	tracker    ResizeTracker
	conditions ResizeConditions
	events     events
}

func (showResizeProgress) Name() string { return "show resize progress" }

func (s showResizeProgress) Run(ctx context.Context, p *syncPass) (verdict, error) {
	if s.tracker.IsPodResizeInProgress(p.Pod, p.Status) {
		s.conditions.SetPodResizeInProgressCondition(p.Pod.UID, "", "", p.Pod.Generation)
		return proceed, nil
	}
	if generation, cleared := s.conditions.ClearPodResizeInProgressCondition(p.Pod.UID); cleared {
		s.events.note(ctx, p.Pod, kubeevents.ResizeCompleted, "%s", kubeevents.PodResizeCompletedMsg(klog.FromContext(ctx), p.Pod, generation))
	}
	return proceed, nil
}

// reportResizeErrors puts the runtime's refusal of a resize into the condition, with an event when it is news.
type reportResizeErrors struct {
	conditions ResizeConditions
	events     events
}

func (reportResizeErrors) Name() string { return "report resize errors" }

func (s reportResizeErrors) Run(ctx context.Context, p *syncPass) (verdict, error) {
	for _, r := range p.runtime.SyncResults {
		if r.Action != kubecontainer.ResizePodInPlace || r.Error == nil {
			continue
		}
		generation, changed := s.conditions.SetPodResizeInProgressCondition(p.Pod.UID, v1.PodReasonError, r.Message, p.Pod.Generation)
		if changed {
			s.events.warn(ctx, p.Pod, kubeevents.ResizeError, "%s", kubeevents.PodResizeErrorMsg(klog.FromContext(ctx), p.Pod, generation, r.Message))
		}
	}
	return proceed, nil
}
