package containerspec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// ContainerResources returns allocations and cgroups; the container manager implements it.
type ContainerResources interface {
	// GetResources returns the devices, mounts, environment, annotations and CDI devices that device plugins and DRA
	// drivers allocated to the container when the pod was admitted. The result belongs to the caller.
	GetResources(ctx context.Context, pod *v1.Pod, container *v1.Container) (*kubecontainer.RunContainerOptions, error)
	// NewPodContainerManager returns the manager of pod cgroups; a no-op one without cgroups per QoS class.
	NewPodContainerManager() cm.PodContainerManager
}

// DynamicResources prepares the devices of resource claims (DRA). Both calls are idempotent.
type DynamicResources interface {
	PrepareDynamicResources(ctx context.Context, pod *v1.Pod) error
	UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error
}

// Volumes returns mounted volumes; the volume manager implements it.
type Volumes interface {
	// GetMountedVolumesForPod returns the mounted volumes by their name in the pod. The map belongs to the caller.
	GetMountedVolumesForPod(podName volumetypes.UniquePodName) kubecontainer.VolumeMap
	// GetExtraSupplementalGroupsForPod returns the groups in annotations of the pod's persistent volumes.
	GetExtraSupplementalGroupsForPod(pod *v1.Pod) []int64
}

// PodDNS computes the DNS configuration of a pod from its policy and the node's resolv.conf.
type PodDNS interface {
	GetPodDNS(ctx context.Context, pod *v1.Pod) (*runtimeapi.DNSConfig, error)
}

// UserNamespaces allocates ID ranges to pods with hostUsers: false. Repeated calls return the same range for a pod.
type UserNamespaces interface {
	GetOrCreateUserNamespaceMappings(
		logger klog.Logger, pod *v1.Pod, runtimeHandler string,
	) (*runtimeapi.UserNamespace, error)
}

// RuntimeClasses maps a RuntimeClass to the name of the runtime's handler. A nil or empty name is the default handler
// "".
type RuntimeClasses interface {
	LookupRuntimeHandler(runtimeClassName *string) (string, error)
}

// Services lists the services of all namespaces from a cache.
type Services interface {
	List(selector labels.Selector) ([]*v1.Service, error)
}

// ConfigMaps returns a ConfigMap to which a registered pod refers. The result is shared and must not be modified.
type ConfigMaps interface {
	GetConfigMap(namespace, name string) (*v1.ConfigMap, error)
}

// Secrets returns a Secret to which a registered pod refers. The result is shared and must not be modified.
type Secrets interface {
	GetSecret(namespace, name string) (*v1.Secret, error)
}

// HostFiles inspects paths in the host's mount namespace.
type HostFiles interface {
	PathExists(path string) (bool, error)
	GetMode(path string) (os.FileMode, error)
}

// Subpaths prepares sub-paths of volumes such that symbolic links cannot lead outside the volume.
type Subpaths interface {
	SafeMakeDir(subdir string, base string, perm os.FileMode) error
	PrepareSafeSubpath(subPath subpath.Subpath) (newHostPath string, cleanupAction func(), err error)
}

// BlockDevices finds the symbolic links under which block volumes are mapped into pods.
type BlockDevices interface {
	IsSymlinkExist(path string) (bool, error)
}

// Config is the configuration of a Helper. All fields are required unless noted otherwise. Optional interface fields
// must be nil interfaces when absent, not interfaces that hold a nil pointer.
type Config struct {
	Layout   paths.Layout
	Features Features
	// ClusterDomain is the DNS domain of the cluster; empty is allowed and leaves pods' FQDN ending in "svc.".
	ClusterDomain string
	// NodeIPs are those of --node-ip, may be empty; the family of the first one comes first in lists of pod IPs.
	NodeIPs []net.IP

	Resources        ContainerResources
	DynamicResources DynamicResources
	Volumes          Volumes
	DNS              PodDNS
	UserNamespaces   UserNamespaces
	HostFiles        HostFiles
	Subpaths         Subpaths
	// BlockDevices is optional; the default inspects the host.
	BlockDevices BlockDevices

	// RuntimeClasses is nil without an API server; then no runtime handler supports recursive read-only mounts.
	RuntimeClasses RuntimeClasses
	// RuntimeHandlers returns what the runtime reported last; it is empty before, and for old runtimes.
	RuntimeHandlers func() []kubecontainer.RuntimeHandler

	// Services is nil without an API server; then pods have no service variables.
	Services Services
	// ServicesSynced returns whether the services were listed at least once. It may be nil if Services is nil.
	ServicesSynced func() bool
	// ConfigMaps and Secrets are nil without an API server; containers that need one then fail to start.
	ConfigMaps ConfigMaps
	Secrets    Secrets

	// Node returns the Node object, or the one that the agent would register if there is none yet.
	Node func(ctx context.Context) (*v1.Node, error)
	// HostIPs returns the node's addresses, primary family first.
	HostIPs func(ctx context.Context) ([]net.IP, error)

	// RequestPodReinspect requests that the PLEG inspects the pod in its next relist. It may be called before the PLEG
	// exists.
	RequestPodReinspect func(uid types.UID)
	// PodCPUAndMemoryStats returns the latest usage of one pod from the stats provider.
	PodCPUAndMemoryStats func(
		ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus,
	) (*statsapi.PodStats, error)
	// OnPodSandboxReady is called after the sandbox is ready and before the first container is created; see SandboxReady.
	// Its error is only logged.
	OnPodSandboxReady func(ctx context.Context, pod *v1.Pod) error
}

// validate names every required field that is missing.
func (c Config) validate() error {
	required := []struct {
		field   string
		missing bool
	}{
		{"Layout", c.Layout == paths.Layout{}},
		{"Resources", c.Resources == nil},
		{"DynamicResources", c.DynamicResources == nil},
		{"Volumes", c.Volumes == nil},
		{"DNS", c.DNS == nil},
		{"UserNamespaces", c.UserNamespaces == nil},
		{"HostFiles", c.HostFiles == nil},
		{"Subpaths", c.Subpaths == nil},
		{"RuntimeHandlers", c.RuntimeHandlers == nil},
		{"ServicesSynced", c.Services != nil && c.ServicesSynced == nil},
		{"Node", c.Node == nil},
		{"HostIPs", c.HostIPs == nil},
		{"RequestPodReinspect", c.RequestPodReinspect == nil},
		{"PodCPUAndMemoryStats", c.PodCPUAndMemoryStats == nil},
		{"OnPodSandboxReady", c.OnPodSandboxReady == nil},
	}
	var errs []error
	for _, r := range required {
		if r.missing {
			errs = append(errs, fmt.Errorf("container spec: %s is not set", r.field))
		}
	}
	return errors.Join(errs...)
}
