package podlifecycle

import "time"

// returned takes the end of the worker's operation.
func (s State) returned(ev Returned, now time.Time) (State, []Command) {
	done := s.Doing
	s.Doing = OpNone
	if done == OpNone {
		return s, nil
	}
	if ev.Outcome == Failed || ev.Outcome == Cancelled {
		return s.again(DelayBackoff)
	}
	switch done {
	case OpTerminate:
		s, cmds := s.stopped(now)
		return s.proceed(cmds)
	case OpTerminateRuntime:
		// The pod is in no configuration, so nobody wants to hear of its end, nor is there anything to release by it.
		s, cmds := s.finish(now)
		return s, append(cmds, Forget{})
	case OpCleanUp:
		return s.finish(now)
	default: // a sync
	}
	if ev.Outcome == Completed {
		return s.completed(ev, now).proceed(nil)
	}
	return s.again(DelayResync)
}

// completed notes that a sync found the pod's containers ended for good. Termination follows, to stop what is left
// (sidecars).
func (s State) completed(ev Returned, now time.Time) State {
	if !s.TerminationRequested() {
		s = s.begin(CauseCompleted, now)
		s.Termination.Grace = effectiveGrace(0, ev.Pod, nil)
	}
	s.Termination.Begun = true
	return s
}

// stopped notes that no container runs any more.
func (s State) stopped(now time.Time) (State, []Command) {
	s, cmds := s.answerAll()
	s.Phase = Terminated
	s.Times.Terminated = now
	return s, cmds
}

// proceed lets the worker go on with the next phase at once, without a word from outside.
func (s State) proceed(cmds []Command) (State, []Command) {
	s, replay := s.replay()
	return s, append(append(cmds, replay...), Requeue{After: DelayNone}, Wake{})
}

// again asks for another look after a delay, and lets the worker go on at once with an update that came meanwhile.
func (s State) again(after Delay) (State, []Command) {
	cmds := []Command{Requeue{After: after}}
	if s.Pending {
		cmds = append(cmds, Wake{})
	}
	return s, cmds
}

// retryDue repeats the operation of a pod that is being stopped. Until the pod is finished its end depends on no
// source: one that names the pod again only asks for the next life (RestartRequested), which begins after this one. A
// pod that nobody has asked to stop is not synced without a source.
func (s State) retryDue() (State, []Command) {
	if !s.TerminationRequested() || s.Phase == Finished || s.Doing != OpNone {
		return s, nil
	}
	s, cmds := s.replay()
	if s.Pending {
		cmds = append(cmds, Wake{})
	}
	return s, cmds
}

// replay makes the last update pending again unless a newer one is.
func (s State) replay() (State, []Command) {
	if s.Pending || !s.Marks.Started {
		return s, nil
	}
	s.Pending = true
	return s, []Command{Replay{}}
}
