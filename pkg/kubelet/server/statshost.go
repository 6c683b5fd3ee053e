package server

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// PodLookup returns pods that are bound to this node.
type PodLookup interface {
	GetPods() []*v1.Pod
	GetPodByName(namespace, name string) (*v1.Pod, bool)
	GetPodByUID(types.UID) (*v1.Pod, bool)
}

// PodStatuses returns the latest status of each pod. For static pods it is newer than that in the pod object.
type PodStatuses interface {
	GetPodStatus(types.UID) (v1.PodStatus, bool)
}

// PodStats measures pods.
type PodStats interface {
	ListPodStats(ctx context.Context) ([]statsapi.PodStats, error)
	ListPodCPUAndMemoryStats(ctx context.Context) ([]statsapi.PodStats, error)
	ListPodStatsAndUpdateCPUNanoCoreUsage(ctx context.Context) ([]statsapi.PodStats, error)
}

// CgroupStats measures a cgroup by its name.
type CgroupStats interface {
	GetCgroupStats(cgroup string, update bool) (*statsapi.ContainerStats, *statsapi.NetworkStats, error)
	GetCgroupCPUAndMemoryStats(cgroup string, update bool) (*statsapi.ContainerStats, error)
}

// NodeStats measures file systems and process limits.
type NodeStats interface {
	ImageFsStats(ctx context.Context) (imageFs, containerFs *statsapi.FsStats, err error)
	RootFsStats() (*statsapi.FsStats, error)
	RlimitStats() (*statsapi.RlimitStats, error)
}

// StatsSource is the part of stats.Provider that the stock stats provider implements.
type StatsSource interface {
	PodStats
	CgroupStats
	NodeStats
}

// Cgroups returns the cgroups of pods.
type Cgroups interface {
	GetNodeConfig() cm.NodeConfig
	GetPodCgroupRoot() string
	NewPodContainerManager() cm.PodContainerManager
}

// MountedVolumes returns the mounted volumes of a pod.
type MountedVolumes interface {
	GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap
}

// RawStats returns stats of containers from cAdvisor.
type RawStats interface {
	GetRequestedContainersInfo(
		name string, options cadvisorv2.RequestOptions,
	) (map[string]*cadvisorapi.ContainerInfo, error)
}

// StatsHostConfig is the configuration of a StatsHost. All fields are required.
type StatsHostConfig struct {
	Pods    PodLookup
	Status  PodStatuses
	Cgroups Cgroups
	Volumes MountedVolumes
	Raw     RawStats
	// Node returns the Node object, or the one that the agent would register if there is none.
	Node func(context.Context) (*v1.Node, error)
}

// StatsHost implements stats.Provider, for the stats endpoints and the resource analyzer. It is separate from Host
// because the analyzer, and so eviction, needs it before the servers are started.
type StatsHost struct {
	StatsSource
	cfg StatsHostConfig
}

var _ serverstats.Provider = &StatsHost{}

// NewStatsHost returns a host without a stats source: the stock provider needs the resource analyzer, which needs this
// host. SetStats sets the source.
func NewStatsHost(cfg StatsHostConfig) *StatsHost { return &StatsHost{cfg: cfg} }

// SetStats sets the source of stats. It must be called once, before the first call of a method of StatsSource.
func (h *StatsHost) SetStats(source StatsSource) { h.StatsSource = source }

// GetPods returns every pod bound to this node, mirror pods included. Static pods have the status that the agent set
// last, because their objects do not have it. The pods must not be modified.
func (h *StatsHost) GetPods() []*v1.Pod {
	pods := h.cfg.Pods.GetPods()
	for i, pod := range pods {
		if !kubetypes.IsStaticPod(pod) {
			continue
		}
		if status, known := h.cfg.Status.GetPodStatus(pod.UID); known {
			pods[i] = pod.DeepCopy()
			pods[i].Status = status
		}
	}
	return pods
}

// GetPodByName returns a pod that is bound to this node.
func (h *StatsHost) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return h.cfg.Pods.GetPodByName(namespace, name)
}

// GetPodByCgroupfs returns the pod whose cgroup has this literal name.
func (h *StatsHost) GetPodByCgroupfs(cgroup string) (*v1.Pod, bool) {
	isPod, uid := h.cfg.Cgroups.NewPodContainerManager().IsPodCgroup(cgroup)
	if !isPod {
		return nil, false
	}
	return h.cfg.Pods.GetPodByUID(uid)
}

// GetNode returns this node.
func (h *StatsHost) GetNode(ctx context.Context) (*v1.Node, error) { return h.cfg.Node(ctx) }

// GetNodeConfig returns the container manager's settings.
func (h *StatsHost) GetNodeConfig() cm.NodeConfig { return h.cfg.Cgroups.GetNodeConfig() }

// GetPodCgroupRoot is the literal name of the cgroup above all pods.
func (h *StatsHost) GetPodCgroupRoot() string { return h.cfg.Cgroups.GetPodCgroupRoot() }

// GetRequestedContainersInfo returns stats from cAdvisor.
func (h *StatsHost) GetRequestedContainersInfo(
	name string, options cadvisorv2.RequestOptions,
) (map[string]*cadvisorapi.ContainerInfo, error) {
	return h.cfg.Raw.GetRequestedContainersInfo(name, options)
}

// ListVolumesForPod returns the mounted file system volumes of a pod by their name in the pod, and whether there are
// any. It leaves out volumes that were reconstructed after a restart and have no mounter yet.
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
