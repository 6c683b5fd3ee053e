// Package admission decides whether a pod that was bound to this node may start, and tells the API server when it may not.
//
// The chain of admit handlers itself is run by stock's allocation manager, which keeps the pods' allocated resources; this
// package puts the chain together (chain.go), knows which pods ran here before the agent was restarted (readmission.go), keeps
// those that wait (waiting.go), counts room that changes hands once (handover.go), and turns a refusal into an event, a failed status
// and a metric (reject.go).
package admission

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Allocator runs the chain of admit handlers and records what was allocated. Stock's allocation.Manager implements it.
type Allocator interface {
	// AddPod answers whether the pod is admitted beside the active ones, or a one-word reason and a message.
	AddPod(active []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string)
}

// Gate admits, rejects, or lets wait. Its methods are called by the sync loop only, and none of them waits.
type Gate struct {
	allocator   Allocator
	readmission *Readmission
	room        *Room
	rejector    *Rejector
}

// NewGate returns a gate over the allocator's chain. The handlers in the chain ask the same readmission.
func NewGate(allocator Allocator, readmission *Readmission, room *Room, rejector *Rejector) *Gate {
	return &Gate{allocator: allocator, readmission: readmission, room: room, rejector: rejector}
}

// Admit runs the chain for a pod that is new to this process, or has waited. When it is refused, the refusal is published and
// false returned; false as well while the pod waits: then the room holds it, and the caller asks again later.
func (g *Gate) Admit(ctx context.Context, pod *v1.Pod) bool {
	if !g.room.Holds(pod.UID) {
		// A pod that waits did not run before.
		done := g.readmission.begin(pod)
		defer done()
	}
	if g.room.Hold(ctx, pod) {
		return false
	}
	return g.judge(ctx, pod)
}

// judge runs the chain. The other pods are listed only now: whatever the pod has waited for is over, and what has ended
// until then is not in the list. A refusal is worth nothing when one of them has ended meanwhile, or when room was being
// made for the pod and is not any more.
func (g *Gate) judge(ctx context.Context, pod *v1.Pod) bool {
	for {
		making, beside := g.room.Victims.Making(pod.UID), g.room.Beside(pod)
		ok, reason, message := g.allocator.AddPod(beside, pod)
		switch {
		case ok:
			g.room.Free(pod.UID)
			return true
		case g.room.ended(beside):
		case g.room.HoldForVictims(ctx, pod, beside, message):
			return false
		case making && !g.room.Victims.Making(pod.UID):
		default:
			g.room.Free(pod.UID)
			g.rejector.Reject(ctx, pod, reason, message)
			countRejection(reason)
			return false
		}
	}
}
