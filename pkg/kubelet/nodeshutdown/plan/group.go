package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// Group is pods that are stopped side by side.
type Group struct {
	Period
	// Pods is not empty; in the order of their UIDs.
	Pods []*v1.Pod
}

// Groups puts every pod into the group of its priority: the highest period that is not above it, or the lowest one.
// Groups come in the order in which they are stopped; those without pods are left out, nobody waits for them. periods
// must be ordered; without any there is no group. Of several periods with one priority the first is that of the pods
// with that very priority, the last that of those above.
func Groups(periods []Period, pods []*v1.Pod) []Group {
	if len(periods) == 0 {
		return nil
	}
	all := make([]Group, len(periods))
	for i, p := range periods {
		all[i].Period = p
	}
	for _, pod := range pods {
		g := &all[place(periods, priority(pod))]
		g.Pods = append(g.Pods, pod)
	}
	for _, g := range all {
		slices.SortFunc(g.Pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	}
	return slices.DeleteFunc(all, func(g Group) bool { return len(g.Pods) == 0 })
}

func place(periods []Period, priority int32) int {
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

// Grace is the grace period of a pod in seconds: its own, at most that of its group.
func (g Group) Grace(pod *v1.Pod) int64 {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, g.Seconds)
	}
	return g.Seconds
}

// Returns is true when the pod starts again with the node, and nowhere else meanwhile: a static pod, whose file is
// still there, and a pod of a DaemonSet, which has one for this node. To fail it would help nobody: a controller would
// make it anew for the node that is going down, again and again (kubernetes/kubernetes#122912). All others are failed,
// as by stock: their controllers make them anew on other nodes at once (kubernetes/kubernetes#104531). A pod that is
// being deleted does not return.
func Returns(pod *v1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return false
	}
	if kubetypes.IsStaticPod(pod) {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && restarts(pod)
}

// restarts is true when the pod may be told to end and be started again. Stock's DaemonSets have no other pods.
func restarts(pod *v1.Pod) bool { return pod.Spec.RestartPolicy == v1.RestartPolicyAlways }
