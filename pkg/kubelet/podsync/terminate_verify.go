package podsync

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// verifyStopped checks that the runtime runs no container of the pod, whatever the kill returned.
type verifyStopped struct {
	observer  PodObserver
	escalator *escalator
}

func (verifyStopped) Name() string { return StepVerifyStopped }

func (s verifyStopped) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	stopped, err := observe(ctx, s.observer, p.Pod)
	if err != nil {
		return endPhase, fmt.Errorf("unable to read pod status prior to final pod termination: %w", err)
	}
	p.stopped = copyStatus(p.Pod, stopped)
	// The runtime does not report the addresses of a stopped sandbox; the published status keeps them.
	p.stopped.IPs = p.Status.IPs

	logger := klog.FromContext(ctx)
	var running []string
	for _, c := range p.stopped.ContainerStatuses {
		logger.V(4).Info("Post-termination container state", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID,
			"containerName", c.Name, "state", c.State, "exitCode", c.ExitCode, "finishedAt", c.FinishedAt)
		if c.State == kubecontainer.ContainerStateRunning {
			running = append(running, c.ID.String())
		}
	}
	if len(running) > 0 {
		// KillPod may return too early for a step to be due during the call.
		s.escalator.takeDueSteps(ctx, target{pod: p.Pod, status: p.stopped, answered: true})
		return endPhase, fmt.Errorf("detected running containers after a successful KillPod, CRI violation: %v", running)
	}
	return nextStep, nil
}
