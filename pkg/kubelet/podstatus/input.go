package podstatus

import (
	"net"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Input is everything a pod status is made from. Nothing in it is modified.
type Input struct {
	// Pod is the pod with its allocated resources; Pod.Status is what the API server shows.
	Pod *v1.Pod
	// Runtime is what the runtime reports, newest container first. Nil means that it knows nothing of the pod.
	Runtime *kubecontainer.PodStatus
	// Previous is the status manager's last status of the pod, or Pod.Status when it has none.
	Previous v1.PodStatus
	// Terminal is true once no container of the pod will be started any more.
	Terminal bool
	// Evict, if not nil, fails the pod with this reason and message (the active deadline, for example).
	Evict *Eviction

	Network  Network
	Features Features
	Lookups  Lookups
	// RecursiveReadOnly says whether the pod's runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
	// ResizeConditions are the status manager's conditions about a resize of the pod. They are ignored when Terminal.
	ResizeConditions []*v1.PodCondition
}

// Eviction is why the agent itself ends a pod.
type Eviction struct {
	Reason, Message string
}

// Network is what is known about the node's addresses.
type Network struct {
	// HostIPs are the node's addresses, primary first, at most two. Empty means that the node is not known yet, or that
	// there is no API server: host addresses are then not reported.
	HostIPs []net.IP
	// NodeIPs are the configured addresses; the first one decides which family of pod addresses comes first.
	NodeIPs []net.IP
}

// Lookups are asked while a status is made. Each may be nil, which means that there is nothing to be found.
type Lookups struct {
	// StartError is why the last start of a container of the pod failed.
	StartError func(container string) (*Reason, bool)
	// ImageRef is the digested reference of an image that is mounted as a volume. It must not change its argument.
	ImageRef func(*runtimeapi.ImageSpec) (string, error)
	// PodCgroup is what the pod's cgroup enforces. It is asked only for pods that run.
	PodCgroup func() CgroupResources
	// Probes sets started and ready of all container statuses.
	Probes func(*v1.PodStatus)
	// Devices sets the health of devices that are allocated to containers.
	Devices func(*v1.PodStatus)
}

// CgroupResources are the settings of a cgroup in terms of the API. What is nil is not set or could not be read.
type CgroupResources struct {
	CPURequest, CPULimit, MemoryLimit *resource.Quantity
}

// Features are the feature gates that change a pod status; each is named after its gate.
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

// Note is something seen while a status was made that belongs in a log.
type Note struct {
	// Text is a constant sentence; what varies is in the other fields.
	Text string
	// Problem is true when somebody should look at it.
	Problem bool
	// Container and Volume say what the note is about, if it is about one.
	Container, Volume string
	// Phase is the phase that was refused or replaced, if the note is about one.
	Phase v1.PodPhase
	Err   error
}
