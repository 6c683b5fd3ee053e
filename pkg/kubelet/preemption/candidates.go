package preemption

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// splitReasons separates missing resources, which preemption can free, from other reasons.
func splitReasons(reasons []lifecycle.PredicateFailureReason) (plan.Need, []lifecycle.PredicateFailureReason) {
	need := plan.Need{}
	var others []lifecycle.PredicateFailureReason
	for _, reason := range reasons {
		if missing, ok := reason.(*lifecycle.InsufficientResourceError); ok {
			need[missing.ResourceName] += missing.GetInsufficientAmount()
			continue
		}
		others = append(others, reason)
	}
	return need, others
}

func isTaint(reason lifecycle.PredicateFailureReason) bool {
	failure, ok := reason.(*lifecycle.PredicateFailureError)
	return ok && failure.PredicateName == tainttoleration.Name
}

// candidate is a candidate of the plan with its pod.
type candidate struct {
	plan.Candidate
	pod *v1.Pod
}

// candidates lists those of the other pods that may be stopped for the preemptor or are terminating already. It leaves
// out static pods, which are never started again after they were stopped; pods that wait for their own admission, which
// use no resources; and pods that are still terminating after the last escalation step, which release none.
func (h *Handler) candidates(preemptor *v1.Pod, need plan.Need, others []*v1.Pod) map[types.UID]candidate {
	out := map[types.UID]candidate{}
	for _, pod := range others {
		terminating := h.Lifecycle.IsPodTerminationRequested(pod.UID)
		preemptable := !kubetypes.IsStaticPod(pod) && kubetypes.Preemptable(preemptor, pod)
		if h.Pods.IsWaiting(pod.UID) || !terminating && !preemptable || terminating && h.EscalationExhausted(pod.UID) {
			continue
		}
		requests := map[v1.ResourceName]int64{}
		for name := range need {
			requests[name] = resource.GetResourceRequest(pod, name)
		}
		out[pod.UID] = candidate{pod: pod, Candidate: plan.Candidate{
			UID: pod.UID, Priority: corev1helpers.PodPriority(pod), QOS: v1qos.GetPodQOS(pod), Requests: requests,
			Terminating: terminating,
		}}
	}
	return out
}

func sortedCandidates(candidates map[types.UID]candidate) []plan.Candidate {
	out := make([]plan.Candidate, 0, len(candidates))
	for _, c := range candidates {
		out = append(out, c.Candidate)
	}
	slices.SortFunc(out, func(a, b plan.Candidate) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return out
}
