package podlifecycle

import "time"

// WaiterID names someone who waits for the end of a termination. Zero is nobody.
type WaiterID uint64

// State is everything that is known about the life of one pod. It is a value: Next returns a changed copy.
// The zero State is a pod that was never heard of.
type State struct {
	Phase Phase
	// FullName is the pod's name and namespace as the runtime writes them; static pods with one full name exclude each
	// other.
	FullName string
	Static   bool
	// Doing is what the worker is doing; the worker does one thing at a time.
	Doing Operation
	// Pending is true while an update waits for the worker.
	Pending     bool
	Marks       Marks
	Termination Termination
	Times       Times
	// Waiters are answered when the containers have stopped. Always empty from Terminated on.
	Waiters []WaiterID
}

// Marks are facts that, once true, stay true until the pod is forgotten (RuntimeOnly excepted).
type Marks struct {
	// Started: the worker has taken its first update, so there is one that can be replayed.
	Started bool
	// Deleted: the API server deleted the pod, or it left the configuration, before its termination began or while it
	// lasted.
	Deleted bool
	// RestartRequested: a pod with this UID was created again after termination was requested. When this life is finished
	// it is forgotten, so that housekeeping can start the new one.
	RestartRequested bool
	// SeenInRuntime: the runtime has reported the pod as running while no worker knew it; it must pass through a
	// termination.
	SeenInRuntime bool
	// RuntimeOnly: there is no specification, only what the runtime reports. False again as soon as a specification is
	// given.
	RuntimeOnly bool
}

// Termination is what has been asked of the end of a pod.
type Termination struct {
	Cause Cause
	// Grace is the accepted grace period in seconds, 0 as long as none was accepted, else at least 1. It only shrinks.
	Grace int64
	// Begun is true once the worker has seen the request: from here on no container is started.
	Begun bool
	// Hastened: after the termination had been requested, somebody asked for an eviction or for a shorter grace period.
	Hastened bool
	// Amended: a status amendment has been accepted; there is at most one, of the request that began the termination.
	Amended bool
}

// Times says when things became true; zero as long as they are not.
type Times struct {
	Seen       time.Time
	Started    time.Time
	Requested  time.Time
	Terminated time.Time
	Finished   time.Time
}

// TerminationRequested is true from the first request to stop the pod until it is forgotten.
func (s State) TerminationRequested() bool { return s.Phase >= Terminating }

// Evicted is true when the agent began the termination by an eviction. A pod that was terminating already is not
// evicted.
func (s State) Evicted() bool { return s.Termination.Cause == CauseEviction }

// Work is the coarse phase for metrics and housekeeping.
func (s State) Work() Work {
	switch {
	case s.Phase >= Terminated:
		return WorkTerminated
	case s.Phase == Terminating:
		return WorkTerminating
	}
	return WorkSync
}

// grace returns the accepted grace period as the runtime wants it: nil leaves the pod its own.
func (s State) graceOverride() *int64 {
	if s.Termination.Grace == 0 {
		return nil
	}
	seconds := s.Termination.Grace
	return &seconds
}
