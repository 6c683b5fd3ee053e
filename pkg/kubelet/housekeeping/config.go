package housekeeping

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// Config is the configuration of a Cleaner. All fields are required unless their comment says otherwise.
type Config struct {
	// Pods is the pod manager, which has the configured pods.
	Pods Pods
	// Workers are the pod workers.
	Workers Workers
	// Mirrors deletes mirror pods, except for those whose static pod is terminating according to Lifecycle.
	Mirrors   MirrorDeleter
	Lifecycle StaticPodLifecycle
	// Active returns the pods that hold resources of the node.
	Active ActiveFilter
	// Waiting is true for a pod that waits for admission; such a pod has no worker and must not get one.
	Waiting func(types.UID) bool
	// ShuttingDown is true while the machine shuts down.
	ShuttingDown func() bool
	// Runtime is the cache of running pods.
	Runtime RuntimeCache
	// Disk lists the directories of pods.
	Disk *Disk
	// Cgroups returns the pod cgroups; nil if pods have none (cgroupsPerQOS is false). It is called in every round, since
	// the layout of the QoS cgroups is complete only after the container manager has started.
	Cgroups func() PodCgroups
	// Probes, Statuses, Allocations and UserNamespaces remove their entries of pods.
	Probes         Probes
	Statuses       Statuses
	Allocations    Allocations
	UserNamespaces UserNamespaces
	// BackOff is the crash loop back-off of containers, whose old entries are removed.
	BackOff BackOff
	Clock   clock.PassiveClock
}

// Workers are the pod workers. No method waits for a pod.
type Workers interface {
	// SyncKnownPods compares the workers with the configured pods, stops all others, and returns the pods that still have
	// a worker. The map belongs to the caller.
	SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.KnownPod
	// SyncStaticPods is the part of SyncKnownPods that is safe before all sources have reported.
	SyncStaticPods(desired []*v1.Pod) map[types.UID]podworkers.KnownPod
	Updater
	Remover
}

// Remover reserves UIDs for the removal of what earlier pods left. A round acts on lists that may be old by then, and
// some removals outlast the round.
type Remover interface {
	// BeginRemoval returns false for a pod that may have running containers or may start some; nothing of it may be
	// removed. Until end is called, no pod with that UID starts.
	BeginRemoval(uid types.UID) (end func(), ok bool)
}

// Updater passes pods to the pod workers.
type Updater interface {
	UpdatePod(ctx context.Context, update podworkers.Update)
}

// Pods are the configured pods.
type Pods interface {
	// GetPodsAndMirrorPods also returns the full names of mirror pods without a static pod.
	GetPodsAndMirrorPods() (pods, mirrorPods []*v1.Pod, orphanedMirrors []string)
	GetPodAndMirrorPod(*v1.Pod) (pod, mirrorPod *v1.Pod, wasMirror bool)
	// GetPodByFullName returns the pod with that full name that is not a mirror pod.
	GetPodByFullName(fullName string) (*v1.Pod, bool)
}

// MirrorDeleter deletes mirror pods at the API server.
type MirrorDeleter interface {
	DeleteMirrorPod(ctx context.Context, podFullName string, uid *types.UID) (bool, error)
}

// StaticPodLifecycle returns true while the static pod of a mirror pod is terminating. The mirror pod shows its status
// during that time.
type StaticPodLifecycle interface {
	IsPodForMirrorPodTerminatingByFullName(fullName string) bool
}

// ActiveFilter returns those of the given pods that hold resources of the node, in the same order.
type ActiveFilter interface {
	FilterActive(pods []*v1.Pod) []*v1.Pod
}

// RuntimeCache is the runtime manager's list of running pods.
type RuntimeCache interface {
	GetPods(context.Context) ([]*kubecontainer.Pod, error)
	ForceUpdateIfOlder(context.Context, time.Time) error
}

// PodCgroups is the part of cm.PodContainerManager that this package uses.
type PodCgroups interface {
	GetAllPodsFromCgroups() (map[types.UID]cm.CgroupName, error)
	ReduceCPULimits(logger klog.Logger, name cm.CgroupName) error
	Destroy(logger klog.Logger, name cm.CgroupName) error
}

// Probes stops the probes of all pods except for the given ones.
type Probes interface {
	CleanupPods(keep map[types.UID]sets.Empty)
}

// Statuses removes the statuses of all pods except for the given ones.
type Statuses interface {
	RemoveOrphanedStatuses(logger klog.Logger, keep map[types.UID]bool)
}

// Allocations removes the allocations of all pods except for the given ones.
type Allocations interface {
	RemoveOrphanedPods(keep sets.Set[types.UID])
}

// UserNamespaces releases the user IDs of pods that are neither among the configured nor among the running ones.
type UserNamespaces interface {
	CleanupOrphanedPodUsernsAllocations(ctx context.Context, pods []*v1.Pod, running []*kubecontainer.Pod) error
}

// BackOff removes entries of containers that have not failed for a long time.
type BackOff interface {
	GC()
}
