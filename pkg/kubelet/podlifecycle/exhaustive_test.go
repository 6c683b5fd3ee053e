package podlifecycle

import (
	"slices"
	"testing"
	"time"
)

// namedEvent is an event with a label for the diagram.
type namedEvent struct {
	label string
	event Event
}

// allEvents returns all types of events, with few values each.
func allEvents() []namedEvent {
	graces := []*int64{nil, new(int64(1)), new(int64(5))}
	var events []namedEvent
	add := func(label string, event Event) { events = append(events, namedEvent{label, event}) }
	for _, static := range []bool{false, true} {
		for _, grace := range graces {
			for _, stopped := range []bool{false, true} {
				pod := PodFacts{FullName: "a", Static: static, SpecGrace: new(int64(5))}
				deleting, done := pod, pod
				deleting.Deleting, deleting.DeletionGrace = true, grace
				done.Completed = true
				for name, kind := range map[string]UpdateType{"create": UpdateCreate, "update": UpdateChange, "sync": UpdateSync} {
					add(name, Updated{Type: kind, Pod: pod, Stopped: stopped})
					add("deleted", Updated{Type: kind, Pod: deleting, Stopped: stopped})
					add("ended", Updated{Type: kind, Pod: done, Stopped: stopped})
				}
				for _, evict := range []bool{false, true} {
					kill := &Kill{Evict: evict, Grace: grace, Amends: stopped, Waiter: 1}
					add("kill", Updated{Type: UpdateKill, Pod: pod, Kill: kill})
					add("kill", Updated{Type: UpdateKill, Pod: pod})
					add("found in the runtime", RuntimePodFound{FullName: "a", Kill: kill})
					add("found in the runtime", RuntimePodFound{FullName: "a", Config: &pod, Kill: kill})
				}
			}
		}
	}
	for _, free := range []bool{false, true} {
		for _, stopped := range []bool{false, true} {
			add("worker ready", WorkerReady{NameFree: free, Stopped: stopped})
		}
	}
	add("operation succeeded", Returned{Outcome: Succeeded})
	add("containers ended", Returned{Outcome: Completed})
	add("failed", Returned{Outcome: Failed})
	add("cancelled", Returned{Outcome: Cancelled})
	add("not desired", Reconciled{})
	add("not desired", Reconciled{Config: &PodFacts{SpecGrace: graces[2]}})
	add("desired", Reconciled{Desired: true})
	add("retry due", RetryDue{})
	add("waiter leaves", WaiterLeft{Waiter: 1})
	return events
}

// stateKey is a state without the parts on which no transition depends: times, and the number of waiters.
type stateKey struct {
	phase       Phase
	static      bool
	doing       Operation
	pending     bool
	marks       Marks
	termination Termination
	waited      bool
}

func keyOf(s State) stateKey {
	return stateKey{s.Phase, s.Static, s.Operation, s.Pending, s.Marks, s.Termination, len(s.Waiters) > 0}
}

// explore visits every state that can be reached with allEvents, and calls visit for every step. It returns the number
// of states.
func explore(visit func(before State, by namedEvent, after State, cmds []Command)) int {
	world := allEvents()
	seen := map[stateKey]bool{keyOf(State{}): true}
	for queue := []State{{}}; len(queue) > 0; queue = queue[1:] {
		for _, by := range world {
			// Only syncs complete.
			if returned, ok := by.event.(Returned); ok && returned.Outcome == Completed && queue[0].Operation != OpSync {
				continue
			}
			after, cmds := queue[0].Next(by.event, time.Unix(1, 0))
			visit(queue[0], by, after, cmds)
			if key := keyOf(after); !seen[key] && !slices.Contains(cmds, Command(Remove{})) {
				seen[key] = true
				after.Waiters = slices.Compact(slices.Clone(after.Waiters))
				queue = append(queue, after)
			}
		}
	}
	return len(seen)
}

// In every state that can be reached, each event keeps the guarantees about one step.
func TestEveryTransition(t *testing.T) {
	steps := 0
	states := explore(func(before State, by namedEvent, after State, cmds []Command) {
		steps++
		fail := func(why string) {
			t.Fatalf("%s: %s\nbefore %s\nafter  %s\ncommands %v", why, by.label, describe(before), describe(after), cmds)
		}
		if after.Phase < before.Phase {
			fail("the phase goes back")
		}
		if before.Termination.Grace != 0 && after.Termination.Grace > before.Termination.Grace {
			fail("the grace period grows")
		}
		if after.Phase == Terminating && after.Termination.Grace < 1 {
			fail("terminating without a grace period")
		}
		if before.Termination.Begun && !after.Termination.Begun || before.Evicted() != after.Evicted() &&
			before.TerminationRequested() {
			fail("a fact changes that must not")
		}
		for _, cmd := range cmds {
			if run, ok := cmd.(Run); ok && (before.Operation != OpNone || run.Op == OpSync && before.TerminationRequested()) {
				fail("an operation that must not begin")
			}
		}
		cancelled := slices.Contains(cmds, Command(CancelSync{}))
		if began := !before.TerminationRequested() && after.TerminationRequested(); before.Operation == OpSync &&
			after.Operation == OpSync && began != cancelled {
			fail("a sync is cancelled when termination is requested, and only then")
		}
		if after.Phase > Terminating && len(after.Waiters) > 0 {
			fail("a waiter is left after the containers have stopped")
		}
	})
	t.Logf("%d states, %d steps", states, steps)
	if states < 100 {
		t.Errorf("only %d states, want at least 100", states)
	}
}
