package server

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// PodLookup finds the pods that are bound to this node.
type PodLookup interface {
	GetPods() []*v1.Pod
	GetPodByName(namespace, name string) (*v1.Pod, bool)
	GetPodByUID(types.UID) (*v1.Pod, bool)
}

// PodStatuses knows the latest status of each pod, which for static pods is newer than what their specification
// carries.
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

// StatsSource is what the stock stats provider offers of stats.Provider.
type StatsSource interface {
	PodStats
	CgroupStats
	NodeStats
}

// Cgroups knows where pods live in the cgroup tree.
type Cgroups interface {
	GetNodeConfig() cm.NodeConfig
	GetPodCgroupRoot() string
	NewPodContainerManager() cm.PodContainerManager
}

// RawStats reads containers straight from cAdvisor.
type RawStats interface {
	GetRequestedContainersInfo(
		name string, options cadvisorv2.RequestOptions,
	) (map[string]*cadvisorapi.ContainerInfo, error)
}

// StatsHostConfig is what a StatsHost is made of.
type StatsHostConfig struct {
	Pods    PodLookup
	Status  PodStatuses
	Cgroups Cgroups
	Volumes MountedVolumes
	Raw     RawStats
	// Node returns this node as the API server knows it, or as it would register itself when there is none.
	Node func(context.Context) (*v1.Node, error)
}

// StatsHost answers what the stats endpoints and the resource analyzer ask about the node. It exists apart from Host
// because the analyzer, and so eviction, needs it long before there is anything to serve.
type StatsHost struct {
	StatsSource
	cfg StatsHostConfig
}

var _ serverstats.Provider = &StatsHost{}

// NewStatsHost returns a host without a stats source: the stock provider needs the resource analyzer, which needs this
// host. UseStats closes the circle.
func NewStatsHost(cfg StatsHostConfig) *StatsHost { return &StatsHost{cfg: cfg} }

// UseStats sets where measurements come from. It must be called once, before the first measurement is asked for.
func (h *StatsHost) UseStats(source StatsSource) { h.StatsSource = source }

// GetPods returns every pod bound to this node, mirror pods included. Static pods carry the status the agent last gave
// them, since nothing else writes it into their specification. The pods must not be modified.
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

// GetPodByName finds a pod that is bound to this node.
func (h *StatsHost) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return h.cfg.Pods.GetPodByName(namespace, name)
}

// GetPodByCgroupfs finds the pod whose cgroup has this literal name.
func (h *StatsHost) GetPodByCgroupfs(cgroup string) (*v1.Pod, bool) {
	ours, uid := h.cfg.Cgroups.NewPodContainerManager().IsPodCgroup(cgroup)
	if !ours {
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

// GetRequestedContainersInfo passes a query on to cAdvisor.
func (h *StatsHost) GetRequestedContainersInfo(
	name string, options cadvisorv2.RequestOptions,
) (map[string]*cadvisorapi.ContainerInfo, error) {
	return h.cfg.Raw.GetRequestedContainersInfo(name, options)
}
