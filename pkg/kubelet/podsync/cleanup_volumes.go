package podsync

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// volumePathsPeriod is the interval at which the disk is checked for mounted volumes.
const volumePathsPeriod = 100 * time.Millisecond

// awaitUnmount waits until the volume manager has unmounted the pod's volumes.
type awaitUnmount struct{ volumes Volumes }

func (awaitUnmount) Name() string { return StepAwaitUnmount }

func (s awaitUnmount) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	if err := s.volumes.WaitForUnmount(ctx, p.pod); err != nil {
		return endPhase, err
	}
	klog.FromContext(ctx).V(4).Info("Pod termination unmounted volumes", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return nextStep, nil
}

// awaitVolumePaths waits until no volume of the pod is mounted on disk, or until the context ends.
type awaitVolumePaths struct{ paths VolumePaths }

func (awaitVolumePaths) Name() string { return StepAwaitVolumePaths }

func (s awaitVolumePaths) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	logger := klog.FromContext(ctx)
	err := wait.PollUntilContextCancel(ctx, volumePathsPeriod, true, func(ctx context.Context) (bool, error) {
		left := s.paths.VolumesExist(ctx, p.pod.UID)
		if left {
			logger.V(3).Info("Pod is terminated, but some volumes have not been cleaned up",
				"pod", klog.KObj(p.pod), "podUID", p.pod.UID)
		}
		return !left, nil
	})
	if err != nil {
		return endPhase, err
	}
	logger.V(3).Info("Pod termination cleaned up volume paths", "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
	return nextStep, nil
}

// whileUnmounting skips the step for a static pod as long as the volume manager unmounts nothing. That is until all
// sources of pods have reported, because volumes of pods of a source that has not reported would be regarded as
// orphaned. Another static pod with the same name, or the next instance of this pod, waits for the end of the pod, and
// may be the API server, which is that source. The next instance uses the mounts again, or they are unmounted when all
// sources have reported.
type whileUnmounting struct {
	step[*cleanUpPass]
	unmountsVolumes func() bool
}

func (s whileUnmounting) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	if kubetypes.IsStaticPod(p.pod) && !s.unmountsVolumes() {
		klog.FromContext(ctx).V(2).Info("Not waiting for volumes of static pod, since not all sources have reported",
			"step", s.Name(), "pod", klog.KObj(p.pod), "podUID", p.pod.UID)
		return nextStep, nil
	}
	return s.step.Run(ctx, p)
}
