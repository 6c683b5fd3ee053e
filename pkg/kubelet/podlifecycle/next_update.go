package podlifecycle

import (
	"slices"
	"time"
)

// updated handles a specification, or a request to stop a pod.
func (s State) updated(ev Updated, now time.Time) (State, []Command) {
	first := s.Phase == Unknown
	if first {
		s = initialState(ev, now)
	}
	if !first && ev.Type == UpdateCreate && s.TerminationRequested() {
		// A pod with the UID of one that is terminating: common for static pods, whose UID is a hash of the manifest. The
		// update is dropped; housekeeping starts the pod again when this one is finished.
		s.Marks.RestartRequested = true
		return s.addWaiter(ev.Kill)
	}
	if s.Phase == Finished {
		return s.addWaiter(ev.Kill)
	}
	var cmds []Command
	if first {
		cmds = append(cmds, StartWorker{})
	}
	s.Marks.RuntimeOnly = false
	cause := CauseNone
	if !s.TerminationRequested() {
		cause = ev.cause()
	}
	return s.request(request{cause: cause, pod: ev.Pod, kill: ev.Kill}, now, cmds)
}

// initialState returns the state of a pod after its first update. A pod that has ended, by its status and in the
// runtime, was stopped by an earlier run of the agent: it is terminated at once, so that admission does not reserve
// resources for it (kubernetes/kubernetes#105523), and has only to be cleaned up.
func initialState(ev Updated, now time.Time) State {
	s := State{Phase: Known, FullName: ev.Pod.FullName, Static: ev.Pod.Static, Times: Times{Seen: now}}
	if ev.Pod.Completed && ev.Stopped {
		s.Phase = Terminated
		s.Times.Requested, s.Times.Terminated = now, now
		s.Termination.Cause, s.Termination.Begun = CauseCompleted, true
	}
	return s
}

// cause returns why an update begins the termination of a pod, CauseNone if it does not.
func (ev Updated) cause() Cause {
	switch {
	case ev.Kill != nil && ev.Kill.Resumed != CauseNone:
		return ev.Kill.Resumed
	case ev.Pod.Deleting:
		return CauseDeletion
	case ev.Pod.Completed:
		return CauseCompleted
	case ev.Type != UpdateKill:
		return CauseNone
	case ev.Kill != nil && ev.Kill.Evict:
		return CauseEviction
	}
	return CauseKill
}

// runtimePodFound handles a pod that the runtime runs and no configuration has. If the worker has a specification, it
// stops the pod with it like any other pod.
func (s State) runtimePodFound(ev RuntimePodFound, now time.Time) (State, []Command) {
	var cmds []Command
	if s.Phase == Unknown {
		s = State{Phase: Known, FullName: ev.FullName, Times: Times{Seen: now}, Marks: Marks{RuntimeOnly: true}}
		cmds = append(cmds, StartWorker{})
	}
	s.Marks.FoundInRuntime = true
	if s.Phase >= Terminated {
		// The sender listed the pods of the runtime before the containers stopped.
		return s.addWaiter(ev.Kill)
	}
	cause := CauseNone
	if !s.TerminationRequested() {
		cause = CauseRuntimeOnly
	}
	var pod PodFacts
	if ev.Config != nil {
		pod = *ev.Config
	}
	return s.request(request{cause: cause, pod: pod, kill: ev.Kill}, now, cmds)
}

// request is an update that is accepted.
type request struct {
	// cause is why the update begins the termination, CauseNone if it does not.
	cause Cause
	pod   PodFacts
	kill  *Kill
}

// request begins the termination if there is a cause, applies the options of the kill, and makes the update the pending
// one.
func (s State) request(r request, now time.Time, cmds []Command) (State, []Command) {
	if r.cause != CauseNone {
		s = s.beginTermination(r.cause, now)
		if s.Operation == OpSync {
			cmds = append(cmds, CancelSync{})
		}
	}
	accept := Accept{}
	if s.Phase == Terminating {
		var hasten []Command
		s, accept, hasten = s.applyTerms(r)
		cmds = append(cmds, hasten...)
	}
	var answer []Command
	s, answer = s.addWaiter(r.kill)
	s.Pending = true
	return s, append(cmds, append(answer, accept, Wake{})...)
}

// beginTermination moves a pod that is not terminating yet to Terminating.
func (s State) beginTermination(cause Cause, now time.Time) State {
	s.Phase = Terminating
	s.Times.Requested = now
	s.Termination.Cause = cause
	switch cause {
	case CauseDeletion, CauseOrphan, CauseRuntimeOnly:
		s.Marks.Deleted = true
	default: // the source still has the pod
	}
	return s
}

// applyTerms merges the options of a kill into those that were accepted before.
func (s State) applyTerms(r request) (State, Accept, []Command) {
	began := r.cause != CauseNone
	var override *int64
	var accept Accept
	if r.kill != nil {
		override = r.kill.Grace
		accept.Amend = r.kill.Amends && s.Termination.Cause.ByAgent() && !s.Termination.Amended
		s.Termination.Amended = s.Termination.Amended || accept.Amend
	}
	before := s.Termination.Grace
	s.Termination.Grace = effectiveGrace(before, r.pod, override)
	shortened := before != 0 && s.Termination.Grace < before
	if !began && (shortened || r.kill != nil && r.kill.Evict) {
		s.Termination.Hastened = true
	}
	if shortened && s.Operation == OpTerminate {
		return s, accept, []Command{Hasten{Grace: s.Termination.Grace}}
	}
	return s, accept, nil
}

// addWaiter adds the waiter of a kill to those of the termination, or notifies it at once if no termination is in
// progress.
func (s State) addWaiter(kill *Kill) (State, []Command) {
	if kill == nil || kill.Waiter == 0 {
		return s, nil
	}
	if s.Phase != Terminating {
		return s, []Command{NotifyWaiters{Waiters: []WaiterID{kill.Waiter}}}
	}
	s.Waiters = append(slices.Clone(s.Waiters), kill.Waiter)
	return s, nil
}

func (s State) waiterLeft(ev WaiterLeft) State {
	s.Waiters = slices.DeleteFunc(slices.Clone(s.Waiters), func(w WaiterID) bool { return w == ev.Waiter })
	return s
}
