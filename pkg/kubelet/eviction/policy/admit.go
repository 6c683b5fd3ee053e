package policy

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// ReasonEvicted is the reason of evicted pods and of pods that are not admitted under pressure.
const ReasonEvicted = "Evicted"

// Verdict is the answer to a pod that wants to enter.
type Verdict uint8

const (
	// Admitted: pressure is no reason to keep the pod out.
	Admitted Verdict = iota
	// Rejected: the pod fails; its controller finds another node for it.
	Rejected
	// Waits: the pod would come straight back to this node when it were rejected. It may wait for the end of the pressure,
	// for a bounded time, and is rejected then.
	Waits
)

// Applicant is a pod that wants to enter the node.
type Applicant struct {
	Pod *v1.Pod
	// Running: the pod has containers, or resources were allocated for it before. It does not enter, it is here.
	Running bool
	// ComparisonOperators: tolerations may compare numbers (the feature gate TaintTolerationComparisonOperators).
	ComparisonOperators bool
}

// Admit answers a pod under the given conditions. The message is stock's and is empty for admitted pods.
//
// What runs, runs on: a restart of the agent under pressure must not evict (kubernetes issue 83612). Critical pods
// enter always. While a hard threshold is met nobody else does. While a condition merely lingers, pods that tolerate
// its taint enter, and under memory pressure those that have a memory request; stock knows this for memory only (issues
// 65240 and 124388). Of those, pods that may wait do so while it is not known, after a restart of the agent, whether a
// hard threshold is met.
func Admit(conditions []Condition, a Applicant) (Verdict, string) {
	var bad []v1.NodeConditionType
	hard, barred, unsure := false, false, false
	for i := range conditions {
		c := &conditions[i]
		if !c.True {
			continue
		}
		bad = append(bad, c.Type)
		hard = hard || c.HardMet
		barred = barred || !endures(c.Type, &a)
		unsure = unsure || c.Restored
	}
	if len(bad) == 0 || a.Running || kubetypes.IsCriticalPod(a.Pod) || (!hard && !barred && !unsure) {
		return Admitted, ""
	}
	slices.Sort(bad)
	message := fmt.Sprintf("The node had condition: %v. ", bad)
	switch {
	case returnsHere(a.Pod):
		return Waits, message
	case hard || barred:
		return Rejected, message
	}
	return Admitted, ""
}

var taints = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: v1.TaintNodeMemoryPressure,
	v1.NodeDiskPressure:   v1.TaintNodeDiskPressure,
	v1.NodePIDPressure:    v1.TaintNodePIDPressure,
}

// endures tells whether a pod may enter while a condition lingers.
func endures(t v1.NodeConditionType, a *Applicant) bool {
	if t == v1.NodeMemoryPressure && v1qos.GetPodQOS(a.Pod) != v1.PodQOSBestEffort {
		return true
	}
	taint := v1.Taint{Key: taints[t], Effect: v1.TaintEffectNoSchedule}
	return corev1helpers.TolerationsTolerateTaint(klog.Logger{}, a.Pod.Spec.Tolerations, &taint, a.ComparisonOperators)
}

// returnsHere tells whether a rejected pod would be replaced by one on this same node: it belongs to a DaemonSet; or
// its controller makes pods that name the node themselves, so that no scheduler has bound it; or it must run on a node
// of this name.
func returnsHere(pod *v1.Pod) bool {
	if owner := metav1.GetControllerOf(pod); owner != nil && (owner.Kind == "DaemonSet" || !scheduled(pod)) {
		return true
	}
	if _, named := pod.Spec.NodeSelector[v1.LabelHostname]; named {
		return true
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	// One of the terms is enough to be scheduled somewhere, so each has to name the node.
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t v1.NodeSelectorTerm) bool {
		return !namesOneNode(t.MatchFields, metav1.ObjectNameField) && !namesOneNode(t.MatchExpressions, v1.LabelHostname)
	})
}

// scheduled: the API server notes in the status that a pod was bound to its node by a scheduler.
func scheduled(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
}

func namesOneNode(list []v1.NodeSelectorRequirement, key string) bool {
	return slices.ContainsFunc(list, func(r v1.NodeSelectorRequirement) bool {
		return r.Key == key && r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1
	})
}
