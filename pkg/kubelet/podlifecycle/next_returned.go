package podlifecycle

import "time"

// returned handles the end of the worker's operation.
func (s State) returned(ev Returned, now time.Time) (State, []Command) {
	done := s.Operation
	s.Operation = OpNone
	if done == OpNone {
		return s, nil
	}
	if ev.Outcome == Failed || ev.Outcome == Cancelled {
		return s.requeue(DelayBackoff)
	}
	switch done {
	case OpTerminate:
		s, cmds := s.containersStopped(now)
		return s.proceed(cmds)
	case OpTerminateRuntime:
		// No configuration has the pod, so there is no status to report, and housekeeping releases its resources.
		s, cmds := s.finish(now)
		return s, append(cmds, Remove{})
	case OpCleanUp:
		return s.finish(now)
	default: // a sync
	}
	if ev.Outcome == Completed {
		return s.completed(ev, now).proceed(nil)
	}
	return s.requeue(DelayResync)
}

// completed records that a sync found all containers ended for good. The termination follows, which stops sidecars.
func (s State) completed(ev Returned, now time.Time) State {
	if !s.TerminationRequested() {
		s = s.beginTermination(CauseCompleted, now)
		s.Termination.Grace = effectiveGrace(0, ev.Pod, nil)
	}
	s.Termination.Begun = true
	return s
}

// containersStopped records that no container runs any more.
func (s State) containersStopped(now time.Time) (State, []Command) {
	s, cmds := s.notifyAll()
	s.Phase = Terminated
	s.Times.Terminated = now
	return s, cmds
}

// proceed makes the worker begin the next phase at once, without another event.
func (s State) proceed(cmds []Command) (State, []Command) {
	s, replay := s.replay()
	return s, append(append(cmds, replay...), Requeue{After: DelayNone}, Wake{})
}

// requeue makes the pod due after a delay. The worker processes an update that arrived meanwhile at once.
func (s State) requeue(after Delay) (State, []Command) {
	cmds := []Command{Requeue{After: after}}
	if s.Pending {
		cmds = append(cmds, Wake{})
	}
	return s, cmds
}

// retryDue repeats the operation of a pod that is being stopped. A termination does not depend on any source: one that
// has the pod again requests only that it is started again (RestartRequested), after this termination. A pod whose
// termination was not requested is not synced without a source.
func (s State) retryDue() (State, []Command) {
	if !s.TerminationRequested() || s.Phase == Finished || s.Operation != OpNone {
		return s, nil
	}
	s, cmds := s.replay()
	if s.Pending {
		cmds = append(cmds, Wake{})
	}
	return s, cmds
}

// replay makes the last update pending again unless a newer one is pending.
func (s State) replay() (State, []Command) {
	if s.Pending || !s.Marks.Started {
		return s, nil
	}
	s.Pending = true
	return s, []Command{Replay{}}
}
