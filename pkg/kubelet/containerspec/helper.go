package containerspec

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
)

// podDirMode is the mode of a pod's directories: other users of the host have no access.
const podDirMode os.FileMode = 0o750

// Helper implements the RuntimeHelper of the container runtime manager. It has no state and is safe for concurrent use.
type Helper struct {
	cfg Config
}

var _ kubecontainer.RuntimeHelper = (*Helper)(nil)

// New returns a Helper, or an error that names the missing required fields.
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

// GetPodCgroupParent returns the pod's cgroup in the syntax of the cgroup driver, empty without cgroups per QoS class.
func (h *Helper) GetPodCgroupParent(pod *v1.Pod) string {
	_, parent := h.cfg.Resources.NewPodContainerManager().GetPodContainerName(pod)
	return parent
}

// GetPodDir returns the directory of the pod, which may not exist.
func (h *Helper) GetPodDir(uid types.UID) string { return h.cfg.Layout.Pod(uid) }

// GetExtraSupplementalGroupsForPod returns the groups in annotations of the pod's persistent volumes.
func (h *Helper) GetExtraSupplementalGroupsForPod(pod *v1.Pod) []int64 {
	return h.cfg.Volumes.GetExtraSupplementalGroupsForPod(pod)
}

// GetOrCreateUserNamespaceMappings returns the user namespace for the pod's sandbox.
func (h *Helper) GetOrCreateUserNamespaceMappings(
	logger klog.Logger, pod *v1.Pod, runtimeHandler string,
) (*runtimeapi.UserNamespace, error) {
	return h.cfg.UserNamespaces.GetOrCreateUserNamespaceMappings(logger, pod, runtimeHandler)
}

// PrepareDynamicResources prepares the pod's resource claims. It is called before the pod's first sandbox is created.
func (h *Helper) PrepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.DynamicResources.PrepareDynamicResources(ctx, pod)
}

// UnprepareDynamicResources releases the pod's resource claims.
func (h *Helper) UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.DynamicResources.UnprepareDynamicResources(ctx, pod)
}

// RequestPodReinspect requests that the next relist inspects the pod, even if its containers are unchanged.
func (h *Helper) RequestPodReinspect(uid types.UID) { h.cfg.RequestPodReinspect(uid) }

// PodCPUAndMemoryStats reads the latest CPU and memory usage of the pod.
func (h *Helper) PodCPUAndMemoryStats(
	ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus,
) (*statsapi.PodStats, error) {
	return h.cfg.PodCPUAndMemoryStats(ctx, pod, status)
}

// OnPodSandboxReady is called when sandbox, network and volumes of the pod are ready.
func (h *Helper) OnPodSandboxReady(ctx context.Context, pod *v1.Pod) error {
	return h.cfg.OnPodSandboxReady(ctx, pod)
}

// MakePodDataDirs creates the pod's directory and those of its volumes and plugins. It does not change existing ones.
func (h *Helper) MakePodDataDirs(pod *v1.Pod) error {
	layout := h.cfg.Layout
	for _, dir := range []string{layout.Pod(pod.UID), layout.PodVolumes(pod.UID), layout.PodPlugins(pod.UID)} {
		if err := os.MkdirAll(dir, podDirMode); err != nil {
			return fmt.Errorf("creating data directory of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
