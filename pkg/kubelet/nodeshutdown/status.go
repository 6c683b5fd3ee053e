package nodeshutdown

import (
	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// What the API shows of a pod that was stopped because the machine goes down; both are stock's.
const (
	reasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated in response to imminent node shutdown."
)

// failed is what the status says of a pod that does not start again: it is Failed, unless its containers have ended
// well, so that its controller makes another, and the disruption is no fault of the pod's own (KEP-3329).
func failed(pod *v1.Pod) *podkill.Disruption {
	return &podkill.Disruption{
		Phase: v1.PodFailed, KeepSucceeded: true, Reason: reasonTerminated, Message: messageTerminated,
		Conditions: []v1.PodCondition{podkill.DisruptionTarget(pod, messageTerminated)},
	}
}
