package podlifecycle

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// bounded plays all short histories of one pod.
type bounded struct {
	t      *testing.T
	events []Event
	// tried counts steps; histories counts histories of full length, and those that end with the removal of the pod.
	tried, histories int
}

// boundedEvents returns all types of events, each with the values that differ most. The waiters of the kills have
// different IDs.
func boundedEvents(static bool) []Event {
	pod := PodFacts{FullName: "a", Static: static, SpecGrace: new(int64(9))}
	deleting, done := pod, pod
	deleting.Deleting, deleting.DeletionGrace = !static, new(int64(6))
	done.Completed = true
	return []Event{
		Updated{Type: UpdateCreate, Pod: pod},
		Updated{Type: UpdateSync, Pod: pod},
		Updated{Type: UpdateChange, Pod: deleting},
		Updated{Type: UpdateSync, Pod: done, Stopped: true},
		Updated{Type: UpdateSync, Pod: done, Kill: &Kill{Waiter: 1}},
		Updated{Type: UpdateKill, Pod: pod},
		Updated{Type: UpdateKill, Pod: pod, Kill: &Kill{Evict: true, Amends: true, Grace: new(int64(4)), Waiter: 2}},
		Updated{Type: UpdateKill, Pod: pod, Kill: &Kill{Grace: new(int64(2)), Amends: true, Waiter: 3}},
		Updated{Type: UpdateKill, Pod: deleting, Kill: &Kill{Resumed: CauseEviction, Evict: true, Grace: new(int64(3))}},
		RuntimePodFound{FullName: "a", Kill: &Kill{Grace: new(int64(1))}},
		RuntimePodFound{FullName: "a", Config: &pod},
		Reconciled{Config: &pod},
		Reconciled{Desired: true},
		WorkerReady{NameFree: true, Stopped: true},
		WorkerReady{NameFree: true},
		WorkerReady{NameFree: false, Stopped: true},
		Returned{Outcome: Failed, Pod: pod},
		Returned{Outcome: Succeeded, Pod: pod},
		Returned{Outcome: Completed, Pod: pod},
		RetryDue{},
		WaiterLeft{Waiter: 2},
	}
}

// After each history of a few events, machine and oracle agree on state and commands.
func TestAllShortHistories(t *testing.T) {
	length := boundedLength
	if testing.Short() {
		length--
	}
	for _, static := range []bool{false, true} {
		b := &bounded{t: t, events: boundedEvents(static)}
		b.try(State{}, nil, length)
		t.Logf("static %t: %d histories of up to %d events, %d steps agree with the oracle", static, b.histories, length,
			b.tried)
		if b.histories < 10_000 {
			t.Errorf("only %d histories", b.histories)
		}
	}
}

func (b *bounded) try(before State, l life, left int) {
	if left == 0 {
		b.histories++
		return
	}
	now := time.Unix(int64(100-left), 0)
	for _, ev := range b.events {
		if !b.possible(before, ev) {
			continue
		}
		b.tried++
		after, cmds := before.Next(ev, now)
		o := newOracle()
		if len(l) > 0 {
			o.lives["a"] = l
		}
		if taken, ok := ev.(WorkerReady); ok && !taken.NameFree {
			first := fact{event: Updated{Pod: PodFacts{FullName: "a", Static: true}}, ran: OpSync}
			o.lives["another"] = life{first}
		}
		want, orders := o.apply("a", ev, now)
		said := words(cmds)
		slices.Sort(said)
		slices.Sort(orders)
		if !reflect.DeepEqual(normal(after), normal(want)) || !slices.Equal(said, orders) {
			b.t.Fatalf("after %#v, %#v: the machine says\n%s\n%q, the oracle\n%s\n%q", l, ev, describe(after), said,
				describe(want), orders)
		}
		if slices.Contains(orders, "Remove") {
			b.histories++
			continue
		}
		b.try(after, o.lives["a"], left-1)
	}
}

// possible is false for events that no driver sends: WorkerReady for a pod without a worker, Returned without an
// operation in progress, Completed of another operation than a sync, and a name in use for a pod that does not claim
// it.
func (b *bounded) possible(s State, ev Event) bool {
	switch ev := ev.(type) {
	case WorkerReady:
		idle := s.Phase != Unknown && s.Phase != Finished && s.Operation == OpNone
		return idle && (ev.NameFree || s.Static && s.Phase == Known && s.Pending)
	case Returned:
		return s.Operation != OpNone && (ev.Outcome != Completed || s.Operation == OpSync)
	case Reconciled, RetryDue, WaiterLeft:
		return s.Phase != Unknown
	}
	return true
}

func normal(s State) State {
	if len(s.Waiters) == 0 {
		s.Waiters = nil
	}
	return s
}
