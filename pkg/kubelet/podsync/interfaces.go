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

// StatusGenerator computes the API status of pods.
type StatusGenerator interface {
	// Generate returns the status to publish. terminal is true if no container of the pod runs or will be started. It must
	// not modify pod or status.
	Generate(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, terminal bool) v1.PodStatus
}

// StatusStore is the cache of published statuses.
type StatusStore interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	SetPodStatus(logger klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
	// TerminatePod marks the status as final: the API object may be deleted once it is published.
	TerminatePod(logger klog.Logger, pod *v1.Pod)
}

// ResizeConditions stores the resize conditions of pods, which the generator adds to their statuses.
type ResizeConditions interface {
	// SetPodResizeInProgressCondition returns the generation of the condition, and true if the call changed it.
	SetPodResizeInProgressCondition(uid types.UID, reason, message string, generation int64) (int64, bool)
	// ClearPodResizeInProgressCondition returns the generation of the condition, and true if there was one.
	ClearPodResizeInProgressCondition(uid types.UID) (int64, bool)
}

// StatusManager is the part of the status manager that this package uses.
type StatusManager interface {
	StatusStore
	ResizeConditions
}

// ContainerStarter starts, restarts, resizes and removes containers so that the runtime matches the pod's
// specification.
type ContainerStarter interface {
	SyncPod(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, pullSecrets []v1.Secret,
		backOff *flowcontrol.Backoff, restartAll bool) kubecontainer.PodSyncResult
}

// PodKiller stops the given containers and sandboxes, executes their hooks, and returns when they have stopped.
type PodKiller interface {
	// Type returns the name of the runtime, which is part of container IDs.
	Type() string
	KillPod(ctx context.Context, pod *v1.Pod, running kubecontainer.Pod, gracePeriod *int64) error
}

// ContainerStopper stops one container or sandbox of the runtime directly. For a container that is being stopped
// already the shorter time applies.
type ContainerStopper interface {
	// StopContainer kills the container timeout seconds after its stop signal, and returns when it has stopped.
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	// StopPodSandbox kills every container in the sandbox, then the sandbox itself.
	StopPodSandbox(ctx context.Context, sandboxID string) error
}

// PodProcesses lists and kills processes by the path of their cgroup below the root of its hierarchy. A cgroup that
// does not exist has no processes.
type PodProcesses interface {
	// Processes lists the processes in the cgroup and below. If it returns an error, the list may be incomplete.
	Processes(cgroup string) ([]escalation.Process, error)
	// Kill kills the processes and returns when they have ended, or an error when ctx ends before.
	Kill(ctx context.Context, cgroup string) error
}

// PodObserver reads the status of a pod from the runtime, without a cache.
type PodObserver interface {
	// GetPod returns kubecontainer.ErrPodNotFound if the runtime has nothing of the pod.
	GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error)
	GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error)
}

// ResizeTracker compares the allocated resources of a pod with the applied ones.
type ResizeTracker interface {
	IsPodResizeInProgress(pod *v1.Pod, status *kubecontainer.PodStatus) bool
	UpdateActuatedPodLevelResources(pod *v1.Pod) error
}

// Runtime is the part of the runtime manager that this package uses.
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

// ContainerManager is the part of the container manager that this package uses.
type ContainerManager interface {
	QOSCgroups
	// NewPodContainerManager is called for every use: its result has the QoS cgroups only after the manager has started.
	NewPodContainerManager() cm.PodContainerManager
	UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error
}

// Lifecycle is the state of pods in the pod workers.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// ShutdownManager is the part of the manager of node shutdown that this package uses.
type ShutdownManager interface {
	// RestartsAfterShutdown is true for a pod that is stopped only because the machine shuts down, and that starts again
	// with it: its phase is that of its containers, which its restart policy will start again, and is not final.
	RestartsAfterShutdown(pod *v1.Pod) bool
	// PodStopped is called when all resources of a pod are released. A later pod with the same UID is a new instance.
	PodStopped(uid types.UID)
}

// PodRegistry keeps the objects that registered pods refer to up to date. Its methods do not wait for the network.
type PodRegistry interface {
	RegisterPod(pod *v1.Pod)
	UnregisterPod(pod *v1.Pod)
}

// SecretManager is a registry whose secrets can be read.
type SecretManager interface {
	PodRegistry
	GetSecret(namespace, name string) (*v1.Secret, error)
}

// MirrorClient creates and deletes the mirror pods of static pods.
type MirrorClient interface {
	CreateMirrorPod(ctx context.Context, pod *v1.Pod) error
	// DeleteMirrorPod returns true if it has deleted the pod. If uid is not nil, it must match.
	DeleteMirrorPod(ctx context.Context, podFullName string, uid *types.UID) (bool, error)
}

// DataDirs creates the missing directories of a pod.
type DataDirs interface {
	MakePodDataDirs(pod *v1.Pod) error
}

// Volumes waits for the volume manager. Both methods return an error when ctx ends or after a time-out of their own.
type Volumes interface {
	WaitForAttachAndMount(ctx context.Context, pod *v1.Pod) error
	WaitForUnmount(ctx context.Context, pod *v1.Pod) error
}

// VolumePaths checks whether volumes of a pod are still mounted. On errors it returns true.
type VolumePaths interface {
	VolumesExist(ctx context.Context, uid types.UID) bool
}

// Probes runs the probes of pods.
type Probes interface {
	AddPod(ctx context.Context, pod *v1.Pod)
	StopLivenessAndStartup(pod *v1.Pod)
	RemovePod(pod *v1.Pod)
}

// StartErrors stores the last start error of each container.
type StartErrors interface {
	Update(uid types.UID, result kubecontainer.PodSyncResult)
}

// UserNamespaces releases the range of user IDs of a pod. It may be released twice.
type UserNamespaces interface {
	Release(logger klog.Logger, uid types.UID)
}
