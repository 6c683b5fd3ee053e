package podlifecycle

import "time"

// reconciled compares the pod with the configuration. It changes only pods that have left it, and finished pods whose
// UID was created again. The worker of an orphan is woken each time, so that its termination does not wait for the
// back-off after a failure.
func (s State) reconciled(ev Reconciled, now time.Time) (State, []Command) {
	if s.Phase == Unknown || ev.Desired && !s.Marks.RestartRequested {
		return s, nil
	}
	if s.Phase == Finished {
		return s, []Command{Remove{}}
	}
	if ev.Desired {
		return s, nil
	}
	s.Marks.Deleted = true
	if !s.Marks.Started && !s.Marks.FoundInRuntime {
		s, cmds := s.finish(now)
		return s, append(cmds, Remove{})
	}
	var cmds []Command
	if !s.TerminationRequested() {
		s = s.beginTermination(CauseOrphan, now)
		s.Termination.Grace = orphanGrace(ev.Config)
		if s.Operation == OpSync {
			cmds = append(cmds, CancelSync{})
		}
	}
	s, replay := s.replay()
	cmds = append(cmds, replay...)
	if s.Pending {
		cmds = append(cmds, Wake{})
	}
	return s, cmds
}

func orphanGrace(config *PodFacts) int64 {
	if config == nil {
		return minimumGrace
	}
	return effectiveGrace(0, *config, nil)
}
