package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// RestartingAllContainers is the reason of containers that were removed because a container's restart rule asked for a
// restart of the whole pod in place (KEP-5532).
const RestartingAllContainers = "RestartingAllContainers"

// restartRules say whether a container that has ended is started again.
type restartRules struct {
	spec     *v1.PodSpec
	features Features
}

// restarts is true when a container that ended like this is started again. waiting tells that it is waiting for that
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

// restartsByPodPolicy knows the pod's policy only, as it was before containers had rules of their own (KEP-5307).
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
