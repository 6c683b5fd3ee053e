package podlifecycle

import "time"

// workerReady decides which operation the worker begins with the pending update.
func (s State) workerReady(ev WorkerReady, now time.Time) (State, []Command) {
	if !s.Pending || s.Operation != OpNone || s.Phase == Unknown || s.Phase == Finished {
		return s, nil
	}
	if s.Static && !s.Marks.Started {
		switch {
		case s.TerminationRequested() && !s.mayRun(ev):
			return s.finish(now)
		case s.Phase == Known && (!ev.NameFree || ev.NameUsed):
			// The update stays pending until the pod may start.
			return s, []Command{Requeue{After: DelayBackoff}}
		}
	}
	s.Pending = false
	run := Run{Op: s.nextOperation(), First: !s.Marks.Started}
	if !s.Marks.Started {
		s.Marks.Started = true
		s.Times.Started = now
	}
	s.Operation = run.Op
	switch run.Op {
	case OpSync:
		s.Phase = Syncing
	case OpTerminate, OpTerminateRuntime:
		s.Termination.Begun = true
		run.Grace = s.graceOverride()
	default: // cleaning up changes nothing else
	}
	return s, []Command{run}
}

// mayRun is true when containers of a pod that this worker has not started may run, from an earlier run of the agent.
func (s State) mayRun(ev WorkerReady) bool {
	return s.Phase == Terminating && (s.Marks.FoundInRuntime || !ev.Stopped)
}

// nextOperation returns the operation of the present phase.
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

// finish moves the pod to Finished, ends its worker, and notifies all waiters.
func (s State) finish(now time.Time) (State, []Command) {
	s, cmds := s.notifyAll()
	s.Phase = Finished
	s.Pending = false
	s.Times.Finished = now
	if s.Times.Terminated.IsZero() {
		s.Times.Terminated = now
	}
	return s, append(cmds, StopWorker{})
}

// notifyAll notifies all waiters of the termination.
func (s State) notifyAll() (State, []Command) {
	if len(s.Waiters) == 0 {
		return s, nil
	}
	waiters := s.Waiters
	s.Waiters = nil
	return s, []Command{NotifyWaiters{Waiters: waiters}}
}
