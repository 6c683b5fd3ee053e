package podsync

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
)

// awaitVolumes waits until the pod's volumes are attached and mounted. A pod whose volumes this node cannot attach because its
// limit is reached will never run here: it is rejected, so that its controller makes another one elsewhere (KEP-4876).
type awaitVolumes struct {
	volumes Volumes
	reject  func(ctx context.Context, pod *v1.Pod, reason, message string)
	events  events
}

func (awaitVolumes) Name() string { return "await volumes" }

func (s awaitVolumes) Run(ctx context.Context, p *syncPass) (verdict, error) {
	err := s.volumes.WaitForAttachAndMount(ctx, p.Pod)
	if err == nil {
		return proceed, nil
	}
	var full *volumemanager.VolumeAttachLimitExceededError
	if errors.As(err, &full) {
		s.reject(ctx, p.Pod, volumemanager.VolumeAttachmentLimitExceededReason, full.Error())
		p.outcome.Terminal = true
		return settled, nil
	}
	if !wait.Interrupted(err) {
		s.events.warn(ctx, p.Pod, kubeevents.FailedMountVolume, "Unable to attach or mount volumes: %v", err)
	}
	return settled, err
}
