// Package deadline ends pods that have been active for longer than spec.activeDeadlineSeconds allows.
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
	// Reason is the reason in the status of a pod that was ended, and of the event.
	Reason = "DeadlineExceeded"
	// Message goes with it.
	Message = "Pod was active on the node longer than the specified deadline"
)

// Statuses knows the status of a pod as last published, which has the start time before the API server's copy has it.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Handler looks at deadlines when it is asked; it has no goroutine and no state.
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

// ShouldSync is true for a pod past its deadline: the sync loop then synchronizes it at once, which ends it. Cheap enough to be
// called for every pod every second.
func (h *Handler) ShouldSync(pod *v1.Pod) bool { return h.exceeded(pod) }

// ShouldEvict is called while a pod's status is generated; for a pod past its deadline it makes the status Failed. Every call that
// says so also sends the event.
func (h *Handler) ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse {
	if !h.exceeded(pod) {
		return lifecycle.ShouldEvictResponse{}
	}
	h.recorder.Event(pod, v1.EventTypeNormal, Reason, Message)
	return lifecycle.ShouldEvictResponse{Evict: true, Reason: Reason, Message: Message}
}

// exceeded counts from the start time in the status. A pod that has none was not accepted by this node yet.
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
