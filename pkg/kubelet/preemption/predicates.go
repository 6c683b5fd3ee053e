package preemption

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Predicates returns an admit handler that runs the scheduler's predicates and passes failures to the given handler.
type Predicates func(lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler

// Predicates returns an admit handler that plans preemption for critical pods that fail the predicates for lack of
// resources.
func (h *Handler) Predicates(p Predicates) lifecycle.PodAdmitHandler { return predicateHandler{h, p} }

type predicateHandler struct {
	handler    *Handler
	predicates Predicates
}

// Admit implements lifecycle.PodAdmitHandler.
func (p predicateHandler) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return p.predicates(failureHandler{p.handler, attrs}).Admit(attrs)
}

// failureHandler handles the failure of one admission. The missing amounts were computed with attrs.OtherPods. So the
// victims are chosen from these pods, and not from a newer list: otherwise the requests of a pod that has ended since
// would be freed twice.
type failureHandler struct {
	*Handler
	attrs *lifecycle.PodAdmitAttributes
}

var _ lifecycle.AdmissionFailureHandler = failureHandler{}

// HandleAdmissionFailure returns the reasons that remain. All remain for a pod that is not critical, and for a critical
// pod with an attempt, for which InProgress then returns true. An error means that no set of victims suffices.
//
// For a pod that ran here before the agent was restarted, lack of resources and taints do not count
// (kubernetes/kubernetes#83612); an affinity that the node no longer matches does, as in stock.
func (f failureHandler) HandleAdmissionFailure(
	ctx context.Context, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	need, others := splitReasons(reasons)
	if f.Pods.Readmitted(pod) {
		return slices.DeleteFunc(others, isTaint), nil
	}
	if !kubetypes.IsCriticalPod(pod) {
		return reasons, nil
	}
	if len(others) > 0 {
		return others, nil
	}
	if err := f.plan(pod, need, f.attrs.OtherPods); err != nil {
		return nil, err
	}
	// A pod that is being resized runs already. Any other begins its attempt after it has a place among the waiting pods.
	if f.attrs.Operation == lifecycle.ResizeOperation {
		f.Begin(ctx, pod.UID)
	}
	return reasons, nil
}
