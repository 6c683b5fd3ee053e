package podlifecycle

import "k8s.io/apimachinery/pkg/types"

// Event is something that happened to one pod. Only the types of this file implement it.
type Event interface{ event() }

// PodFacts are the parts of a pod's specification and status on which its lifecycle depends.
type PodFacts struct {
	FullName string
	Static   bool
	// Deleting is true when the pod carries a deletion timestamp.
	Deleting bool
	// Completed is true when the pod's phase in the configuration is Succeeded or Failed.
	Completed bool
	// DeletionGrace and SpecGrace are deletionGracePeriodSeconds and terminationGracePeriodSeconds, nil if unset.
	DeletionGrace *int64
	SpecGrace     *int64
}

// Kill are the options of a request to stop a pod.
type Kill struct {
	Evict bool
	// Grace is in seconds; nil or negative means the pod's own grace period.
	Grace *int64
	// Waiter is notified when the containers have stopped; 0 means that there is none.
	Waiter WaiterID
	// Amends is true when the request has a disruption, which is written into the pod's status.
	Amends bool
	// Resumed, unless CauseNone, is why an earlier run of the agent began the termination that is resumed now. It takes
	// precedence over all other causes: a pod that was evicted and then deleted counts as evicted.
	Resumed Cause
}

// UpdateType is the reason of an update.
type UpdateType uint8

const (
	// UpdateSync: nothing has changed.
	UpdateSync UpdateType = iota
	// UpdateChange: the specification has changed.
	UpdateChange
	// UpdateCreate: the pod is new in its source.
	UpdateCreate
	// UpdateKill: the pod is to be stopped.
	UpdateKill
)

// Updated is an update with a pod's specification, or a request to stop a pod whose specification the sender has.
type Updated struct {
	Type UpdateType
	Pod  PodFacts
	// Kill may be nil also with UpdateKill: the pod stops with its own grace period.
	Kill *Kill
	// Stopped is true when the runtime is known to run nothing of this pod. Only the first event of a pod depends on it.
	Stopped bool
}

// RuntimePodFound is a request to stop a pod that the runtime runs and no configuration has.
type RuntimePodFound struct {
	FullName string
	// Config is the specification that the worker may have all the same, nil if it has none.
	Config *PodFacts
	Kill   *Kill
}

// WorkerReady is sent by the worker when it was woken and can begin an operation.
type WorkerReady struct {
	// NameFree is true when no other static pod of the same full name has to end first. Table sets it.
	NameFree bool
	// NameUsed is true when the runtime runs an earlier static pod of the same full name.
	NameUsed bool
	// Stopped is true when the runtime is known to run nothing of this pod.
	Stopped bool
}

// Outcome is the result of an operation of the worker.
type Outcome uint8

const (
	// Failed operations are repeated after a while.
	Failed Outcome = iota
	// Cancelled operations ended because their context did, or did not begin; another update is pending already.
	Cancelled
	// Succeeded operations returned no error.
	Succeeded
	// Completed is the success of a sync that found all containers ended for good. Only syncs complete.
	Completed
)

// Returned is sent by the worker when its operation has returned.
type Returned struct {
	Outcome Outcome
	// Pod is the specification that the operation used; it determines the grace period of a pod that completed.
	Pod PodFacts
}

// Reconciled compares the pod with the configuration. Housekeeping sends it for every pod that has a state.
type Reconciled struct {
	// Desired is true when the configuration has a pod of this UID.
	Desired bool
	// Config is the newest specification that the worker has, nil if none.
	Config *PodFacts
}

// RetryDue is sent when the delay of a Requeue is over and no source has the pod, so that there is no specification to
// send with an Updated.
type RetryDue struct{}

// WaiterLeft is sent when a waiter gives up. The termination that it requested continues.
type WaiterLeft struct{ Waiter WaiterID }

func (Updated) event()         {}
func (RuntimePodFound) event() {}
func (WorkerReady) event()     {}
func (Returned) event()        {}
func (Reconciled) event()      {}
func (RetryDue) event()        {}
func (WaiterLeft) event()      {}

// UID identifies a pod. Table has one State for each.
type UID = types.UID
