package nodeshutdown

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// What the API shows of a pod that was stopped because the machine goes down; both are stock's.
const (
	reasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated in response to imminent node shutdown."
)

// failed amends the status of a pod that does not start again: it is Failed, unless it has succeeded before, so that its controller
// makes another, and the disruption is no fault of the pod's own (KEP-3329).
func failed(pod *v1.Pod) func(*v1.PodStatus) {
	return func(status *v1.PodStatus) {
		if status.Phase != v1.PodSucceeded {
			status.Phase = v1.PodFailed
		}
		status.Reason, status.Message = reasonTerminated, messageTerminated
		podutil.UpdatePodCondition(status, &v1.PodCondition{
			Type:               v1.DisruptionTarget,
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.DisruptionTarget),
			Status:             v1.ConditionTrue,
			Reason:             v1.PodReasonTerminationByKubelet,
			Message:            messageTerminated,
		})
	}
}
