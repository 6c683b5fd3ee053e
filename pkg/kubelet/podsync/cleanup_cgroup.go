package podsync

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// destroyCgroup removes the pod's cgroup with whatever process is left in it.
type destroyCgroup struct{ containers ContainerManager }

func (destroyCgroup) Name() string { return "destroy cgroup" }

func (s destroyCgroup) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	logger := klog.FromContext(ctx)
	cgroups := s.containers.NewPodContainerManager()
	name, path := cgroups.GetPodContainerName(p.pod)
	if err := cgroups.Destroy(logger, name); err != nil {
		return settled, fmt.Errorf("%s: %w", path, err)
	}
	logger.V(4).Info("Pod termination removed cgroups", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return proceed, nil
}
