package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// RestartingAllContainers is the reason of containers that were removed because a restart rule of one container
// restarts all containers of the pod in place (KEP-5532).
const RestartingAllContainers = "RestartingAllContainers"

// restartRules determine whether a container that has terminated is started again.
type restartRules struct {
	spec     *v1.PodSpec
	features Features
}

// restarts is true when a container with this termination is started again. waiting is true if it is waiting for that
// already.
func (r restartRules) restarts(c *v1.Container, end *v1.ContainerStateTerminated, waiting bool) bool {
	if !r.features.ContainerRestartRules {
		return r.restartsByPodPolicy(end, waiting)
	}
	if r.features.RestartAllContainersOnContainerExits && end.Reason == RestartingAllContainers {
		return true
	}
	return podutil.ContainerShouldRestart(*c, *r.spec, end.ExitCode)
}

// restartsByPodPolicy applies the pod's restart policy only, without rules per container (KEP-5307).
func (r restartRules) restartsByPodPolicy(end *v1.ContainerStateTerminated, waiting bool) bool {
	switch r.spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return waiting || end.ExitCode != 0
	default:
		return true
	}
}
