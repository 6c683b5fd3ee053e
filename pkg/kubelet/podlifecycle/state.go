package podlifecycle

import "time"

// WaiterID identifies a caller that waits for the end of a termination. Zero means that there is none.
type WaiterID uint64

// State is the lifecycle state of one pod. It is a value: Next returns a changed copy.
// The zero State is that of a pod for which no event has arrived.
type State struct {
	Phase Phase
	// FullName is "<name>_<namespace>" (kubecontainer.BuildPodFullName); of static pods with one full name at most one
	// runs.
	FullName string
	Static   bool
	// Operation is the operation in progress; a worker executes one at a time.
	Operation Operation
	// Pending is true while the worker has an update to process.
	Pending     bool
	Marks       Marks
	Termination Termination
	Times       Times
	// Waiters are notified when the containers have stopped. Always empty from Terminated on.
	Waiters []WaiterID
}

// Marks are facts that, once true, stay true until the pod is removed (except RuntimeOnly).
type Marks struct {
	// Started: the worker has processed its first update, so there is one that can be replayed.
	Started bool
	// Deleted: the API server deleted the pod, or the pod left the configuration, before or during its termination.
	Deleted bool
	// RestartRequested: a pod with this UID was created again after termination was requested. Once the pod is finished,
	// its state is removed, so that housekeeping can start the new pod.
	RestartRequested bool
	// FoundInRuntime: the runtime ran the pod while no configuration had it; the pod has to be terminated.
	FoundInRuntime bool
	// RuntimeOnly: the pod has no specification, only what the runtime reports. An update with a specification resets it.
	RuntimeOnly bool
}

// Termination describes how the pod is to be terminated: the requests so far, merged.
type Termination struct {
	Cause Cause
	// Grace is the accepted grace period in seconds, 0 as long as none was accepted, else at least 1. It only decreases.
	Grace int64
	// Begun is true once the worker has processed the request: from here on it starts no container.
	Begun bool
	// Hastened: a later request asked for an eviction or for a shorter grace period.
	Hastened bool
	// Amended: a disruption was accepted, which amends the pod's status; the first request that has one determines it.
	Amended bool
}

// Times are when the pod's phases began; zero as long as they have not.
type Times struct {
	// Seen is when the first event of the pod arrived.
	Seen       time.Time
	Started    time.Time
	Requested  time.Time
	Terminated time.Time
	Finished   time.Time
}

// TerminationRequested is true from the first request to stop the pod until it is removed.
func (s State) TerminationRequested() bool { return s.Phase >= Terminating }

// Evicted is true when the agent began the termination by an eviction. An eviction request for a pod that is
// terminating already does not make it evicted.
func (s State) Evicted() bool { return s.Termination.Cause == CauseEviction }

// Work returns the coarse phase for metrics and housekeeping.
func (s State) Work() Work {
	switch {
	case s.Phase >= Terminated:
		return WorkTerminated
	case s.Phase == Terminating:
		return WorkTerminating
	}
	return WorkSync
}

// graceOverride returns the accepted grace period in seconds; nil means the grace period of the pod's specification.
func (s State) graceOverride() *int64 {
	if s.Termination.Grace == 0 {
		return nil
	}
	seconds := s.Termination.Grace
	return &seconds
}
