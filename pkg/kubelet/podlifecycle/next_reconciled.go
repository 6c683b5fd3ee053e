package podlifecycle

import "time"

// reconciled compares the pod with the configuration. Only pods that left it, and finished pods whose UID is wanted
// again, are touched. An orphan is woken each time, so that it ends without waiting for the delay after a failure.
func (s State) reconciled(ev Reconciled, now time.Time) (State, []Command) {
	if s.Phase == Unknown || ev.Desired && !s.Marks.RestartRequested {
		return s, nil
	}
	if s.Phase == Finished {
		return s, []Command{Forget{}}
	}
	if ev.Desired {
		return s, nil
	}
	s.Marks.Deleted = true
	if !s.Marks.Started && !s.Marks.SeenInRuntime {
		s, cmds := s.finish(now)
		return s, append(cmds, Forget{})
	}
	var cmds []Command
	if !s.TerminationRequested() {
		s = s.begin(CauseOrphan, now)
		s.Termination.Grace = orphanGrace(ev.Config)
		if s.Doing == OpSync {
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
