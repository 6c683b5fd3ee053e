package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// killContainers stops the running containers of the pod, with hooks and grace period.
type killContainers struct {
	kill      killer
	events    events
	escalator *escalator
}

func (killContainers) Name() string { return StepKillContainers }

func (s killContainers) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	running := kubecontainer.ConvertPodStatusToRunningPod(s.kill.runtime.Type(), p.current)
	t := target{pod: p.Pod, status: p.current, answered: p.answered}
	err := s.escalator.kill(ctx, t, graceOf(p.Pod, p.GracePeriod), func(ctx context.Context) error {
		return s.kill.pod(ctx, p.Pod, running, p.GracePeriod)
	})
	if err != nil && ctx.Err() == nil {
		s.events.warn(ctx, p.Pod, kubeevents.FailedToKillPod, "error killing pod: %v", err)
	}
	return nextStep, err
}

// graceOf returns the grace period that the runtime manager uses for the containers of the pod.
func graceOf(pod *v1.Pod, override *int64) time.Duration {
	for _, grace := range []*int64{override, pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds} {
		if grace != nil {
			return seconds(*grace)
		}
	}
	return 0
}

// maxSeconds limits grace periods to a hundred years. The API permits more than a time.Duration can represent.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// seconds converts a grace period to a duration, 0 if it is negative.
func seconds(n int64) time.Duration { return time.Duration(min(max(n, 0), maxSeconds)) * time.Second }
