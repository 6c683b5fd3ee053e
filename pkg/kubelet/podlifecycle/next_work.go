package podlifecycle

import "time"

// workTaken decides what a free worker does with the pending update.
func (s State) workTaken(ev WorkTaken, now time.Time) (State, []Command) {
	if !s.Pending || s.Doing != OpNone || s.Phase == Unknown || s.Phase == Finished {
		return s, nil
	}
	if s.Static && !s.Marks.Started {
		switch {
		case s.TerminationRequested() && !s.mayRun(ev):
			return s.finish(now)
		case s.Phase == Known && (!ev.NameFree || ev.NameUsed):
			// The update stays pending: nobody else may see a pod that has not started.
			return s, []Command{Requeue{After: DelayBackoff}}
		}
	}
	s.Pending = false
	run := Run{Op: s.nextOperation(), First: !s.Marks.Started}
	if !s.Marks.Started {
		s.Marks.Started = true
		s.Times.Started = now
	}
	s.Doing = run.Op
	switch run.Op {
	case OpSync:
		s.Phase = Syncing
	case OpTerminate, OpTerminateRuntime:
		s.Termination.Begun = true
		run.Grace = s.graceOverride()
	default: // cleaning up needs nothing
	}
	return s, []Command{run}
}

// mayRun is true when a pod that this worker has not started may run all the same, from an earlier run of the agent.
func (s State) mayRun(ev WorkTaken) bool {
	return s.Phase == Terminating && (s.Marks.SeenInRuntime || !ev.Stopped)
}

// nextOperation is what the phase asks for.
func (s State) nextOperation() Operation {
	switch {
	case s.Phase == Terminated:
		return OpCleanUp
	case s.Phase == Terminating && s.Marks.RuntimeOnly:
		return OpTerminateRuntime
	case s.Phase == Terminating:
		return OpTerminate
	}
	return OpSync
}

// finish ends a pod's life and its worker. Whoever still waits is answered.
func (s State) finish(now time.Time) (State, []Command) {
	s, cmds := s.answerAll()
	s.Phase = Finished
	s.Pending = false
	s.Times.Finished = now
	if s.Times.Terminated.IsZero() {
		s.Times.Terminated = now
	}
	return s, append(cmds, StopWorker{})
}

// answerAll answers everybody who waits for the termination.
func (s State) answerAll() (State, []Command) {
	if len(s.Waiters) == 0 {
		return s, nil
	}
	waiters := s.Waiters
	s.Waiters = nil
	return s, []Command{Answer{Waiters: waiters}}
}
