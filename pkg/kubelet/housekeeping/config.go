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

// Config is everything a Cleaner uses. All fields are required unless their comment says otherwise.
type Config struct {
	// Pods is the pod manager: what the sources want.
	Pods Pods
	// Workers are the pod workers.
	Workers Workers
	// Mirrors deletes mirror pods; MirrorHolders says which must stay a little longer.
	Mirrors       MirrorDeleter
	MirrorHolders MirrorHolders
	// Active picks the pods that hold resources of the node.
	Active ActiveFilter
	// Waiting is true for a pod that admission holds back for now; such a pod has no worker and is not given one. May be
	// nil.
	Waiting func(types.UID) bool
	// Runtime is the cache of what runs.
	Runtime RuntimeCache
	// Disk is where pods keep their directories.
	Disk *Disk
	// Cgroups returns the pod cgroups; nil when pods have none (cgroupsPerQOS is off). It is called in every round: what
	// it returns knows the QoS cgroups only after the container manager has started.
	Cgroups func() PodCgroups
	// Probes, Statuses, Allocations and UserNamespaces forget pods.
	Probes         Probes
	Statuses       Statuses
	Allocations    Allocations
	UserNamespaces UserNamespaces
	// BackOff is the crash loop back-off of containers; old entries are dropped.
	BackOff BackOff
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Workers are the pod workers. No call waits for a pod.
type Workers interface {
	// SyncKnownPods tells them which pods are wanted, has them end the others and returns those that still have a worker.
	// The map belongs to the caller.
	SyncKnownPods(desired []*v1.Pod) map[types.UID]podworkers.KnownPod
	// SyncStaticPods is as much of SyncKnownPods as can be done before every source has reported.
	SyncStaticPods(desired []*v1.Pod) map[types.UID]podworkers.KnownPod
	Updater
}

// Updater gives pods to the pod workers.
type Updater interface {
	UpdatePod(ctx context.Context, update podworkers.Update)
}

// Pods are the pods the sources want.
type Pods interface {
	// GetPodsAndMirrorPods also returns the full names of mirror pods whose static pod is gone.
	GetPodsAndMirrorPods() (pods, mirrorPods []*v1.Pod, orphanedMirrors []string)
	GetPodAndMirrorPod(*v1.Pod) (pod, mirrorPod *v1.Pod, wasMirror bool)
}

// MirrorDeleter deletes mirror pods at the API server.
type MirrorDeleter interface {
	DeleteMirrorPod(ctx context.Context, podFullName string, uid *types.UID) (bool, error)
}

// MirrorHolders says whether the static pod of a mirror pod is still being stopped. Until then the mirror shows its
// end.
type MirrorHolders interface {
	IsPodForMirrorPodTerminatingByFullName(fullName string) bool
}

// ActiveFilter returns those of the given pods that are admitted and not ended, in the same order.
type ActiveFilter interface {
	FilterActive(pods []*v1.Pod) []*v1.Pod
}

// RuntimeCache is the runtime manager's list of running pods.
type RuntimeCache interface {
	GetPods(context.Context) ([]*kubecontainer.Pod, error)
	ForceUpdateIfOlder(context.Context, time.Time) error
}

// PodCgroups is the part of cm.PodContainerManager that is used here.
type PodCgroups interface {
	GetAllPodsFromCgroups() (map[types.UID]cm.CgroupName, error)
	ReduceCPULimits(logger klog.Logger, name cm.CgroupName) error
	Destroy(logger klog.Logger, name cm.CgroupName) error
}

// Probes stops the probes of all pods but the given ones.
type Probes interface {
	CleanupPods(keep map[types.UID]sets.Empty)
}

// Statuses forgets the statuses of all pods but the given ones.
type Statuses interface {
	RemoveOrphanedStatuses(logger klog.Logger, keep map[types.UID]bool)
}

// Allocations forgets what was allocated to all pods but the given ones.
type Allocations interface {
	RemoveOrphanedPods(keep sets.Set[types.UID])
}

// UserNamespaces gives back the user IDs of pods that neither are wanted nor run.
type UserNamespaces interface {
	CleanupOrphanedPodUsernsAllocations(ctx context.Context, pods []*v1.Pod, running []*kubecontainer.Pod) error
}

// BackOff drops entries that were not used for long.
type BackOff interface {
	GC()
}
