package server

import (
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// MountedVolumes knows what is mounted for a pod.
type MountedVolumes interface {
	GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap
}

// ListVolumesForPod returns the mounted file system volumes of a pod by their name in the pod, and whether there are
// any. A volume that was found on disk after a restart has no mounter until it is mounted again; it is left out.
func (h *StatsHost) ListVolumesForPod(uid types.UID) (map[string]volume.Volume, bool) {
	found := map[string]volume.Volume{}
	for name, info := range h.cfg.Volumes.GetMountedVolumesForPod(volumetypes.UniquePodName(uid)) {
		if info.Mounter != nil {
			found[name] = info.Mounter
		}
	}
	return found, len(found) > 0
}

// ListBlockVolumesForPod is ListVolumesForPod for block volumes.
func (h *StatsHost) ListBlockVolumesForPod(uid types.UID) (map[string]volume.BlockVolume, bool) {
	found := map[string]volume.BlockVolume{}
	for name, info := range h.cfg.Volumes.GetMountedVolumesForPod(volumetypes.UniquePodName(uid)) {
		if info.BlockVolumeMapper != nil {
			found[name] = info.BlockVolumeMapper
		}
	}
	return found, len(found) > 0
}
