// Package preemption makes room for a critical pod that does not fit on the node, by stopping pods that matter less. Package
// plan chooses them; Handler turns an admission failure into a plan, has the victims stopped by the pod workers, and admits only
// when the room is there.
package preemption

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Pods says which pods there are and which of them are going.
type Pods interface {
	// Allocated returns the active pods with the resources that were allocated to them.
	Allocated() []*v1.Pod
	// Readmitted is true for a pod that ran on this node before the agent was restarted.
	Readmitted(pod *v1.Pod) bool
}

// Lifecycle says which pods are being stopped already.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// KillFunc has the pod workers stop a pod and returns when its containers are gone, or with an error when they did not stop in
// time. With evict false and no grace period it only waits for a pod that is terminating anyway.
type KillFunc func(ctx context.Context, pod *v1.Pod, evict bool, gracePeriod *int64, setStatus func(*v1.PodStatus)) error

// Handler is told by the predicates which resources a pod lacks, and makes room for it when it is critical. It implements
// lifecycle.AdmissionFailureHandler. It never blocks: victims stop beside it, and the pod is asked about again when they have
// (stock stands still for as long as the slowest victim takes, with the lock of all admissions held).
type Handler struct {
	pods      Pods
	lifecycle Lifecycle
	kill      KillFunc
	recorder  record.EventRecorder

	mu sync.Mutex
	// efforts are those to make room for a pod, by its UID.
	efforts map[types.UID]*effort
}

var _ lifecycle.AdmissionFailureHandler = (*Handler)(nil)

// NewHandler returns a handler that stops victims through kill.
func NewHandler(pods Pods, lc Lifecycle, kill KillFunc, recorder record.EventRecorder) *Handler {
	return &Handler{pods: pods, lifecycle: lc, kill: kill, recorder: recorder, efforts: map[types.UID]*effort{}}
}

// HandleAdmissionFailure returns the reasons that remain. For a pod that is not critical, and while room is being made for one that
// is, all remain; Making tells the two apart. An error says that there can be no room.
//
// A pod that ran here before the agent was restarted is not asked again whether it fits (kubernetes/kubernetes#83612): lack of
// resources and taints do not count for it; that the node no longer matches its affinity does, as with stock.
func (h *Handler) HandleAdmissionFailure(ctx context.Context, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	need, others := split(reasons)
	if h.pods.Readmitted(pod) {
		return slices.DeleteFunc(others, isTaint), nil
	}
	if !kubetypes.IsCriticalPod(pod) {
		return reasons, nil
	}
	if len(others) > 0 {
		return others, nil
	}
	if err := h.begin(ctx, pod, need); err != nil {
		return nil, err
	}
	return reasons, nil
}

// Making reports whether room is being made for the pod at this moment.
func (h *Handler) Making(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.efforts[uid]
	return ok && !e.done
}

// Leaving reports whether the pod is being stopped at this moment to make room for another.
func (h *Handler) Leaving(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.efforts {
		if !e.done && e.leaving.Has(uid) {
			return true
		}
	}
	return false
}

// Failed reports whether an effort to make room has ended in vain and HandleAdmissionFailure has not told so yet.
func (h *Handler) Failed(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.efforts[uid]
	return ok && e.done && e.err != nil
}

// Forget drops what is known of a pod that was admitted, rejected or deleted. Victims that are being stopped go on to stop.
func (h *Handler) Forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.efforts, uid)
}
