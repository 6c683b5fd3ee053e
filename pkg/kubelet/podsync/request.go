// Package podsync does the work of each phase of a pod: synchronization, termination, clean-up. Each phase is an
// ordered list of steps, in sync.go, terminate.go and cleanup.go; the comments there explain the place of each step.
// The files sync_*.go, terminate_*.go and cleanup_*.go have the steps. Pod workers determine the phase of a pod and
// call this package, which has no state of pods except for the progress of escalations.
package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// SyncRequest requests the synchronization of a pod. The callee owns the request for the duration of the call; Pod and
// MirrorPod are shared with other readers and must not be modified.
type SyncRequest struct {
	// UpdateType is create for the first synchronization by this worker. It is used for metrics only.
	UpdateType kubetypes.SyncPodType
	Pod        *v1.Pod
	// MirrorPod is the API server's copy of a static pod, nil when there is none (yet).
	MirrorPod *v1.Pod
	// Status is the status in the runtime, not older than the previous synchronization of this pod.
	Status *kubecontainer.PodStatus
}

// SyncResult is the result of a synchronization.
type SyncResult struct {
	// Terminal is true if the containers have terminated and will not be restarted: the next phase is termination.
	Terminal bool
	// AfterSync, if not nil, is called by the worker after it has recorded the result. It must not block.
	AfterSync func()
}

// TerminateRequest requests the stop of all containers of a pod. Terminate may be called again for the same pod until
// it succeeds, but not concurrently; Hasten is the method for a termination in progress.
type TerminateRequest struct {
	Pod *v1.Pod
	// Status is the last known status in the runtime. It may be old: it is read again before containers are stopped.
	Status *kubecontainer.PodStatus
	// GracePeriod in seconds overrides that of the pod if it is not nil. Hasten requires it.
	GracePeriod *int64
	// Disruption, if not nil, is written into the status that is published while the pod terminates.
	Disruption *podkill.Disruption
}
