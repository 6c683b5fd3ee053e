package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// publishTerminating publishes the state at the beginning of the termination, with the reason for it.
type publishTerminating struct {
	generator StatusGenerator
	statuses  StatusStore
	// timeout bounds how long the generator may take.
	timeout time.Duration
}

func (publishTerminating) Name() string { return "publish termination" }

func (s publishTerminating) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	status := s.status(ctx, p)
	p.Disruption.Apply(&status)
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.Pod, status)
	return proceed, nil
}

// status returns the pod's present status. The generator asks managers that may wait for a disk or for the runtime; when it
// takes too long, the status that was published last has to do, so that the kill is not put off and its reason is published.
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
	klog.FromContext(ctx).Info("Pod status could not be computed in time before the pod is stopped, using the last one",
		"pod", klog.KObj(p.Pod), "podUID", p.Pod.UID, "timeout", s.timeout)
	status, published := s.statuses.GetPodStatus(p.Pod.UID)
	if !published {
		status = p.Pod.Status
	}
	return *status.DeepCopy()
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
