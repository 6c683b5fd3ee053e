package podsync

import (
	"context"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// killContainers stops what runs of the pod, hooks and grace period included.
type killContainers struct {
	kill   killer
	events events
}

func (killContainers) Name() string { return "kill containers" }

func (s killContainers) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	running := kubecontainer.ConvertPodStatusToRunningPod(s.kill.runtime.Type(), p.current)
	err := s.kill.pod(ctx, p.Pod, running, p.GracePeriod)
	if err != nil && ctx.Err() == nil {
		s.events.warn(ctx, p.Pod, kubeevents.FailedToKillPod, "error killing pod: %v", err)
	}
	return proceed, err
}
