package podlifecycle

// Command is something that package podworkers has to do. Commands are executed in the order in which Next returns
// them. Only the types of this file implement Command.
type Command interface{ command() }

// Accept makes the update of the event the pending one. It replaces an earlier pending update.
type Accept struct {
	// Amend is true when the update's disruption is accepted for the pod's status; otherwise it is dropped.
	Amend bool
}

// Replay makes the update that was processed last the pending one again.
type Replay struct{}

// StartWorker starts the pod's worker.
type StartWorker struct{}

// StopWorker ends the pod's worker. Next returns it only while no operation is in progress.
type StopWorker struct{}

// Wake wakes the worker, which has a pending update.
type Wake struct{}

// WakeOther wakes the worker of another pod, which may be able to start now.
type WakeOther struct{ UID UID }

// Run makes the worker execute Op with the pending update, which is no longer pending then.
type Run struct {
	Op Operation
	// Grace is in seconds, for OpTerminate; nil means the pod's own grace period.
	Grace *int64
	// First is true for the first operation on a pod.
	First bool
}

// CancelSync cancels a running OpSync; it is not repeated.
type CancelSync struct{}

// Hasten shortens the grace period of a running OpTerminate to Grace, in seconds.
type Hasten struct{ Grace int64 }

// NotifyWaiters notifies waiters that no container of the pod runs any more.
type NotifyWaiters struct{ Waiters []WaiterID }

// Delay is the time until the pod is due again without an event.
type Delay uint8

const (
	// DelayNone is no delay.
	DelayNone Delay = iota
	// DelayResync is the interval between two syncs of a healthy pod.
	DelayResync
	// DelayBackoff is the back-off after a failure.
	DelayBackoff
)

var delayNames = [...]string{"none", "resync", "backoff"}

func (d Delay) String() string { return delayNames[d] }

// Requeue puts the pod into the work queue, where it is due after a delay.
type Requeue struct{ After Delay }

// Remove removes the pod's worker and its termination record. Table has removed the state already.
type Remove struct{}

func (Accept) command()        {}
func (Replay) command()        {}
func (StartWorker) command()   {}
func (StopWorker) command()    {}
func (Wake) command()          {}
func (WakeOther) command()     {}
func (Run) command()           {}
func (CancelSync) command()    {}
func (Hasten) command()        {}
func (NotifyWaiters) command() {}
func (Requeue) command()       {}
func (Remove) command()        {}
