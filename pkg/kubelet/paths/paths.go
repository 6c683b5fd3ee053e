// Package paths has the paths of all directories and files of the agent. The names are stock's, so that either kubelet
// can take a node over from the other; what only this agent has is below Layout.Own.
package paths

import (
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig"
)

// Layout derives all paths from the kubelet's root directory and the pod logs directory. The zero value is not usable.
type Layout struct {
	root    string
	podLogs string
}

// New returns the layout below root (--root-dir) and podLogs (podLogsDir). Both must be absolute.
func New(root, podLogs string) Layout {
	return Layout{root: filepath.Clean(root), podLogs: filepath.Clean(podLogs)}
}

// Root is the kubelet's root directory, /var/lib/kubelet by default.
func (l Layout) Root() string { return l.root }

// PodLogs is the directory under which the runtime writes container logs.
func (l Layout) PodLogs() string { return l.podLogs }

// Own is the directory of state that stock does not have.
func (l Layout) Own() string { return filepath.Join(l.root, "plimsoll") }

// Terminations has one file for each pod whose termination has begun.
func (l Layout) Terminations() string { return filepath.Join(l.Own(), "terminations") }

// PluginTaints has the taints that the agent has added to the Node for conditions of eviction plugins.
func (l Layout) PluginTaints() string { return filepath.Join(l.Own(), "taints.json") }

// ReportedNode has the fields that the agent has written to the Node for reporter plugins.
func (l Layout) ReportedNode() string { return filepath.Join(l.Reporter(), "node.json") }

// Reporter has the state of reporter plugins.
func (l Layout) Reporter() string { return filepath.Join(l.Own(), "reporter") }

// ReporterCheckpoint has the last answers of reporter plugins.
func (l Layout) ReporterCheckpoint() string {
	return filepath.Join(l.Reporter(), "reporter_manager_checkpoint")
}

// ReporterTaints has the taints that the agent has added to the CustomNodeResource.
func (l Layout) ReporterTaints() string { return filepath.Join(l.Reporter(), "taints.json") }

// Pods has one directory for each pod UID.
func (l Layout) Pods() string { return filepath.Join(l.root, kubeletconfig.DefaultKubeletPodsDirName) }

// Plugins is where volume plugins keep their global data.
func (l Layout) Plugins() string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletPluginsDirName)
}

// Plugin is the directory of one volume plugin.
func (l Layout) Plugin(name string) string { return filepath.Join(l.Plugins(), name) }

// PluginsRegistry is the directory in which plugins register themselves by a socket.
func (l Layout) PluginsRegistry() string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletPluginsRegistrationDirName)
}

// VolumeDevicePlugin is where a block volume plugin keeps global map paths.
func (l Layout) VolumeDevicePlugin(name string) string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletPluginsDirName, name,
		kubeletconfig.DefaultKubeletVolumeDevicesDirName)
}

// PodResources holds the socket of the PodResources API.
func (l Layout) PodResources() string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletPodResourcesDirName)
}

// PodsAPI holds the socket of the pods API.
func (l Layout) PodsAPI() string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletPodsAPIDirName)
}

// Checkpoints holds container checkpoints (KEP-2008).
func (l Layout) Checkpoints() string {
	return filepath.Join(l.root, kubeletconfig.DefaultKubeletCheckpointsDirName)
}

// Pod is the directory of one pod.
func (l Layout) Pod(uid types.UID) string { return filepath.Join(l.Pods(), string(uid)) }

// PodVolumes holds the mounted volumes of a pod, one directory per plugin.
func (l Layout) PodVolumes(uid types.UID) string {
	return filepath.Join(l.Pod(uid), kubeletconfig.DefaultKubeletVolumesDirName)
}

// PodVolume is where one volume of a pod is mounted. Volume plugins pass their name escaped already, as in
// kubernetes.io~empty-dir.
func (l Layout) PodVolume(uid types.UID, plugin, volume string) string {
	return filepath.Join(l.PodVolumes(uid), plugin, volume)
}

// PodVolumeSubpaths holds the bind mounts of subPath volumes of a pod.
func (l Layout) PodVolumeSubpaths(uid types.UID) string {
	return filepath.Join(l.Pod(uid), kubeletconfig.DefaultKubeletVolumeSubpathsDirName)
}

// PodVolumeDevices holds the block volumes of a pod.
func (l Layout) PodVolumeDevices(uid types.UID) string {
	return filepath.Join(l.Pod(uid), kubeletconfig.DefaultKubeletVolumeDevicesDirName)
}

// PodVolumeDevice is where one plugin maps the block volumes of a pod.
func (l Layout) PodVolumeDevice(uid types.UID, plugin string) string {
	return filepath.Join(l.PodVolumeDevices(uid), plugin)
}

// PodPlugins holds what volume plugins keep per pod.
func (l Layout) PodPlugins(uid types.UID) string {
	return filepath.Join(l.Pod(uid), kubeletconfig.DefaultKubeletPluginsDirName)
}

// PodPlugin is what one volume plugin keeps for one pod.
func (l Layout) PodPlugin(uid types.UID, plugin string) string {
	return filepath.Join(l.PodPlugins(uid), plugin)
}

// PodContainer holds what the agent keeps for one container, such as its termination log.
func (l Layout) PodContainer(uid types.UID, container string) string {
	return filepath.Join(l.Pod(uid), kubeletconfig.DefaultKubeletContainersDirName, container)
}

// EtcHosts is the hosts file that is mounted into the containers of a pod.
func (l Layout) EtcHosts(uid types.UID) string { return filepath.Join(l.Pod(uid), "etc-hosts") }
