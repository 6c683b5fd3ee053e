package generator

import (
	"context"
	"net"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// Statuses returns the last reported status of a pod.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Resizes stores the conditions about in-place resizes of pods.
type Resizes interface {
	GetPodResizeConditions(uid types.UID) []*v1.PodCondition
	ClearPodResizePendingCondition(uid types.UID)
	ClearPodResizeInProgressCondition(uid types.UID) (int64, bool)
}

// Probes sets started and ready of the containers in a status, and may start readiness probes early for that.
type Probes interface {
	UpdatePodStatus(ctx context.Context, pod *v1.Pod, status *v1.PodStatus)
}

// Devices adds the health of allocated devices to a status.
type Devices interface {
	UpdateAllocatedResourcesStatus(pod *v1.Pod, status *v1.PodStatus)
}

// PodCgroups reads the settings of a pod's cgroup.
type PodCgroups interface {
	GetPodCgroupConfig(pod *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error)
}

// Images returns the digested reference of an image.
type Images interface {
	GetImageRef(ctx context.Context, image kubecontainer.ImageSpec) (string, error)
}

// RuntimeClasses returns the runtime handler of a runtime class; the empty name is the default handler.
type RuntimeClasses interface {
	LookupRuntimeHandler(runtimeClass *string) (string, error)
}

// Evictor decides whether a pod is failed. It is called for each status, and must not block.
type Evictor interface {
	ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse
}

// OOMVictims returns which containers of a pod were not OOM-killed, by ID, although the runtime says so.
type OOMVictims func(pod *v1.Pod) func(containerID string) bool

// Config is the configuration of a Generator. Only Statuses, Resizes and Reasons are required.
type Config struct {
	Statuses Statuses
	Resizes  Resizes
	Reasons  *podstatus.ReasonCache
	Probes   Probes
	Devices  Devices
	// PodCgroups is called for every status, because the layout of the cgroups is complete only after the container
	// manager has started.
	PodCgroups     func() PodCgroups
	Images         Images
	RuntimeClasses RuntimeClasses
	// RuntimeHandlers returns the handlers that the runtime reported last.
	RuntimeHandlers func() []kubecontainer.RuntimeHandler
	// HostIPs returns the node's addresses, primary first. Nil in standalone mode: the status then has no host addresses.
	HostIPs func(context.Context) ([]net.IP, error)
	// NodeIPs are the addresses given by --node-ip.
	NodeIPs []net.IP
	// OOMVictims is called for the status of a pod with a container that the runtime reports as OOMKilled; may be nil. It
	// must not block.
	OOMVictims OOMVictims
	// Evictors are called in this order; the first that fails the pod determines reason and message.
	Evictors []Evictor
	// Recorder gets an event when the family of the node's address changes; may be nil.
	Recorder record.EventRecorderLogger
	Features Features
}
