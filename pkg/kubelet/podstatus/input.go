package podstatus

import (
	"net"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Input is everything that a pod status depends on. Generate does not modify it.
type Input struct {
	// Pod is the pod with its allocated resources; Pod.Status is the status that the API server has.
	Pod *v1.Pod
	// Runtime is the pod in the runtime, newest container first. Nil means that the pod is not in the runtime.
	Runtime *kubecontainer.PodStatus
	// Previous is the status manager's last status of the pod, or Pod.Status when it has none.
	Previous v1.PodStatus
	// Terminal is true when no container of the pod runs or will be started.
	Terminal bool
	// Evict, if not nil, fails the pod with this reason and message (for example when its active deadline is exceeded).
	Evict *Eviction

	Network  Network
	Features Features
	Lookups  Lookups
	// RecursiveReadOnly is true if the pod's runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
	// ResizeConditions are the status manager's conditions about a resize of the pod. They are ignored if Terminal is
	// true.
	ResizeConditions []*v1.PodCondition
}

// Eviction is the reason why the agent fails a pod.
type Eviction struct {
	Reason, Message string
}

// Network holds the node's addresses.
type Network struct {
	// HostIPs are the node's addresses, primary first, at most two. Empty means that the node is not registered yet, or
	// that there is no API server: the status then has no host addresses.
	HostIPs []net.IP
	// NodeIPs are the configured addresses. The family of the first one is the primary family of pod addresses.
	NodeIPs []net.IP
}

// Lookups are functions that Generate calls. Each may be nil if there is nothing to look up.
type Lookups struct {
	// StartError returns why the last start of a container of the pod failed.
	StartError func(container string) (*Reason, bool)
	// ImageRef returns the digested reference of an image that is mounted as a volume. It must not change its argument.
	ImageRef func(*runtimeapi.ImageSpec) (string, error)
	// PodCgroup returns the resources that the pod's cgroup enforces. It is called only for running pods.
	PodCgroup func() CgroupResources
	// Probes sets started and ready of all container statuses.
	Probes func(*v1.PodStatus)
	// SparedByOOM reports whether a container with this ID is not among those that the OOM killer has killed by the kernel
	// log, although the runtime says so; false if that is unknown.
	SparedByOOM func(containerID string) bool
	// Devices sets the health of devices that are allocated to containers.
	Devices func(*v1.PodStatus)
}

// CgroupResources are the settings of a cgroup in terms of the API. A value that is not set or cannot be read is nil.
type CgroupResources struct {
	CPURequest, CPULimit, MemoryLimit *resource.Quantity
}

// Features are the feature gates on which a pod status depends; each field has the name of its gate.
type Features struct {
	ContainerRestartRules                   bool
	RestartAllContainersOnContainerExits    bool
	ChangeContainerStatusOnKubeletRestart   bool
	ContainerStopSignals                    bool
	ImageVolumeWithDigest                   bool
	InPlacePodLevelResourcesVerticalScaling bool
	PodLevelResources                       bool
	PodReadyToStartContainersCondition      bool
}

// Note is an observation of Generate that the caller logs.
type Note struct {
	// Text is a constant message; the variable parts are in the other fields.
	Text string
	// Problem is true for an error.
	Problem bool
	// Container and Volume name the subject of the note, if it has one.
	Container, Volume string
	// Phase is the phase that was rejected or replaced, if the note is about one.
	Phase v1.PodPhase
	Err   error
}
