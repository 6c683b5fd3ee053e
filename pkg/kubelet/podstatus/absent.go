package podstatus

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Reasons of waiting containers that the runtime has not created, or has removed.
const (
	// PodInitializing is the reason of all containers of a pod that has init containers.
	PodInitializing = "PodInitializing"
	// ContainerCreating is the reason of the containers of any other pod.
	ContainerCreating = "ContainerCreating"
)

// exitCodeUnknown is the exit code of a container whose exit was not observed. It counts as a failure.
const exitCodeUnknown = 137

const (
	messageVanished = "The container could not be located when the pod was deleted.  The container used to be " +
		"Running"
	messageRemovedInPlace  = "The container is removed because RestartAllContainers in place"
	messageNotLocated      = "The container could not be located when the pod was terminated"
	messageInitUnavailable = "Unable to get init container status from container runtime and pod has been initialized, " +
		"treat it as exited normally"
)

// absent returns the status of a container that the runtime does not list: it was not created yet, or it was removed.
func (c *converter) absent(spec *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	s := c.initialStatus(spec)
	if previous == nil {
		return s
	}
	ended := previous.State.Terminated != nil
	if ended {
		s = *previous
	} else {
		s.RestartCount = previous.RestartCount
		s.LastTerminationState = previous.LastTerminationState
	}
	switch {
	case c.podRestarting && previous.State.Waiting == nil:
		removedInPlace(&s, previous)
	case !ended && previous.State.Running != nil && s.LastTerminationState.Terminated == nil:
		c.vanished(&s)
	}
	return s
}

// initialStatus returns the status of a container that has not been created.
func (c *converter) initialStatus(spec *v1.Container) v1.ContainerStatus {
	reason := ContainerCreating
	if len(c.Pod.Spec.InitContainers) > 0 {
		reason = PodInitializing
	}
	return v1.ContainerStatus{
		Name:         spec.Name,
		Image:        spec.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
		VolumeMounts: c.volumeMounts(spec),
	}
}

// removedInPlace changes the status of a container that was removed for a restart of all containers to waiting.
func removedInPlace(s, previous *v1.ContainerStatus) {
	s.State.Terminated = nil
	s.State.Waiting = &v1.ContainerStateWaiting{Reason: RestartingAllContainers, Message: messageRemovedInPlace}
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		Reason:   RestartingAllContainers,
		Message:  messageRemovedInPlace,
		ExitCode: exitCodeUnknown,
	}
	s.RestartCount = previous.RestartCount + 1
}

// vanished changes the status of a container that was running before. It sets a last termination, because a container
// that only waits would change the phase of the pod back to Pending. Unless the pod is being deleted, the restart of
// the container is counted.
func (c *converter) vanished(s *v1.ContainerStatus) {
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		Reason:   kubecontainer.ContainerReasonStatusUnknown,
		Message:  messageVanished,
		ExitCode: exitCodeUnknown,
	}
	if c.Pod.DeletionTimestamp == nil {
		s.RestartCount++
	}
}
