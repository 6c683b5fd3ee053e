package containerspec

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
)

// Helper answers the container runtime manager's questions about pods and containers. It keeps no state of its own and
// may be called from any number of goroutines.
type Helper struct {
	cfg Config
}

var _ kubecontainer.RuntimeHelper = (*Helper)(nil)

// New returns a Helper. It fails, naming the fields, when a required one is missing.
func New(cfg Config) (*Helper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.BlockDevices == nil {
		cfg.BlockDevices = volumepathhandler.NewBlockVolumePathHandler()
	}
	return &Helper{cfg: cfg}, nil
}

// GetPodDNS returns the resolver configuration of the pod.
func (h *Helper) GetPodDNS(ctx context.Context, pod *v1.Pod) (*runtimeapi.DNSConfig, error) {
	return h.cfg.DNS.GetPodDNS(ctx, pod)
}

// GetPodCgroupParent returns the pod's cgroup as the cgroup driver spells it, empty when there are no cgroups per QoS
// class.
func (h *Helper) GetPodCgroupParent(pod *v1.Pod) string {
	_, spelled := h.cfg.Resources.NewPodContainerManager().GetPodContainerName(pod)
	return spelled
}

// GetPodDir returns the directory of the pod, which may not exist.
func (h *Helper) GetPodDir(uid types.UID) string { return h.cfg.Layout.Pod(uid) }

// GetExtraSupplementalGroupsForPod returns the groups that the pod's persistent volumes ask for.
func (h *Helper) GetExtraSupplementalGroupsForPod(pod *v1.Pod) []int64 {
	return h.cfg.Volumes.GetExtraSupplementalGroupsForPod(pod)
}

// GetOrCreateUserNamespaceMappings returns the user namespace for the pod's sandbox.
func (h *Helper) GetOrCreateUserNamespaceMappings(
	logger klog.Logger, pod *v1.Pod, runtimeHandler string,
) (*runtimeapi.UserNamespace, error) {
	return h.cfg.UserNamespaces.GetOrCreateUserNamespaceMappings(logger, pod, runtimeHandler)
}

// PrepareDynamicResources prepares the pod's resource claims; called before its first sandbox is made.
func (h *Helper) PrepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.DynamicResources.PrepareDynamicResources(ctx, pod)
}

// UnprepareDynamicResources gives the pod's resource claims back.
func (h *Helper) UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.DynamicResources.UnprepareDynamicResources(ctx, pod)
}

// RequestPodReinspect has the pod inspected on the next relist, even if its containers look unchanged.
func (h *Helper) RequestPodReinspect(uid types.UID) { h.cfg.RequestPodReinspect(uid) }

// PodCPUAndMemoryStats reads the latest CPU and memory usage of the pod.
func (h *Helper) PodCPUAndMemoryStats(
	ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus,
) (*statsapi.PodStats, error) {
	return h.cfg.PodCPUAndMemoryStats(ctx, pod, status)
}

// OnPodSandboxReady is told that sandbox, network and volumes of the pod are there.
func (h *Helper) OnPodSandboxReady(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.OnPodSandboxReady(ctx, pod)
}
