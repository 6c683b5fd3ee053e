package volumehost

import "k8s.io/apimachinery/pkg/types"

// GetPluginDir is where a plugin keeps data of its own.
func (h *Host) GetPluginDir(plugin string) string { return h.cfg.Layout.Plugin(plugin) }

// GetVolumeDevicePluginDir is where a plugin maps block volumes globally.
func (h *Host) GetVolumeDevicePluginDir(plugin string) string {
	return h.cfg.Layout.VolumeDevicePlugin(plugin)
}

// GetPodsDir holds one directory per pod UID.
func (h *Host) GetPodsDir() string { return h.cfg.Layout.Pods() }

// GetPodVolumeDir is where a plugin mounts one volume of a pod. The plugin's name comes escaped.
func (h *Host) GetPodVolumeDir(pod types.UID, plugin, volume string) string {
	return h.cfg.Layout.PodVolume(pod, plugin, volume)
}

// GetPodPluginDir is where a plugin keeps data of one pod.
func (h *Host) GetPodPluginDir(pod types.UID, plugin string) string {
	return h.cfg.Layout.PodPlugin(pod, plugin)
}

// GetPodVolumeDeviceDir is where a plugin maps the block volumes of a pod.
func (h *Host) GetPodVolumeDeviceDir(pod types.UID, plugin string) string {
	return h.cfg.Layout.PodVolumeDevice(pod, plugin)
}
