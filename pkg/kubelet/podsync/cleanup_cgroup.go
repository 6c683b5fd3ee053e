package podsync

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// destroyCgroup removes the pod's cgroup with whatever process is left in it.
type destroyCgroup struct {
	containers ContainerManager
	left       podCgroups
}

func (destroyCgroup) Name() string { return "destroy cgroup" }

func (s destroyCgroup) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	logger := klog.FromContext(ctx)
	cgroups := s.containers.NewPodContainerManager()
	name, path := cgroups.GetPodContainerName(p.pod)
	// Destroy kills by bare PIDs, which may belong to somebody else by then. So it should find none.
	t := target{pod: p.pod, status: p.status}
	if left, err := s.left.list(t); err == nil && len(left) > 0 {
		if err := s.left.kill(ctx, t); err != nil {
			return settled, err
		}
	}
	if err := cgroups.Destroy(logger, name); err != nil {
		return settled, fmt.Errorf("%s: %w", path, err)
	}
	logger.V(4).Info("Pod termination removed cgroups", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return proceed, nil
}
