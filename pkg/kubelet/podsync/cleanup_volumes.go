package podsync

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// volumePathsPeriod is how often the disk is looked at for volumes that are left.
const volumePathsPeriod = 100 * time.Millisecond

// awaitUnmount waits until the volume manager has unmounted the pod's volumes.
type awaitUnmount struct{ volumes Volumes }

func (awaitUnmount) Name() string { return "await unmount" }

func (s awaitUnmount) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	if err := s.volumes.WaitForUnmount(ctx, p.pod); err != nil {
		return settled, err
	}
	klog.FromContext(ctx).V(4).Info("Pod termination unmounted volumes", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return proceed, nil
}

// awaitVolumePaths waits until no volume of the pod is mounted on disk, or until the context ends.
type awaitVolumePaths struct{ paths VolumePaths }

func (awaitVolumePaths) Name() string { return "await removal of volume paths" }

func (s awaitVolumePaths) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	logger := klog.FromContext(ctx)
	err := wait.PollUntilContextCancel(ctx, volumePathsPeriod, true, func(ctx context.Context) (bool, error) {
		left := s.paths.VolumesExist(ctx, p.pod.UID)
		if left {
			logger.V(3).Info("Pod is terminated, but some volumes have not been cleaned up", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
		}
		return !left, nil
	})
	if err != nil {
		return settled, err
	}
	logger.V(3).Info("Pod termination cleaned up volume paths", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return proceed, nil
}

// unlessIdle leaves the step out for a static pod while the volume manager unmounts nothing: until every source of pods has reported, since
// volumes of a silent source's pods would look like orphans. What waits for the end of the static pod, its successor or its own next life, may
// be the API server, which is that source. The volumes are taken over by the next life, or unmounted once all sources have reported.
type unlessIdle struct {
	step[*cleanUpPass]
	unmounting func() bool
}

func (s unlessIdle) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	if s.unmounting != nil && kubetypes.IsStaticPod(p.pod) && !s.unmounting() {
		klog.FromContext(ctx).V(2).Info("Not waiting for volumes of the static pod, nothing is unmounted before all sources have reported",
			"step", s.Name(), "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
		return proceed, nil
	}
	return s.step.Run(ctx, p)
}
