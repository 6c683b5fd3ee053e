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

// Verdict is the result of the admission of a pod under pressure.
type Verdict uint8

const (
	// Admitted: no node condition is a reason to reject the pod.
	Admitted Verdict = iota
	// Rejected: the pod fails, and its controller may create another one, for another node.
	Rejected
	// Waits: if the pod were rejected, its controller would create another one for this node. It may wait for the end of
	// the pressure, for a bounded time, and is rejected then.
	Waits
)

// AdmitAttributes is a pod that is to be admitted.
type AdmitAttributes struct {
	Pod *v1.Pod
	// Running: the pod has containers, or resources were allocated for it before, so that it is already on the node.
	Running bool
	// ComparisonOperators: tolerations may compare numbers (feature gate TaintTolerationComparisonOperators).
	ComparisonOperators bool
}

// Admit decides whether a pod is admitted under the given node conditions. The message is stock's; it is empty for
// admitted pods.
//
//  1. Pods that already run here are admitted: a restart of the agent under pressure must not stop pods (kubernetes
//     issue 83612). So are critical pods.
//  2. Other pods are not admitted while a hard threshold is met.
//  3. While a condition is True and no hard threshold is met, pods that tolerate its taint are admitted, and under
//     memory pressure also those that are not BestEffort. Stock does this for memory only (kubernetes issues 65240 and
//     124388).
//  4. Pods that may wait do so instead of being rejected, and also while it is unknown, after a restart of the agent,
//     whether a hard threshold is met.
func Admit(conditions []Condition, a AdmitAttributes) (Verdict, string) {
	var pressures []v1.NodeConditionType
	hard, untolerated, unconfirmed := false, false, false
	for i := range conditions {
		c := &conditions[i]
		if !c.True {
			continue
		}
		pressures = append(pressures, c.Type)
		hard = hard || c.HardMet
		untolerated = untolerated || !tolerates(c.Type, &a)
		unconfirmed = unconfirmed || c.Restored
	}
	if len(pressures) == 0 || a.Running || kubetypes.IsCriticalPod(a.Pod) || (!hard && !untolerated && !unconfirmed) {
		return Admitted, ""
	}
	slices.Sort(pressures)
	message := fmt.Sprintf("The node had condition: %v. ", pressures)
	switch {
	case replacedOnThisNode(a.Pod):
		return Waits, message
	case hard || untolerated:
		return Rejected, message
	}
	return Admitted, ""
}

var taints = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: v1.TaintNodeMemoryPressure,
	v1.NodeDiskPressure:   v1.TaintNodeDiskPressure,
	v1.NodePIDPressure:    v1.TaintNodePIDPressure,
}

// tolerates reports whether a pod is admitted while the condition is True and no hard threshold is met.
func tolerates(t v1.NodeConditionType, a *AdmitAttributes) bool {
	if t == v1.NodeMemoryPressure && v1qos.GetPodQOS(a.Pod) != v1.PodQOSBestEffort {
		return true
	}
	taint := v1.Taint{Key: taints[t], Effect: v1.TaintEffectNoSchedule}
	return corev1helpers.TolerationsTolerateTaint(klog.Logger{}, a.Pod.Spec.Tolerations, &taint, a.ComparisonOperators)
}

// replacedOnThisNode reports whether a rejected pod would be replaced by another one on this node: its controller is a
// DaemonSet; or it was bound without a scheduler, so that its controller names the node; or it requires a node with
// this name.
func replacedOnThisNode(pod *v1.Pod) bool {
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
	// Terms are alternatives, so that each has to name the node.
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t v1.NodeSelectorTerm) bool {
		return !namesOneNode(t.MatchFields, metav1.ObjectNameField) && !namesOneNode(t.MatchExpressions, v1.LabelHostname)
	})
}

// scheduled reports whether a scheduler has bound the pod: the API server records the binding as a condition.
func scheduled(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
}

func namesOneNode(list []v1.NodeSelectorRequirement, key string) bool {
	return slices.ContainsFunc(list, func(r v1.NodeSelectorRequirement) bool {
		return r.Key == key && r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1
	})
}
