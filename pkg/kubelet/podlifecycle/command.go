package podlifecycle

// Command is something the driver has to do, in the order given. The set is closed.
type Command interface{ command() }

// Accept makes the update that came with the event the pending one, in place of an earlier pending one.
type Accept struct {
	// Amend is true when the update's status amendment counts; otherwise it is dropped.
	Amend bool
}

// Replay makes the update that was worked on last the pending one again.
type Replay struct{}

// StartWorker starts the pod's worker.
type StartWorker struct{}

// StopWorker ends the pod's worker. It is given only while the worker does nothing.
type StopWorker struct{}

// Wake tells the worker that an update is pending.
type Wake struct{}

// WakeOther tells the worker of another pod that it may be its turn.
type WakeOther struct{ UID UID }

// Run lets the worker do Op with the pending update, which is no longer pending then.
type Run struct {
	Op Operation
	// Grace in seconds for OpTerminate; nil leaves the pod its own.
	Grace *int64
	// First is true for the very first operation on a pod.
	First bool
}

// CancelSync ends a running OpSync as soon as possible; it will not be repeated.
type CancelSync struct{}

// Hasten gives a running OpTerminate a shorter grace period, in seconds.
type Hasten struct{ Grace int64 }

// Answer tells waiters that no container of the pod runs any more.
type Answer struct{ Waiters []WaiterID }

// Delay is how long to wait before the agent looks at a pod again by itself.
type Delay uint8

const (
	// DelayNone looks again at once.
	DelayNone Delay = iota
	// DelayResync looks again at the regular interval.
	DelayResync
	// DelayBackoff looks again after a failure.
	DelayBackoff
)

var delayNames = [...]string{"none", "resync", "backoff"}

func (d Delay) String() string { return delayNames[d] }

// Requeue asks for another look at the pod later.
type Requeue struct{ After Delay }

// Forget removes every trace of the pod.
type Forget struct{}

func (Accept) command()      {}
func (Replay) command()      {}
func (StartWorker) command() {}
func (StopWorker) command()  {}
func (Wake) command()        {}
func (WakeOther) command()   {}
func (Run) command()         {}
func (CancelSync) command()  {}
func (Hasten) command()      {}
func (Answer) command()      {}
func (Requeue) command()     {}
func (Forget) command()      {}
