package nodestatus

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Client reaches the API server. A clientset has it.
type Client interface {
	CoreV1() v1core.CoreV1Interface
}

// NodeLister answers from a local cache of the own Node; its answers are shared and must not be modified.
type NodeLister interface {
	Get(name string) (*v1.Node, error)
}

// NodeResources is the part of the container manager that knows how much the node has.
type NodeResources interface {
	// GetCapacity returns what the machine has beyond cAdvisor's figures; nil values mean not known yet.
	GetCapacity(localStorageCapacityIsolation bool) v1.ResourceList
	// GetDevicePluginResourceCapacity returns capacity and allocatable of the device plugins, and the removed resources.
	GetDevicePluginResourceCapacity() (v1.ResourceList, v1.ResourceList, []string)
	// GetNodeAllocatableReservation is what is withheld from pods.
	GetNodeAllocatableReservation() v1.ResourceList
}

// ContainerManager is the part of the container manager that speaks of its own state.
type ContainerManager interface {
	Status() cm.Status
	// ShouldResetExtendedResourceCapacity is true when the node was recreated and the device plugins have not reported.
	ShouldResetExtendedResourceCapacity() bool
}

// MachineSource describes hardware and operating system; see Machine.
type MachineSource interface {
	MachineInfo() (*cadvisorapi.MachineInfo, error)
	VersionInfo() (*cadvisorapi.VersionInfo, error)
}

// Runtime is the container runtime. Version is a remote call and may be slow.
type Runtime interface {
	Type() string
	Version(ctx context.Context) (kubecontainer.Version, error)
	UpdatePodCIDR(ctx context.Context, podCIDR string) error
}

// RuntimeConditions are the reasons for which the node is not Ready; nil means none.
type RuntimeConditions interface {
	RuntimeErrors() error
	NetworkErrors() error
	StorageErrors() error
}

// RuntimeFacts is what the runtime said of itself when it was last asked.
type RuntimeFacts interface {
	RuntimeHandlers() []kubecontainer.RuntimeHandler
	// RuntimeFeatures is nil until the runtime has answered.
	RuntimeFeatures() *kubecontainer.RuntimeFeatures
}

// PodCIDRs remembers the pod CIDR that the runtime was last told, several joined by commas.
type PodCIDRs interface {
	PodCIDR() string
	SetPodCIDR(cidr string)
}

// RuntimeState is the tracked state of the runtime.
type RuntimeState interface {
	RuntimeConditions
	RuntimeFacts
	PodCIDRs
}

// RuntimeUp asks the runtime for its status and records it in the RuntimeState. It is called concurrently.
type RuntimeUp interface {
	Update(ctx context.Context)
}

// Pressure is the eviction manager's present judgement.
type Pressure interface {
	IsUnderMemoryPressure() bool
	IsUnderDiskPressure() bool
	IsUnderPIDPressure() bool
}

// Images lists the images on the node, largest first, from a cache.
type Images interface {
	GetImageList() ([]kubecontainer.Image, error)
}

// Volumes is the volume manager's list of volumes in use. The attach/detach controller does not detach a volume that
// the Node lists, and the volume manager does not mount an attachable volume before it is listed.
type Volumes interface {
	ReconcilerStatesHasBeenSynced() bool
	GetVolumesInUse() []v1.UniqueVolumeName
	MarkVolumesAsReportedInUse(reported []v1.UniqueVolumeName)
}

// Shutdown is an error while the machine shuts down.
type Shutdown interface {
	ShutdownStatus() error
}

// StartupTracker measures how long the node took to come up.
type StartupTracker interface {
	RecordAttemptRegisterNode()
	RecordRegisteredNewNode()
	RecordNodeReady()
}

// Recorder publishes events.
type Recorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFmt string, args ...any)
}
