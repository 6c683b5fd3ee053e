package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// recordWorkerStart measures how long a new pod waited for its worker.
type recordWorkerStart struct{}

func (recordWorkerStart) Name() string { return "record worker start" }

func (recordWorkerStart) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	if p.UpdateType != kubetypes.SyncPodCreate {
		return nextStep, nil
	}
	if seen := firstSeen(p.Pod); !seen.IsZero() {
		metrics.PodWorkerStartDuration.Observe(metrics.SinceInSeconds(seen))
		return nextStep, nil
	}
	klog.FromContext(ctx).V(3).Info("First seen time not recorded for pod", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID)
	return nextStep, nil
}

// firstSeen returns when the agent got the pod from its source, zero if that was not recorded.
func firstSeen(pod *v1.Pod) time.Time {
	text, ok := pod.Annotations[kubetypes.ConfigFirstSeenAnnotationKey]
	if !ok {
		return time.Time{}
	}
	return kubetypes.ConvertToTimestamp(text).Get()
}
