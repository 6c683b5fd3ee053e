package podlifecycle

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each mutant is the machine with one fault. Random histories must detect every fault: by comparison with the oracle,
// and, if the fault violates a guarantee, by the checks of the guarantees alone.
func TestMutantsAreCaught(t *testing.T) {
	if len(mutants) < 20 {
		t.Fatalf("only %d mutants", len(mutants))
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			m.findViolation(t, "oracle", true)
			if !m.keepsGuarantees {
				m.findViolation(t, "guarantees", false)
			}
		})
	}
}

// findViolation plays random histories with the fault until a check fails.
func (mu mutant) findViolation(t *testing.T, by string, withOracle bool) {
	var complaint violation
	histories := 0
	rapid.Check(t, func(t *rapid.T) {
		if complaint != "" {
			return
		}
		histories++
		m := newSim(t)
		m.fault = mu.fault
		if !withOracle {
			m.oracle = nil
		}
		defer func() {
			switch broken := recover().(type) {
			case nil:
			case violation:
				complaint = broken
			default: // rapid's own
				panic(broken)
			}
		}()
		m.runHistory()
	})
	if complaint == "" {
		t.Errorf("the %s did not detect the fault in %d histories", by, histories)
		return
	}
	text, _, _ := cutLine(string(complaint))
	t.Logf("%s: detected in history %d: %s", by, histories, text)
}

func cutLine(text string) (line, rest string, found bool) {
	for i, r := range text {
		if r == '\n' || i > 160 {
			return text[:i], text[i:], true
		}
	}
	return text, "", false
}

// mutant is the machine with a fault. One that keepsGuarantees differs from the oracle only.
type mutant struct {
	name            string
	fault           func(step) (State, []Command)
	keepsGuarantees bool
}

// without returns the commands without those of type C.
func without[C Command](cmds []Command) []Command {
	return slices.DeleteFunc(slices.Clone(cmds), func(cmd Command) bool { _, is := cmd.(C); return is })
}

func has[C Command](cmds []Command) bool {
	return slices.ContainsFunc(cmds, func(cmd Command) bool { _, is := cmd.(C); return is })
}

// terminatingStill is true for a step within Terminating.
func (s step) terminatingStill() bool {
	return s.before.Phase == Terminating && s.after.Phase == Terminating
}

