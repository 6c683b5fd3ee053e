package nodeshutdown

import (
	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Reason and message in the status of a pod that was stopped for a shutdown; both are stock's.
const (
	reasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated in response to imminent node shutdown."
)

// failedDisruption returns the disruption of a pod that does not restart after the shutdown. The pod is Failed, so that
// its controller replaces it, unless all its containers exit with code 0. The condition DisruptionTarget shows that the
// pod itself is not the cause (KEP-3329).
func failedDisruption(pod *v1.Pod) *podkill.Disruption {
	return &podkill.Disruption{
		Phase: v1.PodFailed, KeepSucceeded: true, Reason: reasonTerminated, Message: messageTerminated,
		Conditions: []v1.PodCondition{podkill.DisruptionTarget(pod, messageTerminated)},
	}
}
