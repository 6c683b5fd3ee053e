package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// tally counts containers by what they mean for the pod's phase. Ephemeral containers mean nothing.
type tally struct {
	// initPending are init containers that have still to end.
	initPending int
	// initFailedForGood are init containers that failed and will not be tried again.
	initFailedForGood int
	// sidecarPending are restartable init containers that have not started yet, or are not known to have.
	sidecarPending int

	// Sidecars and regular containers:
	running, waiting, unknown int

	// Regular containers that have ended, how many of them will stay so, and how many ended well. One that waits for its
	// restart has ended, but not well.
	stopped, stoppedForGood, succeeded int
}

func tallyContainers(rules restartRules, status *v1.PodStatus) tally {
	var t tally
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

func (t *tally) addInit(rules restartRules, c *v1.Container, s *v1.ContainerStatus) {
	end, waiting := lastEnd(s)
	switch {
	case end == nil:
		t.initPending++
	case end.ExitCode != 0 && !rules.restarts(c, end, waiting):
		t.initFailedForGood++
	}
}

// addSidecar counts a restartable init container. One that has ended, or waits for its restart, does not matter: its
// end is not the pod's end.
func (t *tally) addSidecar(s *v1.ContainerStatus) {
	end, waiting := lastEnd(s)
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

func (t *tally) addRegular(rules restartRules, c *v1.Container, s *v1.ContainerStatus) {
	end, waiting := lastEnd(s)
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

func (t *tally) addStopped(restarts, succeeded bool) {
	t.stopped++
	if !restarts {
		t.stoppedForGood++
	}
	if succeeded {
		t.succeeded++
	}
}

// lastEnd returns how a container that does not run has ended, nil if it never has (or runs), and whether it is waiting
// now.
func lastEnd(s *v1.ContainerStatus) (end *v1.ContainerStateTerminated, waiting bool) {
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
