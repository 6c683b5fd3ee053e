package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Group is a set of pods that are stopped concurrently.
type Group struct {
	Period
	// Pods is not empty, and in the order of the UIDs.
	Pods []*v1.Pod
}

// Groups assigns each pod to the period with the highest priority that is not above that of the pod, or to the lowest
// period if all are above. It returns the groups in the order in which they are stopped, without empty groups. periods
// must be ordered; without periods there are no groups. If several periods have the same priority, as in stock the
// first one is for pods with exactly that priority, the last one for pods with a higher priority.
func Groups(periods []Period, pods []*v1.Pod) []Group {
	if len(periods) == 0 {
		return nil
	}
	all := make([]Group, len(periods))
	for i, p := range periods {
		all[i].Period = p
	}
	for _, pod := range pods {
		g := &all[periodIndex(periods, priority(pod))]
		g.Pods = append(g.Pods, pod)
	}
	for _, g := range all {
		slices.SortFunc(g.Pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	}
	return slices.DeleteFunc(all, func(g Group) bool { return len(g.Pods) == 0 })
}

// periodIndex returns the index of the period for a priority.
func periodIndex(periods []Period, priority int32) int {
	i, same := slices.BinarySearchFunc(periods, priority,
		func(p Period, priority int32) int { return cmp.Compare(p.Priority, priority) })
	if same {
		return i
	}
	return max(0, i-1)
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Grace returns the grace period of a pod in seconds: its own one, limited by that of the group.
func (g Group) Grace(pod *v1.Pod) int64 {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, g.Seconds)
	}
	return g.Seconds
}

// RestartsAfterShutdown returns true for a pod that starts again with the node, and on no other node meanwhile: a
// static pod, whose manifest still exists, and a pod of a DaemonSet, which is for this node. If the agent failed a pod
// of a DaemonSet, the controller would repeatedly replace it on the node that shuts down
// (kubernetes/kubernetes#122912). The agent fails all other pods, as stock does: their controllers replace them on
// other nodes at once (kubernetes/kubernetes#104531). A pod that is deleted or in a terminal phase does not restart.
func RestartsAfterShutdown(pod *v1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return false
	}
	if kubetypes.IsStaticPod(pod) {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	// All pods of stock's DaemonSets have this restart policy. With another one, containers may not be started again.
	return owner != nil && owner.Kind == "DaemonSet" && pod.Spec.RestartPolicy == v1.RestartPolicyAlways
}
