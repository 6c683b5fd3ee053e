package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// publishTerminating publishes the status at the beginning of the termination, with the disruption.
type publishTerminating struct {
	generator StatusGenerator
	statuses  StatusStore
	// timeout limits the time of the generator.
	timeout time.Duration
}

func (publishTerminating) Name() string { return "publish termination" }

func (s publishTerminating) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	status := s.status(ctx, p)
	p.Disruption.Apply(&status)
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.Pod, status)
	return nextStep, nil
}

// status returns the current status of the pod. The generator calls managers that may wait for a disk or for the
// runtime; after the time-out the last published status is used, so that the kill is not delayed and the disruption is
// published.
func (s publishTerminating) status(ctx context.Context, p *terminatePass) v1.PodStatus {
	generated := make(chan v1.PodStatus, 1)
	go func() { generated <- s.generator.Generate(ctx, p.Pod, p.Status, false) }()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case status := <-generated:
		return status
	case <-timer.C:
	}
	klog.FromContext(ctx).Info("Pod status not computed in time before the pod is stopped, using the last one",
		"pod", klog.KObj(p.Pod), "podUID", p.Pod.UID, "timeout", s.timeout)
	status, published := s.statuses.GetPodStatus(p.Pod.UID)
	if !published {
		status = p.Pod.Status
	}
	return *status.DeepCopy()
}

// publishStopped publishes the final state of the containers. The disruption was published when the termination began,
// and the generator keeps it; only now is it known in detail how the pod has ended.
type publishStopped struct {
	generator StatusGenerator
	statuses  StatusStore
	shutdown  ShutdownManager
}

func (publishStopped) Name() string { return "publish end of containers" }

func (s publishStopped) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	logger := klog.FromContext(ctx)
	status := s.generator.Generate(ctx, p.Pod, p.stopped, !s.shutdown.RestartsAfterShutdown(p.Pod))
	p.Disruption.ApplyDetail(&status)
	s.statuses.SetPodStatus(logger, p.Pod, status)
	logger.V(4).Info("Pod termination stopped all running containers", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID)
	return nextStep, nil
}
