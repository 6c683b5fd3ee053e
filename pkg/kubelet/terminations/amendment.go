package terminations

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Amendment is what a request to stop a pod adds to the pod's status: a function, written down.
type Amendment struct {
	Phase   v1.PodPhase `json:"phase,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	// Conditions are added, or take the place of those of the same type.
	Conditions []v1.PodCondition `json:"conditions,omitempty"`
	// KeepSucceeded is true when Phase does not count for a pod that has succeeded.
	KeepSucceeded bool `json:"keepSucceeded,omitempty"`
}

// AmendmentOf writes down what amend does. It calls it for an empty status and for one that has succeeded; nil gives nil.
func AmendmentOf(amend func(*v1.PodStatus)) *Amendment {
	if amend == nil {
		return nil
	}
	var status v1.PodStatus
	amend(&status)
	succeeded := v1.PodStatus{Phase: v1.PodSucceeded}
	amend(&succeeded)
	return &Amendment{
		Phase:         status.Phase,
		Reason:        status.Reason,
		Message:       status.Message,
		Conditions:    status.Conditions,
		KeepSucceeded: status.Phase != v1.PodSucceeded && status.Phase != "" && succeeded.Phase == v1.PodSucceeded,
	}
}

// Apply amends a status. It may be called more than once, and for several statuses at the same time.
func (a *Amendment) Apply(status *v1.PodStatus) {
	if a.Phase != "" && (!a.KeepSucceeded || status.Phase != v1.PodSucceeded) {
		status.Phase = a.Phase
	}
	status.Reason, status.Message = a.Reason, a.Message
	for i := range a.Conditions {
		podutil.UpdatePodCondition(status, a.Conditions[i].DeepCopy())
	}
}
