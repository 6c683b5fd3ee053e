package podview

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DeletionSafety decides when the API server may delete a pod. It is stock's status.PodDeletionSafetyProvider.
type DeletionSafety struct {
	Containers interface {
		CouldHaveRunningContainers(uid types.UID) bool
	}
	// Devices are those of resource claims (gate DynamicResourceAllocation); nil without the gate.
	Devices interface {
		PodMightNeedToUnprepareResources(uid types.UID) bool
	}
}

// PodCouldHaveRunningContainers is true also while devices of the pod's resource claims are still prepared.
func (s DeletionSafety) PodCouldHaveRunningContainers(pod *v1.Pod) bool {
	return s.Containers.CouldHaveRunningContainers(pod.UID) ||
		s.Devices != nil && s.Devices.PodMightNeedToUnprepareResources(pod.UID)
}

// PodResources lists the pods of the PodResources API (KEP-606). It is stock's podresources.PodsProvider.
type PodResources struct {
	View *View
	// Pods lists the configured pods.
	Pods interface {
		Configured
		GetPodByName(namespace, name string) (*v1.Pod, bool)
	}
}

// GetActivePods returns the pods that hold resources of the node.
func (p PodResources) GetActivePods() []*v1.Pod { return p.View.Active() }

// GetPods returns all configured pods.
func (p PodResources) GetPods() []*v1.Pod { return p.Pods.GetPods() }

// GetPodByName returns a pod that holds resources of the node.
func (p PodResources) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	pod, ok := p.Pods.GetPodByName(namespace, name)
	if !ok || !p.View.active(pod) {
		return nil, false
	}
	return pod, true
}
