package podlifecycle

import (
	"slices"
	"time"
)

// The oracle is a second implementation of a pod's life, written from the promises and as simple as can be: a life is
// the list of what happened to it, and every question is answered by looking through the whole list for what decides
// it. Nothing is kept from one question to the next, and no code of Next is used. It is slow, and is right if each of
// its sentences is.

// fact is one thing that happened to a pod, and the operation that its worker began because of it, OpNone if none.
type fact struct {
	at    time.Time
	event Event
	ran   Operation
}

// life is everything that happened to a pod since it was first heard of, in order.
type life []fact

// never is the place of a fact that is not there.
const never = -1

// find returns the place of the first fact for which match holds.
func (l life) find(match func(i int) bool) int {
	for i := range l {
		if match(i) {
			return i
		}
	}
	return never
}

func (l life) time(place int) time.Time {
	if place == never {
		return time.Time{}
	}
	return l[place].at
}

// pod returns name and kind, which the first fact decides. Only specifications say that a pod is static.
func (l life) pod() (fullName string, static bool) {
	switch first := l[0].event.(type) {
	case Updated:
		return first.Pod.FullName, first.Pod.Static
	case RuntimePodFound:
		return first.FullName, false
	}
	panic("a life begins with news of a pod")
}

// bornStopped: an earlier run of the agent has stopped the pod, as the configuration says and the runtime does not
// deny.
func (l life) bornStopped() bool {
	first, ok := l[0].event.(Updated)
	return ok && first.Pod.Completed && first.Stopped
}

func (l life) started() int { return l.find(func(i int) bool { return l[i].ran != OpNone }) }

func (l life) seenInRuntime() bool {
	return l.find(func(i int) bool { _, found := l[i].event.(RuntimePodFound); return found }) != never
}

// wish is why a fact asks for the end of the pod, CauseNone if it does not.
func (l life) wish(i int) Cause {
	switch ev := l[i].event.(type) {
	case Updated:
		switch evict := ev.Type == UpdateKill && ev.Kill != nil && ev.Kill.Evict; {
		case i == 0 && l.bornStopped():
			return CauseCompleted
		case ev.Kill != nil && ev.Kill.Resumed != CauseNone:
			return ev.Kill.Resumed
		case ev.Pod.Deleting:
			return CauseDeletion
		case ev.Pod.Completed:
			return CauseCompleted
		case evict:
			return CauseEviction
		case ev.Type == UpdateKill:
			return CauseKill
		}
	case RuntimePodFound:
		return CauseRuntimeOnly
	case Reconciled:
		// What never ran needs no termination.
		if !ev.Desired && (l[:i].started() != never || l[:i].seenInRuntime()) {
			return CauseOrphan
		}
	case Returned:
		if ev.Outcome == Completed {
			return CauseCompleted
		}
	}
	return CauseNone
}

// requested is the first fact that asks for the end: it alone decides the cause.
func (l life) requested() int {
	return l.find(func(i int) bool { return l.wish(i) != CauseNone })
}

// operation is what was under way before fact i.
func (l life) operation(i int) Operation {
	for i--; i >= 0; i-- {
		if _, ended := l[i].event.(Returned); ended {
			return OpNone
		}
		if l[i].ran != OpNone {
			return l[i].ran
		}
	}
	return OpNone
}

func (l life) doing() Operation { return l.operation(len(l)) }

// succeeded is true when fact i is the success of one of the operations.
func (l life) succeeded(i int, operations ...Operation) bool {
	ev, ended := l[i].event.(Returned)
	return ended && ev.Outcome >= Succeeded && slices.Contains(operations, l.operation(i))
}

// stopped is the fact from which on no container may run.
func (l life) stopped() int {
	if l.bornStopped() {
		return 0
	}
	return l.find(func(i int) bool { return l.succeeded(i, OpTerminate, OpTerminateRuntime) || l.neverRan(i) })
}

// finished is the fact with which everything is done.
func (l life) finished() int {
	return l.find(func(i int) bool { return l.succeeded(i, OpCleanUp, OpTerminateRuntime) || l.neverRan(i) })
}

// neverRan is true when with fact i the life of a pod ends of which nothing runs or ever ran: a static pod that was
// told to stop before its turn, or any pod that left the configuration before its worker began.
func (l life) neverRan(i int) bool {
	before := l[:i]
	if i == 0 || before.started() != never {
		return false
	}
	switch ev := l[i].event.(type) {
	case Reconciled:
		return !ev.Desired && !before.seenInRuntime()
	case WorkTaken:
		_, static := before.pod()
		nothingRuns := before.bornStopped() || !before.seenInRuntime() && ev.Stopped
		return static && before.requested() != never && nothingRuns
	}
	return false
}

func (l life) phase() Phase {
	switch {
	case len(l) == 0:
		return Unknown
	case l.finished() != never:
		return Finished
	case l.stopped() != never:
		return Terminated
	case l.requested() != never:
		return Terminating
	case l.started() != never:
		return Syncing
	}
	return Known
}
