package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// StatusGenerator computes API status.
type StatusGenerator interface {
	// Generate returns the status to publish. terminal says that no container of the pod runs or will be started any more. It
	// must not modify pod or status.
	Generate(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, terminal bool) v1.PodStatus
}

// StatusStore is the cache of published statuses.
type StatusStore interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	SetPodStatus(logger klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	// TerminatePod marks the status as final: the API object may be deleted once it is published.
	TerminatePod(logger klog.Logger, pod *v1.Pod)
}

// ResizeConditions are kept beside the status and merged into it when it is generated.
type ResizeConditions interface {
	// SetPodResizeInProgressCondition returns the generation the condition is about, and true if the call changed it.
	SetPodResizeInProgressCondition(uid types.UID, reason, message string, generation int64) (int64, bool)
	// ClearPodResizeInProgressCondition returns the generation the condition was about, and true if there was one.
	ClearPodResizeInProgressCondition(uid types.UID) (int64, bool)
}

// StatusManager is the part of the status manager that is used here.
type StatusManager interface {
	StatusStore
	ResizeConditions
}

// ContainerStarter brings the runtime in line with a pod's specification. It starts, restarts, resizes and removes containers.
type ContainerStarter interface {
	SyncPod(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, pullSecrets []v1.Secret,
		backOff *flowcontrol.Backoff, restartAll bool) kubecontainer.PodSyncResult
}

// PodKiller stops the containers and sandboxes it is given, hooks included, and returns when they are stopped.
type PodKiller interface {
	// Type is the name of the runtime, a part of container IDs.
	Type() string
	KillPod(ctx context.Context, pod *v1.Pod, running kubecontainer.Pod, gracePeriod *int64) error
}

// ContainerStopper stops one container or sandbox of the runtime, past everything that knows about pods. A container that is being
// stopped already gets the shorter time.
type ContainerStopper interface {
	// StopContainer kills the container after timeout seconds if its signal does not end it, and returns when it has stopped.
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	// StopPodSandbox kills every container in the sandbox, then the sandbox itself.
	StopPodSandbox(ctx context.Context, sandboxID string) error
}

// PodProcesses are the processes in cgroups, by the path of the cgroup below the root of its hierarchy. A cgroup that does not exist
// has none.
type PodProcesses interface {
	// Processes lists those in the cgroup and below. With an error the list may be incomplete.
	Processes(cgroup string) ([]escalation.Process, error)
	// Kill kills them and returns when none is left, or with an error when ctx ends before that.
	Kill(ctx context.Context, cgroup string) error
}

// PodObserver reads a pod from the runtime, past any cache.
type PodObserver interface {
	// GetPod returns kubecontainer.ErrPodNotFound when the runtime has nothing of the pod.
	GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error)
	GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error)
}

// ResizeTracker compares what was allocated to a pod with what was applied.
type ResizeTracker interface {
	IsPodResizeInProgress(pod *v1.Pod, status *kubecontainer.PodStatus) bool
	UpdateActuatedPodLevelResources(pod *v1.Pod) error
}

// Runtime is the part of the runtime manager that is used here.
type Runtime interface {
	ContainerStarter
	PodKiller
	PodObserver
	ResizeTracker
}

// QOSCgroups are the cgroups above those of the pods.
type QOSCgroups interface {
	UpdateQOSCgroups(logger klog.Logger) error
}

// ContainerManager is the part of the container manager that is used here.
type ContainerManager interface {
	QOSCgroups
	// NewPodContainerManager is called for every use: what it returns knows the QoS cgroups only after the manager has started.
	NewPodContainerManager() cm.PodContainerManager
	UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error
}

// Lifecycle answers from what the pod workers know.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// Returning knows the pods that are stopped only because the machine goes down, and start again with it.
type Returning interface {
	// Returns is true for such a pod: its phase is that of its containers, which its restart policy starts again, and is not final.
	Returns(pod *v1.Pod) bool
	// Stopped is told that nothing of the pod is left. What comes with this UID afterwards is another life.
	Stopped(uid types.UID)
}

// noneReturns is what holds when nobody knows of such pods.
type noneReturns struct{}

func (noneReturns) Returns(*v1.Pod) bool { return false }
func (noneReturns) Stopped(types.UID)    {}

// PodRegistry keeps the objects that registered pods refer to. Calls do not wait for the network.
type PodRegistry interface {
	RegisterPod(pod *v1.Pod)
	UnregisterPod(pod *v1.Pod)
}

// SecretManager is a registry whose secrets can be read.
type SecretManager interface {
	PodRegistry
	GetSecret(namespace, name string) (*v1.Secret, error)
}

// MirrorClient writes the API server's copies of static pods.
type MirrorClient interface {
	CreateMirrorPod(ctx context.Context, pod *v1.Pod) error
	// DeleteMirrorPod returns true if it has deleted the pod. A UID that is given must match.
	DeleteMirrorPod(ctx context.Context, podFullName string, uid *types.UID) (bool, error)
}

// DataDirs creates the directories of a pod that do not exist yet.
type DataDirs interface {
	MakePodDataDirs(pod *v1.Pod) error
}

// Volumes waits for the volume manager. Both calls end with an error when their context does or after a time-out of their own.
type Volumes interface {
	WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error
	WaitForUnmount(ctx context.Context, pod *v1.Pod) error
}

// VolumePaths looks for volumes of a pod that are still mounted; when in doubt it says true.
type VolumePaths interface {
	VolumesExist(ctx context.Context, uid types.UID) bool
}

// Probes runs the probes of pods.
type Probes interface {
	AddPod(ctx context.Context, pod *v1.Pod)
	StopLivenessAndStartup(pod *v1.Pod)
	RemovePod(pod *v1.Pod)
}

// StartReasons keeps the last start error of each container.
type StartReasons interface {
	Update(uid types.UID, result kubecontainer.PodSyncResult)
}

// UserNamespaces gives the range of user IDs of a pod back. Releasing twice does no harm.
type UserNamespaces interface {
	Release(logger klog.Logger, uid types.UID)
}
