package podsync

import (
	"context"

	"k8s.io/klog/v2"
)

// publishTerminating publishes the state at the beginning of the termination, amended with the reason for it.
type publishTerminating struct {
	generator StatusGenerator
	statuses  StatusStore
}

func (publishTerminating) Name() string { return "publish termination" }

func (s publishTerminating) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	status := s.generator.Generate(ctx, p.Pod, p.Status, false)
	if p.SetStatus != nil {
		p.SetStatus(&status)
	}
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.Pod, status)
	return proceed, nil
}

// publishStopped publishes how the containers ended. The reason of the termination is not set again: it was published when the
// termination began, and the generator keeps it.
type publishStopped struct {
	generator StatusGenerator
	statuses  StatusStore
	returning Returning
}

func (publishStopped) Name() string { return "publish end of containers" }

func (s publishStopped) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	logger := klog.FromContext(ctx)
	s.statuses.SetPodStatus(logger, p.Pod, s.generator.Generate(ctx, p.Pod, p.stopped, !s.returning.Returns(p.Pod)))
	logger.V(4).Info("Pod termination stopped all running containers", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID)
	return proceed, nil
}
