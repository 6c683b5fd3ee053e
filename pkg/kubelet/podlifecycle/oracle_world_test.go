package podlifecycle

import (
	"fmt"
	"slices"
	"time"
)

// oracle has the lives of all pods.
type oracle struct {
	lives  map[UID]life
	synced bool
}

func newOracle() *oracle { return &oracle{lives: map[UID]life{}} }

// apply adds a fact, and returns the expected state and the expected commands, as text and in no order.
func (o *oracle) apply(uid UID, ev Event, now time.Time) (State, []string) {
	before := o.lives[uid]
	_, update := ev.(Updated)
	_, found := ev.(RuntimePodFound)
	if len(before) == 0 && !update && !found {
		return State{}, nil
	}
	f := fact{at: now, event: ev}
	if taken, ok := ev.(WorkerReady); ok {
		f.ran = o.work(uid, taken)
	}
	after := append(slices.Clone(before), f)
	o.lives[uid] = after
	orders := o.orders(uid, before, after)
	if slices.Contains(orders, "Remove") {
		delete(o.lives, uid)
	}
	return after.state(), orders
}

// work returns the operation that the worker should begin.
func (o *oracle) work(uid UID, ev WorkerReady) Operation {
	l := o.lives[uid]
	_, static := l.pod()
	over := append(slices.Clone(l), fact{event: ev}).finished() != never
	if over || !l.pending() || l.doing() != OpNone {
		return OpNone
	}
	switch {
	case l.stopped() != never:
		return OpCleanUp
	case l.requested() != never && l.withoutSpecification():
		return OpTerminateRuntime
	case l.requested() != never:
		return OpTerminate
	case static && l.started() == never && o.preceded(uid):
		return OpNone
	}
	return OpSync
}

// preceded is true when another static pod of the same full name has started, or was there earlier, and is not
// finished.
func (o *oracle) preceded(uid UID) bool {
	name, _ := o.lives[uid].pod()
	for other, l := range o.lives {
		otherName, static := l.pod()
		if other == uid || !static || otherName != name || l.finished() != never {
			continue
		}
		if l.started() != never || l[0].at.Before(o.lives[uid][0].at) {
			return true
		}
	}
	return false
}

// mirrorTerminating is true while a static pod of the name that was synced is being stopped.
func (o *oracle) mirrorTerminating(name string) bool {
	for _, l := range o.lives {
		lifeName, static := l.pod()
		started := l.started()
		if static && lifeName == name && started != never && l[started].ran == OpSync && l.phase() == Terminating {
			return true
		}
	}
	return false
}

// orders returns the commands that the last fact of after should cause.
func (o *oracle) orders(uid UID, before, after life) []string {
	var orders []string
	order := func(when bool, format string, args ...any) {
		if when {
			orders = append(orders, fmt.Sprintf(format, args...))
		}
	}
	last := len(after) - 1
	ev := after[last].event
	returned, ended := ev.(Returned)
	reconciled, isReconciled := ev.(Reconciled)
	_, taken := ev.(WorkerReady)
	_, due := ev.(RetryDue)
	_, update := ev.(Updated)
	_, found := ev.(RuntimePodFound)
	finished := after.finished() == last
	news := (update || found) && after.givesWork(last)
	pending := after.pending()
	retried := due && before.phase() >= Terminating && before.doing() == OpNone

	order(last == 0, "StartWorker")
	order(before.doing() == OpSync && !ended && before.requested() != after.requested(), "CancelSync")
	order(before.doing() == OpTerminate && !ended && after.phase() == Terminating && after.grace() < before.grace(),
		"Hasten {%d}", after.grace())
	for _, answer := range answered(before, after) {
		order(true, "NotifyWaiters %d", answer)
	}
	order(news && after.amendment() == last, "Accept amend")
	order(news && after.amendment() != last, "Accept")
	order(after.givesWork(last) && !news && !before.pending(), "Replay")
	order(finished, "StopWorker")
	forgotten := isReconciled && after.phase() == Finished && (!reconciled.Desired || after.restartRequested()) ||
		finished && after.succeeded(last, OpTerminateRuntime)
	order(forgotten, "Remove")
	if run := after[last].ran; run != OpNone {
		orders = append(orders, after.runOrder(run, before.started() == never))
	}
	blocked := taken && before.pending() && before.doing() == OpNone && after[last].ran == OpNone && !finished
	order(blocked || ended && returned.Outcome < Succeeded && before.doing() != OpNone, "Requeue {backoff}")
	order(ended && after.succeeded(last, OpSync) && returned.Outcome == Succeeded, "Requeue {resync}")
	order(ended && after.givesWork(last), "Requeue {none}")
	order(pending && (news || ended || retried || isReconciled && !reconciled.Desired), "Wake")
	return orders
}

func (l life) runOrder(run Operation, first bool) string {
	words := "Run "
	if first {
		words += "first "
	}
	words += run.String()
	if run == OpTerminate || run == OpTerminateRuntime {
		words += fmt.Sprintf(" grace=%d", l.grace())
	}
	return words
}

// answered returns the waiters that should be notified now: those of earlier requests and of the last one that do not
// wait any more.
func answered(before, after life) []WaiterID {
	all := before.waiters()
	last := len(after) - 1
	if _, kill := after.terms(last); kill != nil && kill.Waiter != 0 {
		all = append(all, kill.Waiter)
	}
	left, _ := after[last].event.(WaiterLeft)
	return slices.DeleteFunc(all, func(id WaiterID) bool {
		return id == left.Waiter || slices.Contains(after.waiters(), id)
	})
}

// state returns the state that the machine should have.
func (l life) state() State {
	name, static := l.pod()
	return State{
		Phase: l.phase(), FullName: name, Static: static, Operation: l.doing(), Pending: l.pending(),
		Marks: Marks{
			Started: l.started() != never, Deleted: l.deletedOrOrphaned(), RestartRequested: l.restartRequested(),
			FoundInRuntime: l.foundInRuntime(), RuntimeOnly: l.withoutSpecification(),
		},
		Termination: Termination{
			Cause: l.cause(), Grace: l.grace(), Begun: l.begun(), Hastened: l.hastened(), Amended: l.amendment() != never,
		},
		Times: Times{
			Seen: l[0].at, Started: l.time(l.started()), Requested: l.time(l.requested()), Terminated: l.time(l.stopped()),
			Finished: l.time(l.finished()),
		},
		Waiters: l.waiters(),
	}
}

// ask returns the expected answer to a query about a pod.
func (o *oracle) ask(q Query, uid UID) bool {
	l := o.lives[uid]
	if len(l) == 0 {
		switch q {
		case CouldHaveRunningContainers:
			return !o.synced // it may run from an earlier run of the agent
		case TerminationRequested, KnownTerminated:
			return false
		}
		return o.synced // a pod that no configuration has does not run
	}
	nothingRuns := l.stopped() != never
	switch q {
	case CouldHaveRunningContainers:
		return !nothingRuns
	case ShouldPodBeFinished:
		return l.finished() != never
	case TerminationRequested:
		return l.requested() != never || nothingRuns
	case ContainersBeTerminating:
		return nothingRuns || l.begun()
	case RuntimeBeRemoved, KnownTerminated:
		return nothingRuns
	case ContentBeRemoved:
		return nothingRuns && (l.cause() == CauseEviction || l.deletedOrOrphaned())
	}
	panic("unknown query")
}
