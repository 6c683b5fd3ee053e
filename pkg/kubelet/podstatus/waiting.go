package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// initSucceeded is true for an init container that has completed and will not run again. One that the runtime does not
// list must have succeeded if a regular container was created after it; its status may be lost with a static pod, or if
// it never reached the API server. That does not hold while all containers are restarted in place, since the regular
// container is then an earlier one. (Stock applies it even then, and counts a restart with each status until the last
// container is removed.)
func (c *converter) initSucceeded(spec *v1.Container, s *v1.ContainerStatus) bool {
	if record := c.Runtime.FindContainerStatusByName(spec.Name); record != nil {
		return record.State == kubecontainer.ContainerStateExited && record.ExitCode == 0
	}
	if c.podRestarting || podutil.IsRestartableInitContainer(spec) || s.State.Waiting == nil ||
		!c.anyRegularContainerCreated() {
		return false
	}
	s.State = v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{Reason: "Completed", Message: messageInitUnavailable},
	}
	return true
}

func (c *converter) anyRegularContainerCreated() bool {
	for i := range c.Pod.Spec.Containers {
		record := c.Runtime.FindContainerStatusByName(c.Pod.Spec.Containers[i].Name)
		if record != nil && record.State != kubecontainer.ContainerStateUnknown {
			return true
		}
	}
	return false
}

// explainWaiting changes the state of a container whose last start failed to waiting, with the reason of the failure.
// Without a reason the state stays as it is.
func (c *converter) explainWaiting(spec *v1.Container, s *v1.ContainerStatus) {
	if c.Lookups.StartError == nil || !c.isStartedNext(spec) {
		return
	}
	reason, ok := c.Lookups.StartError(spec.Name)
	if !ok {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason.Err.Error(), Message: reason.Message}}
}

// isStartedNext is true when the next synchronization of the pod is going to start the container.
func (c *converter) isStartedNext(spec *v1.Container) bool {
	if c.Pod.DeletionTimestamp != nil {
		return false
	}
	record := c.Runtime.FindContainerStatusByName(spec.Name)
	switch {
	case record == nil:
		return true
	case record.State == kubecontainer.ContainerStateRunning:
		return false
	case record.State == kubecontainer.ContainerStateExited:
		rules := restartRules{spec: &c.Pod.Spec, features: c.Features}
		return rules.restarts(spec, &v1.ContainerStateTerminated{ExitCode: int32(record.ExitCode)}, false)
	default:
		return true
	}
}
