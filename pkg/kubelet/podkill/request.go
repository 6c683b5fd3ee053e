// Package podkill is the contract between the pod workers and the parts of the agent that have pods stopped: eviction,
// preemption and the shutdown of the node. A request is a value. It is answered twice: at once with what the pod's
// lifecycle made of it (Answer), and later with how it ended (Ending).
package podkill

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Request asks the pod workers to stop a pod. Nothing in it may be modified afterwards.
type Request struct {
	Pod *v1.Pod
	// Evict is true when the pod is stopped to free resources: its content may be removed as soon as its containers have
	// stopped.
	Evict bool
	// GracePeriodSeconds overrides the pod's own grace period. Nil or negative leaves the pod its own. It can shorten what
	// was accepted before, never lengthen it.
	GracePeriodSeconds *int64
	// Disruption, if not nil, is what the pod's status says about the stop. It counts only if this request began the
	// termination, or if the request that began it brought none.
	Disruption *Disruption
}

// Func gives a request to the pod workers. It returns the first answer at once; the channel then delivers exactly one
// Ending. It may be called from any goroutine, also several times for one pod. When ctx ends, the waiting ends, not the
// stopping of the pod; when ctx has ended before, the request is refused.
type Func func(ctx context.Context, r Request) (Answer, <-chan Ending)

// Answer is what the lifecycle of a pod made of a request to stop it.
type Answer uint8

const (
	// Refused: the agent stops. Nothing was done.
	Refused Answer = iota
	// Begun: the request began the termination of the pod.
	Begun
	// Hastened: the pod was terminating, or had been deleted, before; the request shortened its grace period.
	Hastened
	// Joined: the pod was terminating, or had been deleted, before, and the request changed nothing.
	Joined
	// Over: no container of the pod was running any more.
	Over
)

var answerNames = [...]string{"refused", "begun", "hastened", "joined", "over"}

func (a Answer) String() string { return answerNames[a] }

// Outcome is how a request ended.
type Outcome uint8

const (
	// Failed: the waiting ended before the pod had stopped, for the reason in Ending.Err: the agent stops, or the caller's
	// context has ended. The pod may go on terminating.
	Failed Outcome = iota
	// Stopped: no container of the pod is running any more.
	Stopped
	// Overdue: the pod is still terminating after max(10 s, 1.5 × grace period), and goes on.
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

// Ended returns a channel that delivers an ending which is known already.
func Ended(e Ending) <-chan Ending {
	ended := make(chan Ending, 1)
	ended <- e
	return ended
}
