package preemption

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Predicates makes the admit handler that asks the scheduler's predicates and passes failures on to the given handler.
type Predicates func(lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler

// Predicates returns an admit handler that plans how to make room for critical pods that fail the predicates for lack
// of resources.
func (h *Handler) Predicates(p Predicates) lifecycle.PodAdmitHandler { return judge{h, p} }

type judge struct {
	handler    *Handler
	predicates Predicates
}

// Admit implements lifecycle.PodAdmitHandler.
func (j judge) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return j.predicates(judgement{j.handler, attrs}).Admit(attrs)
}

// judgement handles the failure of one admission. What is missing is the difference between the pod and
// attrs.OtherPods. So the victims are chosen from these, and not from the pods that there are when they are chosen: of
// a pod that has ended in between, the room counts once.
type judgement struct {
	*Handler
	attrs *lifecycle.PodAdmitAttributes
}

var _ lifecycle.AdmissionFailureHandler = judgement{}

// HandleAdmissionFailure returns the reasons that remain. For a pod that is not critical, and while room is being made
// for one that is, all remain; Making returns true in the second case. An error means that there can be no room.
//
// A pod that ran here before the agent was restarted is not asked again whether it fits (kubernetes/kubernetes#83612):
// lack of resources and taints do not count for it; that the node no longer matches its affinity does, as with stock.
func (j judgement) HandleAdmissionFailure(
	ctx context.Context, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	need, others := split(reasons)
	if j.Pods.Readmitted(pod) {
		return slices.DeleteFunc(others, isTaint), nil
	}
	if !kubetypes.IsCriticalPod(pod) {
		return reasons, nil
	}
	if len(others) > 0 {
		return others, nil
	}
	if err := j.plan(pod, need, j.attrs.OtherPods); err != nil {
		return nil, err
	}
	// A pod that is resized runs already. Of any other it is not certain yet that it can wait for its victims.
	if j.attrs.Operation == lifecycle.ResizeOperation {
		j.Begin(ctx, pod.UID)
	}
	return reasons, nil
}
