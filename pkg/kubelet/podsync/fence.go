package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// repairSync and repairTermination remove the limit that an earlier run of the agent has set on a pod which it was
// evicting. They never fail: the pod is repaired the next time.
type (
	repairSync        struct{ earlierFence }
	repairTermination struct{ earlierFence }
)

// earlierFence is Config.RepairFence.
type earlierFence func(ctx context.Context, pod *v1.Pod) error

func (repairSync) Name() string        { return "repair an earlier fence before a sync" }
func (repairTermination) Name() string { return "repair an earlier fence before a termination" }

func (s repairSync) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	s.repair(ctx, p.Pod)
	return nextStep, nil
}

func (s repairTermination) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	s.repair(ctx, p.Pod)
	return nextStep, nil
}

func (f earlierFence) repair(ctx context.Context, pod *v1.Pod) {
	if err := f(ctx, pod); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to repair the limits of a pod that an earlier run of the agent has fenced",
			"pod", klog.KObj(pod), "podUID", pod.UID)
	}
}
