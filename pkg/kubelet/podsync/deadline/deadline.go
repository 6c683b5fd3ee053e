// Package deadline fails pods that have been active for longer than spec.activeDeadlineSeconds.
package deadline

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"
)

const (
	// Reason is the reason of the event, and of the status of a pod whose deadline was exceeded.
	Reason = "DeadlineExceeded"
	// Message is the message of both.
	Message = "Pod was active on the node longer than the specified deadline"
)

// Statuses returns the last published status of a pod, which has the start time before the API server does.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Handler compares the deadlines of pods with the clock. It has no goroutine and no state.
type Handler struct {
	statuses Statuses
	recorder record.EventRecorder
	clock    clock.PassiveClock
}

var (
	_ lifecycle.PodSyncLoopHandler = (*Handler)(nil)
	_ lifecycle.PodSyncHandler     = (*Handler)(nil)
)

// New returns a handler.
func New(statuses Statuses, recorder record.EventRecorder, clock clock.PassiveClock) *Handler {
	return &Handler{statuses: statuses, recorder: recorder, clock: clock}
}

// ShouldSync is true for a pod whose deadline is exceeded: the sync loop then synchronizes it at once, which fails it.
// The sync loop calls it for every pod every second.
func (h *Handler) ShouldSync(pod *v1.Pod) bool { return h.exceeded(pod) }

// ShouldEvict is called while the status of a pod is generated. A pod whose deadline is exceeded becomes Failed. Each
// call for such a pod sends an event.
func (h *Handler) ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse {
	if !h.exceeded(pod) {
		return lifecycle.ShouldEvictResponse{}
	}
	h.recorder.Event(pod, v1.EventTypeNormal, Reason, Message)
	return lifecycle.ShouldEvictResponse{Evict: true, Reason: Reason, Message: Message}
}

// exceeded compares with the start time in the status. A pod without one was not admitted to this node yet.
func (h *Handler) exceeded(pod *v1.Pod) bool {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return false
	}
	status, known := h.statuses.GetPodStatus(pod.UID)
	if !known {
		status = pod.Status
	}
	if status.StartTime.IsZero() {
		return false
	}
	return h.clock.Since(status.StartTime.Time) >= time.Duration(*limit)*time.Second
}
