package podsync

import (
	"context"

	"k8s.io/klog/v2"
)

// publishFinal publishes the status of a pod whose containers have terminated.
type publishFinal struct {
	generator StatusGenerator
	statuses  StatusStore
	shutdown  ShutdownManager
}

func (publishFinal) Name() string { return "publish final status" }

func (s publishFinal) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	status := s.generator.Generate(ctx, p.pod, p.status, !s.shutdown.RestartsAfterShutdown(p.pod))
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.pod, status)
	return nextStep, nil
}

// finalizeStatus marks the status as final, except for a pod that starts again after the shutdown of the node: a final
// status would fail it.
type finalizeStatus struct {
	statuses StatusStore
	shutdown ShutdownManager
}

func (finalizeStatus) Name() string { return "finalize status" }

func (s finalizeStatus) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	logger := klog.FromContext(ctx)
	restarts := s.shutdown.RestartsAfterShutdown(p.pod)
	s.shutdown.PodStopped(p.pod.UID)
	if restarts {
		logger.V(2).Info("Pod is stopped and will start again after the shutdown", "pod", klog.KObj(p.pod),
			"podUID", p.pod.UID)
		return nextStep, nil
	}
	s.statuses.TerminatePod(logger, p.pod)
	logger.V(4).Info("Pod is terminated and will need no more status updates",
		"pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return nextStep, nil
}