var mutants = []mutant{
	{name: "a later request lengthens the grace period", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Updated); ok && s.terminatingStill() && ev.Kill != nil && ev.Kill.Grace != nil {
			s.after.Termination.Grace = max(1, *ev.Kill.Grace)
		}
		return s.after, s.cmds
	}},
	{name: "deletionGracePeriodSeconds is ignored", keepsGuarantees: true, fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Updated); ok && s.after.Termination.Cause == CauseDeletion && s.before.Phase < Terminating &&
			ev.Pod.SpecGrace != nil {
			s.after.Termination.Grace = max(1, *ev.Pod.SpecGrace)
		}
		return s.after, s.cmds
	}},
	{name: "a shorter grace period does not reach the running termination (D4)", keepsGuarantees: true,
		fault: func(s step) (State, []Command) {
			return s.after, without[Hasten](s.cmds)
		}},
	{name: "a shorter grace period runs the hooks again", fault: func(s step) (State, []Command) {
		for i, cmd := range s.cmds {
			if hasten, ok := cmd.(Hasten); ok {
				s.cmds[i] = Run{Op: OpTerminate, Grace: &hasten.Grace}
			}
		}
		return s.after, s.cmds
	}},
	{name: "a second waiter is lost", fault: func(s step) (State, []Command) {
		if len(s.after.Waiters) > 1 && len(s.after.Waiters) > len(s.before.Waiters) {
			s.after.Waiters = s.after.Waiters[:1]
		}
		return s.after, s.cmds
	}},
	{name: "notified waiters are not removed", fault: func(s step) (State, []Command) {
		if has[NotifyWaiters](s.cmds) && s.after.Phase >= Terminated {
			s.after.Waiters = s.before.Waiters
		}
		return s.after, s.cmds
	}},
	{name: "waiters are notified while containers run", fault: func(s step) (State, []Command) {
		if _, asked := s.event.(Updated); asked && s.terminatingStill() && len(s.after.Waiters) > len(s.before.Waiters) {
			s.cmds = append(s.cmds, NotifyWaiters{Waiters: s.after.Waiters[len(s.before.Waiters):]})
			s.after.Waiters = s.before.Waiters
		}
		return s.after, s.cmds
	}},
	{name: "the waiter of a kill of a stopped pod is not notified (D22)", fault: func(s step) (State, []Command) {
		if s.before.Phase >= Terminated {
			s.cmds = without[NotifyWaiters](s.cmds)
		}
		return s.after, s.cmds
	}},
	{name: "a failed termination goes back to syncing", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Returned); ok && ev.Outcome == Failed && s.before.Operation == OpTerminate {
			s.after.Phase = Syncing
		}
		return s.after, s.cmds
	}},
	{name: "a failed termination counts as done", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Returned); ok && ev.Outcome == Failed && s.before.Operation == OpTerminate {
			return s.before.Next(Returned{Outcome: Succeeded, Pod: ev.Pod}, s.now)
		}
		return s.after, s.cmds
	}},
	{name: "a sync begins although termination was requested", fault: func(s step) (State, []Command) {
		if has[Run](s.cmds) && s.after.Operation == OpTerminate && s.before.Operation == OpNone {
			s.after.Operation = OpSync
			s.cmds = []Command{Run{Op: OpSync, First: !s.before.Marks.Started}}
		}
		return s.after, s.cmds
	}},
	{name: "a failed termination is not tried again", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Returned); ok && ev.Outcome == Failed && s.after.Phase >= Terminating {
			s.cmds = without[Requeue](s.cmds)
		}
		return s.after, s.cmds
	}},
	{name: "a retry is lost that falls due while no source names the pod (D51)", fault: func(s step) (State, []Command) {
		if _, due := s.event.(RetryDue); due {
			return s.before, nil
		}
		return s.after, s.cmds
	}},
	{name: "a due pod is synced without a source", keepsGuarantees: true, fault: func(s step) (State, []Command) {
		if _, due := s.event.(RetryDue); due && s.before.Phase == Syncing && s.before.Operation == OpNone {
			after, replay := s.before.replay()
			return after, append(replay, Wake{})
		}
		return s.after, s.cmds
	}},
	{name: "a running sync is not cancelled", fault: func(s step) (State, []Command) {
		return s.after, without[CancelSync](s.cmds)
	}},
	{name: "two static pods of one name run", fault: func(s step) (State, []Command) {
		if _, taken := s.event.(WorkerReady); taken && s.before.Static && s.before.Phase == Known && s.before.Pending &&
			!has[Run](s.cmds) {
			return s.before.Next(WorkerReady{NameFree: true}, s.now)
		}
		return s.after, s.cmds
	}},
	{name: "a pod starts before an earlier one with the same UID is finished", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Updated); ok && ev.Type == UpdateCreate && s.before.Phase == Terminating {
			s.after.Phase = Known
			return s.after, append(s.cmds, Accept{}, Wake{})
		}
		return s.after, s.cmds
	}},
	{name: "the same UID is not started again", keepsGuarantees: true, fault: func(s step) (State, []Command) {
		s.after.Marks.RestartRequested = false
		return s.after, s.cmds
	}},
	{name: "a pod that is being deleted becomes evicted (D26)", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Updated); ok && s.terminatingStill() && ev.Kill != nil && ev.Kill.Evict {
			s.after.Termination.Cause = CauseEviction
		}
		return s.after, s.cmds
	}},
	{name: "an evicted pod is not evicted any more after a second kill (D27)", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Updated); ok && s.terminatingStill() && s.before.Evicted() && ev.Type == UpdateKill {
			s.after.Termination.Cause = CauseKill
		}
		return s.after, s.cmds
	}},
	{name: "every kill amends the status", fault: func(s step) (State, []Command) {
		for i, cmd := range s.cmds {
			if _, accept := cmd.(Accept); accept && s.terminatingStill() {
				s.cmds[i] = Accept{Amend: true}
			}
		}
		return s.after, s.cmds
	}},
	{name: "a killed pod counts as deleted", keepsGuarantees: true, fault: func(s step) (State, []Command) {
		if s.after.Termination.Cause == CauseKill {
			s.after.Marks.Deleted = true
		}
		return s.after, s.cmds
	}},
	{name: "an orphan is not terminated", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Reconciled); ok && !ev.Desired && !has[Remove](s.cmds) {
			return s.before, nil
		}
		return s.after, s.cmds
	}},
	{name: "an orphan is removed before it has stopped", fault: func(s step) (State, []Command) {
		if ev, ok := s.event.(Reconciled); ok && !ev.Desired && s.before.Phase == Terminating &&
			s.before.Operation == OpNone {
			s.after.Phase = Terminated
		}
		return s.after, s.cmds
	}},
	{name: "a pod that has ended is started again after a restart of the agent", keepsGuarantees: true,
		fault: func(s step) (State, []Command) {
			if ev, ok := s.event.(Updated); ok && s.before.Phase == Unknown && ev.Stopped && ev.Pod.Completed {
				ev.Pod.Completed, ev.Pod.Deleting = false, false
				if ev.Type == UpdateKill {
					ev.Type = UpdateCreate
				}
				return s.before.Next(ev, s.now)
			}
			return s.after, s.cmds
		}},
	{name: "ContainersBeTerminating is false until the containers have stopped", keepsGuarantees: true,
		fault: func(s step) (State, []Command) {
			s.after.Termination.Begun = s.after.Termination.Begun && s.after.Phase > Terminating
			return s.after, s.cmds
		}},
	{name: "an update does not wake the worker", fault: func(s step) (State, []Command) {
		if has[Accept](s.cmds) && s.before.Phase == Syncing {
			s.cmds = without[Wake](s.cmds)
		}
		return s.after, s.cmds
	}},
	{name: "the clean-up of a stopped pod waits for another event", fault: func(s step) (State, []Command) {
		if s.before.Operation == OpTerminate && s.after.Phase == Terminated && has[Replay](s.cmds) {
			s.after.Pending = false
			return s.after, without[Wake](without[Replay](s.cmds))
		}
		return s.after, s.cmds
	}},
	{name: "a resumed termination has the cause kill", fault: func(s step) (State, []Command) {
		ev, ok := s.event.(Updated)
		if ok && s.before.Phase == Unknown && ev.Kill != nil && ev.Kill.Resumed != CauseNone && s.after.Phase == Terminating {
			s.after.Termination.Cause = CauseKill
		}
		return s.after, s.cmds
	}},
	{name: "a runtime pod is stopped without the specification that has arrived", keepsGuarantees: true,
		fault: func(s step) (State, []Command) {
			if s.before.Marks.RuntimeOnly {
				s.after.Marks.RuntimeOnly = true
			}
			return s.after, s.cmds
		}},
	{name: "failures are repeated at once", keepsGuarantees: true, fault: func(s step) (State, []Command) {
		for i, cmd := range s.cmds {
			if requeue, ok := cmd.(Requeue); ok && requeue.After == DelayBackoff {
				s.cmds[i] = Requeue{After: DelayNone}
			}
		}
		return s.after, s.cmds
	}},
}
