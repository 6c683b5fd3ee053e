package podsync

import (
	"context"

	"k8s.io/klog/v2"
)

// publishFinal publishes the status of a pod whose containers are gone.
type publishFinal struct {
	generator StatusGenerator
	statuses  StatusStore
	returning Returning
}

func (publishFinal) Name() string { return "publish final status" }

func (s publishFinal) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.pod, s.generator.Generate(ctx, p.pod, p.status, !s.returning.Returns(p.pod)))
	return proceed, nil
}

// finalizeStatus declares that nothing of the pod is left. The status of a pod that starts again is not final: that would fail it.
type finalizeStatus struct {
	statuses  StatusStore
	returning Returning
}

func (finalizeStatus) Name() string { return "finalize status" }

func (s finalizeStatus) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	logger := klog.FromContext(ctx)
	returns := s.returning.Returns(p.pod)
	s.returning.Stopped(p.pod.UID)
	if returns {
		logger.V(2).Info("Pod is stopped and starts again with the node", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
		return proceed, nil
	}
	s.statuses.TerminatePod(logger, p.pod)
	logger.V(4).Info("Pod is terminated and will need no more status updates", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return proceed, nil
}
