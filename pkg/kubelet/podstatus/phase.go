package podstatus

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// ReasonWaitingForRoom is the reason in the status of a pod that waits for admission to the node. Generate removes it,
// because a status is generated for admitted pods only, which may be Pending for other reasons (an image is pulled).
const ReasonWaitingForRoom = "WaitingForRoom"

// setPhase sets phase, reason and message. A terminal phase that was reported before, or that the API server has, is
// final.
func (g *generation) setPhase(out *v1.PodStatus) {
	out.Phase = g.terminalPhase(g.phaseOfContainers(out))
	if out.Phase == g.Previous.Phase {
		for _, earlier := range []*v1.PodStatus{&g.Previous, &g.Pod.Status} {
			if earlier.Reason != ReasonWaitingForRoom {
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

// Stock's reasons in the statuses of pods that the agent stops for reasons outside of the pod.
const (
	// reasonShutdown: the machine shuts down.
	reasonShutdown = "Terminated"
	// reasonPreempted: the pod was preempted for a critical pod.
	reasonPreempted = "Preempting"
)

// terminalPhase returns the terminal phase that was reported before, if the container states alone do not give one. A
// pod that the agent failed for a reason such as Evicted or DeadlineExceeded stays Failed even if its containers exit
// with code 0. Stock reports such a pod as Succeeded: the eviction is not visible, and a Job counts the pod as
// completed.
func (g *generation) terminalPhase(phase v1.PodPhase) v1.PodPhase {
	if g.failedByAgent() {
		return v1.PodFailed
	}
	if isTerminal(phase) {
		return phase
	}
	for _, earlier := range []v1.PodPhase{g.Previous.Phase, g.Pod.Status.Phase} {
		if isTerminal(earlier) {
			g.note(Note{Text: "Keeping terminal phase that the container states do not show", Phase: phase})
			return earlier
		}
	}
	return phase
}

// failedByAgent is true when the agent has failed the pod with a reason of its own. Node shutdown and preemption do not
// count: as with stock, a pod whose containers all exit with code 0 is then Succeeded (ADR 13).
func (g *generation) failedByAgent() bool {
	if g.Previous.Phase != v1.PodFailed {
		return false
	}
	switch g.Previous.Reason {
	case "", reasonShutdown, reasonPreempted:
		return false
	}
	return true
}

// phaseOfContainers returns the phase that results from the container statuses alone.
func (g *generation) phaseOfContainers(out *v1.PodStatus) v1.PodPhase {
	rules := restartRules{spec: &g.Pod.Spec, features: g.Features}
	t := countContainers(rules, out)
	started := kubecontainer.HasAnyActiveRegularContainerStarted(&g.Pod.Spec, g.Runtime)
	// A static pod has no terminal phase of its own: the manifest that defines it still exists
	// (kubernetes/kubernetes#116484).
	final := g.Terminal && !kubetypes.IsStaticPod(g.Pod)
	return t.phase(started, final)
}

// phase computes the phase from the counts. started is true when a regular container of the current sandbox has been
// started: sidecars that restart afterwards do not change the phase back to Pending. final is true when no container
// will be restarted, whatever the restart policy is.
func (t containerCounts) phase(started, final bool) v1.PodPhase {
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
