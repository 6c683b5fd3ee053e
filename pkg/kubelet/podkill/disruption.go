package podkill

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Disruption is the part of a pod's status that explains why the agent stops the pod. It is plain data: package
// terminations writes it to files, which later releases have to read.
type Disruption struct {
	// Phase is the phase of the pod while it terminates; empty leaves the phase as it is.
	Phase   v1.PodPhase `json:"phase,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	// Conditions are added to the status; each replaces an existing condition of the same type.
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
	// KeepSucceeded keeps a pod Succeeded whose containers have all exited with code 0, whatever Phase is.
	KeepSucceeded bool `json:"keepSucceeded,omitempty"`
	// Detail, if not nil, returns what is known so far of how the pod ends, to be appended to the message. It returns at
	// once, may be called from any goroutine, and is not recorded.
	Detail func() string `json:"-"`
}

// ApplyDetail appends the detail to the message in a status to which Apply has written the disruption. It does nothing
// if the status has another message; it replaces an earlier detail.
func (d *Disruption) ApplyDetail(status *v1.PodStatus) {
	if d == nil || d.Detail == nil || !strings.HasPrefix(status.Message, d.Message) {
		return
	}
	status.Message = d.Message + d.Detail()
}

// DisruptionTarget returns the condition DisruptionTarget (KEP-3329) of a pod that the agent stops.
func DisruptionTarget(pod *v1.Pod, message string) v1.PodCondition {
	return v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		ObservedGeneration: pod.Generation,
	}
}

// Apply writes the disruption into a status; a nil disruption changes nothing. Apply may be called repeatedly, and
// concurrently for different statuses. A condition whose status does not change keeps its transition time; the status
// manager sets the transition time of the others.
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
