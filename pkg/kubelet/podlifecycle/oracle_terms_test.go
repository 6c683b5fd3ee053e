package podlifecycle

import "slices"

// givesWork is true when fact i makes an update pending.
func (l life) givesWork(i int) bool {
	over := l[:i].phase() // the phase before the fact
	switch ev := l[i].event.(type) {
	case Updated:
		// A pod that is created again starts after the end of this one.
		again := i > 0 && ev.Type == UpdateCreate && over >= Terminating
		return !again && over < Finished
	case RuntimePodFound:
		return over < Terminated
	case Reconciled:
		return !ev.Desired && over < Finished && l[:i].started() != never
	case RetryDue:
		return over >= Terminating && over < Finished && l[:i].started() != never && l[:i].doing() == OpNone
	case Returned:
		return l.succeeded(i, OpTerminate) || l.succeeded(i, OpSync) && ev.Outcome == Completed
	}
	return false
}

// pending is true when a fact gave work after the worker began its last operation.
func (l life) pending() bool {
	if l.phase() == Finished {
		return false
	}
	for i := len(l) - 1; i >= 0; i-- {
		switch {
		case l[i].ran != OpNone:
			return false
		case l.givesWork(i):
			return true
		}
	}
	return false
}

// terms returns the specification and the kill of fact i.
func (l life) terms(i int) (pod PodFacts, kill *Kill) {
	switch ev := l[i].event.(type) {
	case Updated:
		return ev.Pod, ev.Kill
	case RuntimePodFound:
		if ev.Config != nil {
			pod = *ev.Config
		}
		return pod, ev.Kill
	case Reconciled:
		if ev.Config != nil {
			pod = *ev.Config
		}
	case Returned:
		pod = ev.Pod
	}
	return pod, nil
}

// requests are the facts with options of the termination: the one that began it, and all later ones until the
// containers have stopped.
func (l life) requests() []int {
	var places []int
	for i := range l {
		_, update := l[i].event.(Updated)
		_, found := l[i].event.(RuntimePodFound)
		first := i == l.requested()
		if (first || (update || found) && l.givesWork(i)) && l[:i+1].phase() == Terminating {
			places = append(places, i)
		}
	}
	return places
}

// grace is the shortest grace period of all requests, in seconds; the specification counts only if the first request
// has none. It is at least 1, and 0 as long as there is no request.
func (l life) grace() int64 {
	var granted []int64
	for n, i := range l.requests() {
		pod, kill := l.terms(i)
		offers := []*int64{pod.DeletionGrace}
		if kill != nil {
			offers = append(offers, kill.Grace)
		}
		for _, offer := range offers {
			if offer != nil && *offer >= 0 {
				granted = append(granted, *offer)
			}
		}
		if n == 0 && len(granted) == 0 {
			granted = append(granted, 1)
			if pod.SpecGrace != nil {
				granted[0] = *pod.SpecGrace
			}
		}
	}
	if len(granted) == 0 {
		return 0
	}
	return max(1, slices.Min(granted))
}

func (l life) cause() Cause {
	if at := l.requested(); at != never {
		return l.causeOf(at)
	}
	return CauseNone
}

// begun is true when no container is started any more.
func (l life) begun() bool {
	return l.stoppedAtStart() || l.find(func(i int) bool {
		ev, ended := l[i].event.(Returned)
		return l[i].ran == OpTerminate || l[i].ran == OpTerminateRuntime || ended && ev.Outcome == Completed
	}) != never
}

// hastened is true when a later request was an eviction, or had a shorter grace period than those before it.
func (l life) hastened() bool {
	for n, i := range l.requests() {
		_, kill := l.terms(i)
		evicts := kill != nil && kill.Evict
		if n > 0 && (evicts || l[:i+1].grace() < l[:i].grace()) {
			return true
		}
	}
	return false
}

// amendment is the request whose disruption is accepted: the first that has one, if the agent itself began the
// termination.
func (l life) amendment() int {
	for _, i := range l.requests() {
		_, kill := l.terms(i)
		if cause := l.cause(); kill != nil && kill.Amends && (cause == CauseKill || cause == CauseEviction) {
			return i
		}
	}
	return never
}

// deletedOrOrphaned is true when the API server deleted the pod, or it left the configuration before it was finished.
func (l life) deletedOrOrphaned() bool {
	left := l.find(func(i int) bool {
		ev, ok := l[i].event.(Reconciled)
		return ok && !ev.Desired && l[:i].phase() != Finished
	}) != never
	cause := l.cause()
	return left || cause == CauseDeletion || cause == CauseRuntimeOnly
}

// restartRequested is true when a pod with the UID was created after the termination was requested.
func (l life) restartRequested() bool {
	return l.find(func(i int) bool {
		ev, ok := l[i].event.(Updated)
		return ok && i > 0 && ev.Type == UpdateCreate && l[:i].requested() != never
	}) != never
}

// withoutSpecification is true when the pod was found in the runtime, and no update with a specification has arrived.
func (l life) withoutSpecification() bool {
	_, found := l[0].event.(RuntimePodFound)
	updated := func(i int) bool { _, update := l[i].event.(Updated); return update && l.givesWork(i) }
	return found && l.find(updated) == never
}

// waiters are those of all requests that have not left, while the containers have not stopped.
func (l life) waiters() []WaiterID {
	if l.phase() != Terminating {
		return nil
	}
	var waiting []WaiterID
	for i := range l {
		if left, ok := l[i].event.(WaiterLeft); ok {
			waiting = slices.DeleteFunc(waiting, func(id WaiterID) bool { return id == left.Waiter })
		}
		if _, kill := l.terms(i); kill != nil && kill.Waiter != 0 && i >= l.requested() {
			waiting = append(waiting, kill.Waiter)
		}
	}
	return waiting
}
