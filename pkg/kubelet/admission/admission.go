// Package admission decides whether a pod that was bound to this node may start, and tells the API server when it may not.
//
// The chain of admit handlers itself is run by stock's allocation manager, which keeps the pods' allocated resources; this
// package puts the chain together (chain.go), knows which pods ran here before the agent was restarted (readmission.go), and
// turns a refusal into an event, a failed status and a metric (reject.go).
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

// Gate admits or rejects. Its methods are called by the sync loop only.
type Gate struct {
	allocator   Allocator
	readmission *Readmission
	rejector    *Rejector
}

// NewGate returns a gate over the allocator's chain. The handlers in the chain ask the same readmission.
func NewGate(allocator Allocator, readmission *Readmission, rejector *Rejector) *Gate {
	return &Gate{allocator: allocator, readmission: readmission, rejector: rejector}
}

// Admit runs the chain for a pod that is new to this process. When it is refused, the refusal is published and false returned.
func (g *Gate) Admit(ctx context.Context, active []*v1.Pod, pod *v1.Pod) bool {
	done := g.readmission.begin(ctx, pod)
	defer done()
	ok, reason, message := g.allocator.AddPod(active, pod)
	if !ok {
		g.rejector.Reject(ctx, pod, reason, message)
		countRejection(reason)
	}
	return ok
}
