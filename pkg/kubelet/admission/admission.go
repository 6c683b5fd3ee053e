// Package admission decides whether a pod that was bound to this node may start, and reports a rejection to the API
// server.
//
// Stock's allocation manager runs the chain of admit handlers, because it keeps the pods' allocated resources. This
// package composes the chain (chain.go), recognizes pods that ran here before the agent was restarted (readmission.go),
// keeps the pods that wait for admission (waiting.go), runs the predicates before and after a preemption
// (preemption.go), and turns a refusal into an event, a failed status and a metric (reject.go).
package admission

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Allocator runs the chain of admit handlers and records what was allocated. Stock's allocation.Manager implements it.
type Allocator interface {
	// AddPod reports whether the pod is admitted in addition to the active ones. If it is refused, reason is one word.
	AddPod(active []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string)
}

// Gate admits a pod, rejects it, or makes it wait. Only the sync loop may call its methods; none of them blocks.
type Gate struct {
	allocator   Allocator
	readmission *Readmission
	waiting     *WaitingPods
	rejector    *Rejector
}

// NewGate returns a gate over the allocator's chain. The handlers of the chain have to use the same readmission.
func NewGate(allocator Allocator, readmission *Readmission, waiting *WaitingPods, rejector *Rejector) *Gate {
	return &Gate{allocator: allocator, readmission: readmission, waiting: waiting, rejector: rejector}
}

// Admit runs the chain for a pod that is new to this process or has waited, and returns whether the pod was admitted.
// It reports a rejection to the API server. It also returns false when the pod has to wait; the caller tries again
// later.
func (g *Gate) Admit(ctx context.Context, pod *v1.Pod) bool {
	if !g.waiting.IsWaiting(pod.UID) {
		// A waiting pod did not run before.
		done := g.readmission.begin(pod)
		defer done()
	}
	if g.waiting.ShouldWait(ctx, pod) {
		return false
	}
	return g.runHandlers(ctx, pod)
}

// runHandlers runs the chain with a list of competing pods that is read only now, so that pods which have ended while
// the pod waited do not count. A refusal has no effect if a competing pod has ended since the list was read, or if a
// preemption attempt for the pod has ended since: then the chain runs again.
func (g *Gate) runHandlers(ctx context.Context, pod *v1.Pod) bool {
	for {
		inProgress, competing := g.waiting.Victims.InProgress(pod.UID), g.waiting.Competing(pod)
		ok, reason, message := g.allocator.AddPod(competing, pod)
		switch {
		case ok:
			g.waiting.Release(pod.UID)
			return true
		case g.waiting.anyEnded(competing):
		case g.waiting.WaitForVictims(ctx, pod, competing, message):
			return false
		case inProgress && !g.waiting.Victims.InProgress(pod.UID):
		default:
			g.waiting.Release(pod.UID)
			g.rejector.Reject(ctx, pod, reason, message)
			countRejection(reason)
			return false
		}
	}
}
