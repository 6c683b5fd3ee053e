// Package podsync does the work of each phase of a pod: bringing it up, taking it down, cleaning up after it. Each phase is an
// ordered list of steps, one file per step; the lists in sync.go, terminate.go and cleanup.go say why each step stands where it
// stands. Pod workers decide which phase a pod is in and call in here; nothing in this package decides that.
package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// SyncRequest asks to bring the runtime in line with a pod's specification. The request is owned by the callee for the
// duration of the call; Pod and MirrorPod are shared with other readers and must not be modified.
type SyncRequest struct {
	// UpdateType is create for the first synchronization of this worker. It is for metrics only: every sync is re-entrant.
	UpdateType kubetypes.SyncPodType
	Pod        *v1.Pod
	// MirrorPod is the API server's copy of a static pod, nil when there is none (yet).
	MirrorPod *v1.Pod
	// Status is what the runtime reported, not older than the previous synchronization of this pod.
	Status *kubecontainer.PodStatus
}

// SyncResult is what a synchronization found out.
type SyncResult struct {
	// Terminal is true when the containers have ended by themselves for good: the pod goes on to termination.
	Terminal bool
	// AfterSync, if not nil, is called by the worker once it has recorded the result. It must not block.
	AfterSync func()
}

// TerminateRequest asks to stop every container of a pod. Terminate may be called again for the same pod until it succeeds, but
// never while an earlier call for the pod is still running; for that there is Hasten.
type TerminateRequest struct {
	Pod *v1.Pod
	// Status is what the runtime last reported. It need not be new: what runs is asked for again before anything is stopped.
	Status *kubecontainer.PodStatus
	// GracePeriod in seconds overrides the pod's own when not nil.
	GracePeriod *int64
	// Disruption, if not nil, is written into the status that is reported while the pod terminates (an eviction's reason,
	// for example).
	Disruption *podkill.Disruption
}
