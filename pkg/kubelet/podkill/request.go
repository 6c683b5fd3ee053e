// Package podkill is the contract between the pod workers and the parts of the agent that request the termination of
// pods: eviction, preemption and node shutdown. A request is a value. It is answered twice: at once with its effect on
// the pod's lifecycle (Answer), and later with the end of the wait for the pod's containers (Ending).
package podkill

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Request asks the pod workers to stop a pod. Nothing in it may be modified afterwards.
type Request struct {
	Pod *v1.Pod
	// Evict is true when the pod is stopped to free resources: its containers and logs may be removed as soon as its
	// containers have stopped.
	Evict bool
	// GracePeriodSeconds overrides the pod's own grace period; nil or a negative value does not override it. A request can
	// shorten the grace period that an earlier one set, never lengthen it.
	GracePeriodSeconds *int64
	// Disruption, if not nil, is written into the pod's status. It is ignored if an earlier request began the termination
	// and had a Disruption of its own.
	Disruption *Disruption
}

// Func passes a request to the pod workers. It returns the first answer at once; the channel then delivers exactly one
// Ending. It may be called from any goroutine, also several times for one pod. The end of ctx ends the wait, not the
// termination of the pod; if ctx has ended before the call, the request is refused.
type Func func(ctx context.Context, r Request) (Answer, <-chan Ending)

// Answer is the effect of a request on the lifecycle of its pod.
type Answer uint8

const (
	// Refused: the agent is stopping, or the context has ended. The request has no effect.
	Refused Answer = iota
	// Begun: the request began the termination of the pod.
	Begun
	// Hastened: the pod was terminating, or had been deleted, before; the request shortened its grace period.
	Hastened
	// Unchanged: the pod was terminating, or had been deleted, before; the request did not shorten its grace period.
	Unchanged
	// AlreadyStopped: no container of the pod was running any more.
	AlreadyStopped
)

var answerNames = [...]string{"refused", "begun", "hastened", "unchanged", "already stopped"}

func (a Answer) String() string { return answerNames[a] }

// Outcome is how the wait for a pod's containers ended.
type Outcome uint8

const (
	// Failed: the wait ended before the pod had stopped, for the reason in Ending.Err: the agent is stopping, or the
	// caller's context has ended. The pod may still be terminating.
	Failed Outcome = iota
	// Stopped: no container of the pod is running any more.
	Stopped
	// Overdue: the pod is still terminating after max(10 s, 1.5 × grace period). Its termination continues.
	Overdue
)

var outcomeNames = [...]string{"failed", "stopped", "overdue"}

func (o Outcome) String() string { return outcomeNames[o] }

// Ending is the second answer to a request.
type Ending struct {
	Outcome Outcome
	// Err is nil if and only if the pod has stopped.
	Err error
}

// Ended returns a channel that delivers e.
func Ended(e Ending) <-chan Ending {
	ended := make(chan Ending, 1)
	ended <- e
	return ended
}
