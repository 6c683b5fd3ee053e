package podkill

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Disruption is what the status of a pod says about its stop by the agent. It is a plain value: package terminations
// writes it to files, which later releases have to read.
type Disruption struct {
	// Phase is set while the pod terminates, unless empty.
	Phase   v1.PodPhase `json:"phase,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	// Conditions are added, or take the place of those of the same type.
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
	// KeepSucceeded is true when Phase does not count for a pod whose containers have all ended well: that pod is
	// Succeeded.
	KeepSucceeded bool `json:"keepSucceeded,omitempty"`
}

// Target is the condition DisruptionTarget of a pod that the agent stops (KEP-3329).
func Target(pod *v1.Pod, message string) v1.PodCondition {
	return v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		ObservedGeneration: pod.Generation,
	}
}

// Apply writes the disruption into a status. Nil writes nothing. It may be called more than once, and for several
// statuses at the same time. A condition that had the same status before keeps its transition time; the status manager
// sets the others.
func (d *Disruption) Apply(status *v1.PodStatus) {
	if d == nil {
		return
	}
	if d.Phase != "" && (!d.KeepSucceeded || status.Phase != v1.PodSucceeded) {
		status.Phase = d.Phase
	}
	status.Reason, status.Message = d.Reason, d.Message
	for _, c := range d.Conditions {
		i, earlier := podutil.GetPodCondition(status, c.Type)
		if earlier == nil {
			status.Conditions = append(status.Conditions, c)
			continue
		}
		if earlier.Status == c.Status {
			c.LastTransitionTime = earlier.LastTransitionTime
		}
		status.Conditions[i] = c
	}
}
