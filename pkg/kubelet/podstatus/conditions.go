package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

// setConditions sets the conditions of other owners, as the API server shows them, then those of the kubelet. The order
// matters because the condition Ready depends on readiness gates.
func (g *generation) setConditions(out *v1.PodStatus) {
	conditions := append(g.foreignConditions(), g.resizeConditions()...)
	// DisruptionTarget is set once, when the disruption begins, and cannot be computed again.
	if _, c := podutil.GetPodConditionFromList(g.Previous.Conditions, v1.DisruptionTarget); c != nil {
		conditions = utilpod.ReplaceOrAppendPodCondition(conditions, c)
	}
	out.Conditions = append(conditions, g.ownConditions(conditions, out)...)
}

func (g *generation) foreignConditions() []v1.PodCondition {
	kept := make([]v1.PodCondition, 0, len(g.Pod.Status.Conditions)+1)
	for _, c := range g.Pod.Status.Conditions {
		if !kubetypes.PodConditionByKubelet(c.Type) {
			kept = append(kept, c)
		}
	}
	return kept
}

// resizeConditions keep their observed generation, since a pending resize may be one of an earlier generation. It is
// cleared only when generations are not tracked at all.
func (g *generation) resizeConditions() []v1.PodCondition {
	if g.Terminal {
		return nil
	}
	var conditions []v1.PodCondition
	for _, c := range g.ResizeConditions {
		c := *c
		if g.observed(c.Type) == 0 {
			c.ObservedGeneration = 0
		}
		conditions = append(conditions, c)
	}
	return conditions
}

func (g *generation) ownConditions(existing []v1.PodCondition, out *v1.PodStatus) []v1.PodCondition {
	all := slices.Concat(out.InitContainerStatuses, out.ContainerStatuses)
	if all == nil {
		// Nil would mean that the container statuses are unknown.
		all = []v1.ContainerStatus{}
	}
	var own []v1.PodCondition
	if g.Features.PodReadyToStartContainersCondition {
		own = append(own, status.GeneratePodReadyToStartContainersCondition(g.Pod, &g.Previous, g.Runtime))
	}
	own = append(own, status.GeneratePodInitializedCondition(g.Pod, &g.Previous, all, out.Phase))
	own = append(own,
		status.GeneratePodReadyCondition(g.Pod, &g.Previous, slices.Concat(existing, own), all, out.Phase),
		status.GenerateContainersReadyCondition(g.Pod, &g.Previous, all, out.Phase),
		v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, ObservedGeneration: g.observed(v1.PodScheduled)},
	)
	if g.Features.RestartAllContainersOnContainerExits && podutil.AllContainersCouldRestart(&g.Pod.Spec) {
		own = append(own, status.GenerateAllContainersRestartingCondition(g.Pod, g.Runtime, &g.Previous, out.Phase))
	}
	return own
}

func (g *generation) observed(condition v1.PodConditionType) int64 {
	return podutil.CalculatePodConditionObservedGeneration(&g.Previous, g.Pod.Generation, condition)
}
