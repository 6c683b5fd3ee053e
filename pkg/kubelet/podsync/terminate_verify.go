package podsync

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// verifyStopped checks with the runtime that nothing of the pod runs, whatever the kill said: volumes are taken away next.
type verifyStopped struct {
	observer  PodObserver
	escalator *escalator
}

func (verifyStopped) Name() string { return "verify that containers have stopped" }

func (s verifyStopped) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	stopped, err := observe(ctx, s.observer, p.Pod)
	if err != nil {
		return settled, fmt.Errorf("unable to read pod status prior to final pod termination: %w", err)
	}
	p.stopped = copyStatus(p.Pod, stopped)
	// The runtime forgets the addresses of a stopped sandbox; the published status keeps them.
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
		// Such a call returns too soon for anything to be climbed beside it.
		s.escalator.after(ctx, target{pod: p.Pod, status: p.stopped, reached: true})
		return settled, fmt.Errorf("detected running containers after a successful KillPod, CRI violation: %v", running)
	}
	return proceed, nil
}
