package podsync

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// destroyCgroup removes the pod's cgroup and kills the processes that are left in it.
type destroyCgroup struct {
	containers ContainerManager
	cgroups    podCgroups
}

func (destroyCgroup) Name() string { return StepDestroyCgroup }

func (s destroyCgroup) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	logger := klog.FromContext(ctx)
	cgroups := s.containers.NewPodContainerManager()
	name, path := cgroups.GetPodContainerName(p.pod)
	// Destroy kills by PID, and a PID may have been reused meanwhile. So it should find no process.
	t := target{pod: p.pod, status: p.status}
	if left, err := s.cgroups.processesOf(t); err == nil && len(left) > 0 {
		if err := s.cgroups.kill(ctx, t); err != nil {
			return endPhase, err
		}
	}
	if err := cgroups.Destroy(logger, name); err != nil {
		return endPhase, fmt.Errorf("%s: %w", path, err)
	}
	logger.V(4).Info("Pod termination removed cgroups", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return nextStep, nil
}
