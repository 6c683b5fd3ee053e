package podlifecycle

import (
	"slices"
	"time"
)

// The oracle is a second, simple and slow implementation of the lifecycle: a life is the list of all events of a pod,
// and each property of its state is computed from the whole list. It stores no intermediate result, and shares no code
// with Next.

// fact is one event of a pod, and the operation that its worker began because of it, OpNone if none.
type fact struct {
	at    time.Time
	event Event
	ran   Operation
}

// life is the list of all events of a pod, in order.
type life []fact

// never is the index of a fact that is not in the list.
const never = -1

// find returns the index of the first fact for which match returns true.
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

// pod returns the full name, and whether the pod is static; both are in the first fact. A runtime pod is never static.
func (l life) pod() (fullName string, static bool) {
	switch first := l[0].event.(type) {
	case Updated:
		return first.Pod.FullName, first.Pod.Static
	case RuntimePodFound:
		return first.FullName, false
	}
	panic("the first event of a pod is Updated or RuntimePodFound")
}

// stoppedAtStart is true when an earlier run of the agent has stopped the pod: its status and the runtime say so.
func (l life) stoppedAtStart() bool {
	first, ok := l[0].event.(Updated)
	return ok && first.Pod.Completed && first.Stopped
}

func (l life) started() int { return l.find(func(i int) bool { return l[i].ran != OpNone }) }

func (l life) foundInRuntime() bool {
	return l.find(func(i int) bool { _, found := l[i].event.(RuntimePodFound); return found }) != never
}

// causeOf returns why a fact requests the termination of the pod, CauseNone if it does not.
func (l life) causeOf(i int) Cause {
	switch ev := l[i].event.(type) {
	case Updated:
		switch evict := ev.Type == UpdateKill && ev.Kill != nil && ev.Kill.Evict; {
		case i == 0 && l.stoppedAtStart():
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
		// A pod that never ran needs no termination.
		if !ev.Desired && (l[:i].started() != never || l[:i].foundInRuntime()) {
			return CauseOrphan
		}
	case Returned:
		if ev.Outcome == Completed {
			return CauseCompleted
		}
	}
	return CauseNone
}

// requested is the first fact that requests the termination. It determines the cause.
func (l life) requested() int {
	return l.find(func(i int) bool { return l.causeOf(i) != CauseNone })
}

// operation is the operation in progress before fact i.
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

// succeeded is true when one of the operations succeeded with fact i.
func (l life) succeeded(i int, operations ...Operation) bool {
	ev, ended := l[i].event.(Returned)
	return ended && ev.Outcome >= Succeeded && slices.Contains(operations, l.operation(i))
}

// stopped is the fact from which on no container may run.
func (l life) stopped() int {
	if l.stoppedAtStart() {
		return 0
	}
	return l.find(func(i int) bool { return l.succeeded(i, OpTerminate, OpTerminateRuntime) || l.neverRan(i) })
}

// finished is the fact with which the pod is finished.
func (l life) finished() int {
	return l.find(func(i int) bool { return l.succeeded(i, OpCleanUp, OpTerminateRuntime) || l.neverRan(i) })
}

// neverRan is true when fact i finishes a pod that was never started: a static pod that was stopped before it could
// start, or a pod that left the configuration before its worker began.
func (l life) neverRan(i int) bool {
	before := l[:i]
	if i == 0 || before.started() != never {
		return false
	}
	switch ev := l[i].event.(type) {
	case Reconciled:
		return !ev.Desired && !before.foundInRuntime()
	case WorkerReady:
		_, static := before.pod()
		nothingRuns := before.stoppedAtStart() || !before.foundInRuntime() && ev.Stopped
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
