package podstatus

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Waiting reasons of containers that the runtime does not know (yet).
const (
	// PodInitializing is the reason of all containers of a pod that has init containers.
	PodInitializing = "PodInitializing"
	// ContainerCreating is the reason of the containers of any other pod.
	ContainerCreating = "ContainerCreating"
)

// exitCodeUnknown stands for the exit code of a container whose end nobody saw. It counts as a failure.
const exitCodeUnknown = 137

const (
	messageVanished = "The container could not be located when the pod was deleted.  The container used to be " +
		"Running"
	messageRemovedInPlace  = "The container is removed because RestartAllContainers in place"
	messageNotLocated      = "The container could not be located when the pod was terminated"
	messageInitUnavailable = "Unable to get init container status from container runtime and pod has been initialized, " +
		"treat it as exited normally"
)

// absent is the status of a container that the runtime knows nothing of: it was not created yet, or it has been
// removed.
func (c *converter) absent(spec *v1.Container, previous *v1.ContainerStatus) v1.ContainerStatus {
	s := c.waitingFromTheStart(spec)
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

// waitingFromTheStart is the status of a container before anything was seen of it.
func (c *converter) waitingFromTheStart(spec *v1.Container) v1.ContainerStatus {
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

// removedInPlace is for a container that was removed for a restart of all containers: it waits, and says why.
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

// vanished is for a container that ran when last seen. It gets a termination, because a container that only waits would
// take the whole pod back to Pending. Unless the pod is being deleted the container is going to be restarted.
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
