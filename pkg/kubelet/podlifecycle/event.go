package podlifecycle

import "k8s.io/apimachinery/pkg/types"

// Event is something that happened to one pod. The set is closed.
type Event interface{ event() }

// PodFacts is what the machine has to know of a pod's specification.
type PodFacts struct {
	FullName string
	Static   bool
	// Deleting is true when the pod carries a deletion timestamp.
	Deleting bool
	// Completed is true when the pod's phase in the configuration is Succeeded or Failed.
	Completed bool
	// DeletionGrace and SpecGrace are in seconds, nil when the pod does not say.
	DeletionGrace *int64
	SpecGrace     *int64
}

// Kill are the terms on which a pod is to be stopped.
type Kill struct {
	Evict bool
	// Grace in seconds; nil or negative leave the pod its own.
	Grace *int64
	// Waiter is answered when the containers have stopped; 0 is nobody.
	Waiter WaiterID
	// Amends is true when the request brings a disruption that is written into the reported status.
	Amends bool
	// Resumed, unless CauseNone, is why an earlier run of the agent began the termination that goes on now. It counts
	// before all other causes: a pod that was evicted and then deleted was evicted.
	Resumed Cause
}

// UpdateType is why an update is sent.
type UpdateType uint8

const (
	// UpdateSync repeats what is known.
	UpdateSync UpdateType = iota
	// UpdateChange brings a changed specification.
	UpdateChange
	// UpdateCreate brings a pod that is new in its source.
	UpdateCreate
	// UpdateKill asks to stop the pod.
	UpdateKill
)

// Updated brings a pod's specification, or asks to stop a pod whose specification is known to the sender.
type Updated struct {
	Type UpdateType
	Pod  PodFacts
	// Kill may be nil also with UpdateKill: the pod stops on its own terms.
	Kill *Kill
	// Stopped is true when the runtime is known to run nothing of this pod. It matters at the first sight of a pod only.
	Stopped bool
}

// RuntimePodFound asks to stop a pod that the runtime runs and no configuration has.
type RuntimePodFound struct {
	FullName string
	// Config is the specification that the worker holds after all, nil if none.
	Config *PodFacts
	Kill   *Kill
}

// WorkTaken says that the worker is free and looks for work.
type WorkTaken struct {
	// NameFree is true when no other static pod stands before this one. Table fills it in.
	NameFree bool
	// NameUsed is true when the runtime runs a static pod of the same full name that no worker knows.
	NameUsed bool
	// Stopped is true when the runtime is known to run nothing of this pod.
	Stopped bool
}

// Outcome is how an operation of the worker ended.
type Outcome uint8

const (
	// Failed operations are repeated after a while.
	Failed Outcome = iota
	// Cancelled operations were told to stop, or did not begin; an update is waiting already.
	Cancelled
	// Succeeded operations did what they should.
	Succeeded
	// Completed is the success of a sync that found all containers ended for good.
	Completed
)

// Returned says that the worker's operation has ended.
type Returned struct {
	Outcome Outcome
	// Pod is what the operation worked on; it fixes the grace period of a pod that completed.
	Pod PodFacts
}

// Reconciled compares the pod with the configuration. It is sent to every known pod after all sources have been read.
type Reconciled struct {
	// Desired is true when the configuration has a pod of this UID.
	Desired bool
	// Config is the specification that the worker works with, nil if none.
	Config *PodFacts
}

// RetryDue says that the delay of a Requeue is over and that no source names the pod, so that no specification can be
// sent.
type RetryDue struct{}

// WaiterLeft says that somebody has given up waiting. What was asked for goes on.
type WaiterLeft struct{ Waiter WaiterID }

func (Updated) event()         {}
func (RuntimePodFound) event() {}
func (WorkTaken) event()       {}
func (Returned) event()        {}
func (Reconciled) event()      {}
func (RetryDue) event()        {}
func (WaiterLeft) event()      {}

// UID is a pod's identity. Table keeps one State for each.
type UID = types.UID
