package podsync

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
)

// makeDataDirs creates the pod's directories.
type makeDataDirs struct {
	dirs   DataDirs
	events events
}

func (makeDataDirs) Name() string { return "make data directories" }

func (s makeDataDirs) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	err := s.dirs.MakePodDataDirs(p.Pod)
	if err != nil {
		s.events.warn(ctx, p.Pod, kubeevents.FailedToMakePodDataDirectories, "error making pod data directories: %v", err)
	}
	return nextStep, err
}

// awaitVolumes waits until the pod's volumes are attached and mounted. If the node's limit of attached volumes is
// reached the pod is rejected, so that its controller creates another one (KEP-4876).
type awaitVolumes struct {
	volumes Volumes
	reject  func(ctx context.Context, pod *v1.Pod, reason, message string)
	events  events
}

func (awaitVolumes) Name() string { return StepAwaitVolumes }

func (s awaitVolumes) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	err := s.volumes.WaitForAttachAndMount(ctx, p.Pod)
	if err == nil {
		return nextStep, nil
	}
	var full *volumemanager.VolumeAttachLimitExceededError
	if errors.As(err, &full) {
		s.reject(ctx, p.Pod, volumemanager.VolumeAttachmentLimitExceededReason, full.Error())
		p.outcome.Terminal = true
		return endPhase, nil
	}
	if !wait.Interrupted(err) {
		s.events.warn(ctx, p.Pod, kubeevents.FailedMountVolume, "Unable to attach or mount volumes: %v", err)
	}
	return endPhase, err
}
