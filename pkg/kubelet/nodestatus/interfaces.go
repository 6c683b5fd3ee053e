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

// Client is the part of a clientset that this package uses.
type Client interface {
	CoreV1() v1core.CoreV1Interface
}

// NodeLister reads the Node of this agent from a cache. The returned objects are shared and must not be modified.
type NodeLister interface {
	Get(name string) (*v1.Node, error)
}

// NodeResources is the part of the container manager that returns the resources of the node.
type NodeResources interface {
	// GetCapacity returns the capacity of resources that cAdvisor does not report; nil if it is not known yet.
	GetCapacity(localStorageCapacityIsolation bool) v1.ResourceList
	// GetDevicePluginResourceCapacity returns capacity and allocatable of the device plugins, and the removed resources.
	GetDevicePluginResourceCapacity() (v1.ResourceList, v1.ResourceList, []string)
	// GetNodeAllocatableReservation returns the resources that are reserved for the system.
	GetNodeAllocatableReservation() v1.ResourceList
}

// ContainerManager is the part of the container manager that returns its own state.
type ContainerManager interface {
	Status() cm.Status
	// ShouldResetExtendedResourceCapacity returns true if the node was recreated and the device plugins have not reported.
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

// RuntimeConditions returns the reasons why the node is not Ready; nil means that there are none.
type RuntimeConditions interface {
	RuntimeErrors() error
	NetworkErrors() error
	StorageErrors() error
}

// RuntimeCapabilities returns the handlers and features in the last answer of the runtime.
type RuntimeCapabilities interface {
	RuntimeHandlers() []kubecontainer.RuntimeHandler
	// RuntimeFeatures is nil until the runtime has answered.
	RuntimeFeatures() *kubecontainer.RuntimeFeatures
}

// PodCIDRs stores the pod CIDR that was last sent to the runtime; several are joined by commas.
type PodCIDRs interface {
	PodCIDR() string
	SetPodCIDR(cidr string)
}

// RuntimeState is the last known state of the runtime.
type RuntimeState interface {
	RuntimeConditions
	RuntimeCapabilities
	PodCIDRs
}

// RuntimeUpdater queries the status of the runtime and stores it in the RuntimeState. It is called concurrently.
type RuntimeUpdater interface {
	Update(ctx context.Context)
}

// Pressure returns the current pressure conditions of the eviction manager.
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

// Shutdown returns an error while the machine shuts down.
type Shutdown interface {
	ShutdownStatus() error
}

// StartupTracker measures the steps of the start of the node.
type StartupTracker interface {
	RecordAttemptRegisterNode()
	RecordRegisteredNewNode()
	RecordNodeReady()
}

// Recorder publishes events.
type Recorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFmt string, args ...any)
}
