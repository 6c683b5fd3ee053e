package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// containerCounts counts containers by their effect on the pod's phase. Ephemeral containers have none.
type containerCounts struct {
	// initPending are init containers that have not terminated.
	initPending int
	// initFailedForGood are init containers that failed and will not be restarted.
	initFailedForGood int
	// sidecarPending are restartable init containers that have not started, as far as the status shows.
	sidecarPending int

	// Sidecars and regular containers:
	running, waiting, unknown int

	// Regular containers that have terminated, those of them that will not be restarted, and those that exited with code
	// 0. A container that waits for its restart is stopped, but not succeeded.
	stopped, stoppedForGood, succeeded int
}

func countContainers(rules restartRules, status *v1.PodStatus) containerCounts {
	var t containerCounts
	for i := range rules.spec.InitContainers {
		c := &rules.spec.InitContainers[i]
		s := statusOf(c.Name, status)
		if podutil.IsRestartableInitContainer(c) {
			t.addSidecar(s)
		} else {
			t.addInit(rules, c, s)
		}
	}
	for i := range rules.spec.Containers {
		c := &rules.spec.Containers[i]
		t.addRegular(rules, c, statusOf(c.Name, status))
	}
	return t
}

// statusOf finds a container's status by name, nil when there is none. Names are unique within a pod.
func statusOf(name string, status *v1.PodStatus) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (t *containerCounts) addInit(rules restartRules, c *v1.Container, s *v1.ContainerStatus) {
	end, waiting := lastTermination(s)
	switch {
	case end == nil:
		t.initPending++
	case end.ExitCode != 0 && !rules.restarts(c, end, waiting):
		t.initFailedForGood++
	}
}

// addSidecar counts a restartable init container. One that has terminated has no effect on the phase.
func (t *containerCounts) addSidecar(s *v1.ContainerStatus) {
	end, waiting := lastTermination(s)
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
		if s.Started == nil || !*s.Started {
			t.sidecarPending++
		}
	case end != nil:
	case waiting:
		t.sidecarPending++
		t.waiting++
	default:
		t.sidecarPending++
		t.unknown++
	}
}

func (t *containerCounts) addRegular(rules restartRules, c *v1.Container, s *v1.ContainerStatus) {
	end, waiting := lastTermination(s)
	switch {
	case s != nil && s.State.Running != nil:
		t.running++
	case end != nil:
		t.addStopped(rules.restarts(c, end, waiting), !waiting && end.ExitCode == 0)
	case waiting:
		t.waiting++
	default:
		t.unknown++
	}
}

func (t *containerCounts) addStopped(restarts, succeeded bool) {
	t.stopped++
	if !restarts {
		t.stoppedForGood++
	}
	if succeeded {
		t.succeeded++
	}
}

// lastTermination returns the last termination of a container that does not run, nil if there is none or if it runs,
// and whether it is waiting.
func lastTermination(s *v1.ContainerStatus) (end *v1.ContainerStateTerminated, waiting bool) {
	switch {
	case s == nil, s.State.Running != nil:
		return nil, false
	case s.State.Terminated != nil:
		return s.State.Terminated, false
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated, true
	default:
		return nil, false
	}
}
