package podstatus

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// ReasonWaiting is the reason in the status of a pod that waits to enter the node. A status is generated for pods that
// have entered; that they are Pending for other reasons then (an image is pulled) must not look like waiting.
const ReasonWaiting = "WaitingForRoom"

// setPhase sets phase, reason and message. A terminal phase, once reported by us or shown by the API server, is never
// left.
func (g *generation) setPhase(out *v1.PodStatus) {
	out.Phase = g.keepTerminal(g.phaseOfContainers(out))
	if out.Phase == g.Previous.Phase {
		for _, earlier := range []*v1.PodStatus{&g.Previous, &g.Pod.Status} {
			if earlier.Reason != ReasonWaiting {
				out.Reason, out.Message = firstNonEmpty(out.Reason, earlier.Reason), firstNonEmpty(out.Message, earlier.Message)
			}
		}
	}
	if g.Evict != nil {
		out.Phase, out.Reason, out.Message = v1.PodFailed, g.Evict.Reason, g.Evict.Message
	}
	if shown := g.Pod.Status.Phase; isTerminal(shown) && out.Phase != shown {
		g.note(Note{Problem: true, Text: "Pod attempted illegal phase transition", Phase: out.Phase})
		out.Phase = shown
	}
}

// Reasons of pods that the agent stops through no fault of their own; they are stock's.
const (
	// reasonShutdown: the machine goes down.
	reasonShutdown = "Terminated"
	// reasonPreempted: a critical pod needs the room.
	reasonPreempted = "Preempting"
)

// keepTerminal returns the terminal phase that was reported before, if the containers alone do not give one. A failure
// for a reason (evicted, past its deadline) also stands against containers that ended well when they were stopped:
// stock reports such a pod as Succeeded, so that the eviction is not visible and a Job counts the pod as done.
func (g *generation) keepTerminal(phase v1.PodPhase) v1.PodPhase {
	if g.endedByAgent() {
		return v1.PodFailed
	}
	if isTerminal(phase) {
		return phase
	}
	for _, earlier := range []v1.PodPhase{g.Previous.Phase, g.Pod.Status.Phase} {
		if isTerminal(earlier) {
			g.note(Note{Text: "Terminal phase is kept although the containers do not show it", Phase: phase})
			return earlier
		}
	}
	return phase
}

// endedByAgent is true when the agent has failed the pod and said why: no container's end comes with a reason. A
// shutdown of the node and a preemption do not count: they are nothing against a pod whose containers have all ended
// well, as with stock (ADR 13).
func (g *generation) endedByAgent() bool {
	if g.Previous.Phase != v1.PodFailed {
		return false
	}
	switch g.Previous.Reason {
	case "", reasonShutdown, reasonPreempted:
		return false
	}
	return true
}

// phaseOfContainers is the phase as the container statuses alone give it.
func (g *generation) phaseOfContainers(out *v1.PodStatus) v1.PodPhase {
	rules := restartRules{spec: &g.Pod.Spec, features: g.Features}
	t := tallyContainers(rules, out)
	started := kubecontainer.HasAnyActiveRegularContainerStarted(&g.Pod.Spec, g.Runtime)
	// Static pods have no terminal phase of their own: the file that defines them is still there
	// (kubernetes/kubernetes#116484).
	final := g.Terminal && !kubetypes.IsStaticPod(g.Pod)
	return t.phase(started, final)
}

// phase decides from the counts. started is true when a regular container of the present sandbox has been started:
// sidecars that restart afterwards do not take the pod back to Pending. final is true when nothing will be restarted,
// whatever the policy says.
func (t tally) phase(started, final bool) v1.PodPhase {
	switch {
	case t.initFailedForGood > 0:
		return v1.PodFailed
	case t.initPending > 0, t.sidecarPending > 0 && !started:
		return v1.PodPending
	case t.waiting > 0, t.unknown > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped == 0:
		return v1.PodPending
	case !final && t.stopped > t.stoppedForGood:
		// At least one container is about to be restarted.
		return v1.PodRunning
	case t.stopped == t.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

func isTerminal(phase v1.PodPhase) bool {
	return phase == v1.PodFailed || phase == v1.PodSucceeded
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
