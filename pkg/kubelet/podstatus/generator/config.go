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

// Statuses is where the last status of a pod is found.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Resizes keeps the conditions about in-place resizes of pods.
type Resizes interface {
	GetPodResizeConditions(uid types.UID) []*v1.PodCondition
	ClearPodResizePendingCondition(uid types.UID)
	ClearPodResizeInProgressCondition(uid types.UID) (int64, bool)
}

// Probes sets started and ready of the containers in a status, and may run readiness probes early for it.
type Probes interface {
	UpdatePodStatus(ctx context.Context, pod *v1.Pod, status *v1.PodStatus)
}

// Devices adds the health of allocated devices to a status.
type Devices interface {
	UpdateAllocatedResourcesStatus(pod *v1.Pod, status *v1.PodStatus)
}

// PodCgroups reads what a pod's cgroup enforces.
type PodCgroups interface {
	GetPodCgroupConfig(pod *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error)
}

// Images finds the digested reference of an image.
type Images interface {
	GetImageRef(ctx context.Context, image kubecontainer.ImageSpec) (string, error)
}

// RuntimeClasses finds the runtime handler of a runtime class; the empty name is the default handler.
type RuntimeClasses interface {
	LookupRuntimeHandler(runtimeClass *string) (string, error)
}

// Evictor may end a pod by itself. It is asked for every status, and must answer at once.
type Evictor interface {
	ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse
}

// Config is what a Generator works with. Only Statuses, Resizes and Reasons are required.
type Config struct {
	Statuses Statuses
	Resizes  Resizes
	Reasons  *podstatus.ReasonCache
	Probes   Probes
	Devices  Devices
	// PodCgroups is asked anew each time, because the cgroup tree's layout is complete only once the container manager has
	// started.
	PodCgroups     func() PodCgroups
	Images         Images
	RuntimeClasses RuntimeClasses
	// RuntimeHandlers are the handlers that the runtime reported last.
	RuntimeHandlers func() []kubecontainer.RuntimeHandler
	// HostIPs are the node's addresses, primary first. Nil in standalone mode: host addresses are then not reported.
	HostIPs func(context.Context) ([]net.IP, error)
	// NodeIPs are the addresses given by --node-ip.
	NodeIPs []net.IP
	// Evictors are asked in this order; the first that wants the pod ended decides.
	Evictors []Evictor
	// Recorder is told when the node's address changes its family; may be nil.
	Recorder record.EventRecorderLogger
	Features Features
}
