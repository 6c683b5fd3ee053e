package podlifecycle

import "slices"

// gives is true when fact i leaves the worker something to look at.
func (l life) gives(i int) bool {
	over := l[:i].phase() // what has happened before decides whether anybody listens
	switch ev := l[i].event.(type) {
	case Updated:
		// The same UID again has to wait for the end of this life.
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

// pending is true when something was given after the worker last took something.
func (l life) pending() bool {
	if l.phase() == Finished {
		return false
	}
	for i := len(l) - 1; i >= 0; i-- {
		switch {
		case l[i].ran != OpNone:
			return false
		case l.gives(i):
			return true
		}
	}
	return false
}

// terms returns the specification and the kill that fact i brings.
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

// requests are the facts that say how the pod is to be stopped: the one that began it, and every later one until
// nothing runs.
func (l life) requests() []int {
	var places []int
	for i := range l {
		_, update := l[i].event.(Updated)
		_, found := l[i].event.(RuntimePodFound)
		first := i == l.requested()
		if (first || (update || found) && l.gives(i)) && l[:i+1].phase() == Terminating {
			places = append(places, i)
		}
	}
	return places
}

// grace is the shortest time that anybody granted, in seconds; what the specification wishes counts only if the first
// request does not say anything. It is never less than a second, and 0 as long as nobody asked.
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
		return l.wish(at)
	}
	return CauseNone
}

// begun: from here on no container is started.
func (l life) begun() bool {
	return l.bornStopped() || l.find(func(i int) bool {
		ev, ended := l[i].event.(Returned)
		return l[i].ran == OpTerminate || l[i].ran == OpTerminateRuntime || ended && ev.Outcome == Completed
	}) != never
}

// hastened: a later request was an eviction, or granted less than those before it.
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

// amendment is the request whose amendment of the status counts: the first that brings one, if the agent itself ends
// the pod.
func (l life) amendment() int {
	for _, i := range l.requests() {
		_, kill := l.terms(i)
		if cause := l.cause(); kill != nil && kill.Amends && (cause == CauseKill || cause == CauseEviction) {
			return i
		}
	}
	return never
}

// unwanted: the API server deleted the pod, or the configuration did not have it any more before everything was done.
func (l life) unwanted() bool {
	left := l.find(func(i int) bool {
		ev, ok := l[i].event.(Reconciled)
		return ok && !ev.Desired && l[:i].phase() != Finished
	}) != never
	cause := l.cause()
	return left || cause == CauseDeletion || cause == CauseRuntimeOnly
}

// wantedAgain: somebody created the UID anew after its end was asked for.
func (l life) wantedAgain() bool {
	return l.find(func(i int) bool {
		ev, ok := l[i].event.(Updated)
		return ok && i > 0 && ev.Type == UpdateCreate && l[:i].requested() != never
	}) != never
}

// withoutSpecification: the runtime told of the pod, and nobody has brought its specification since.
func (l life) withoutSpecification() bool {
	_, found := l[0].event.(RuntimePodFound)
	return found && l.find(func(i int) bool { _, update := l[i].event.(Updated); return update && l.gives(i) }) == never
}

// waiters have asked to hear of the end of the containers, have not left, and the containers have not ended.
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
