package podlifecycle

import "time"

// Next returns the state after ev happened at now, and what has to be done about it, in order. It has no effect of its
// own, and s stays as it was. Events that make no sense in a state change nothing: a driver may be late, never wrong.
func (s State) Next(ev Event, now time.Time) (State, []Command) {
	switch ev := ev.(type) {
	case Updated:
		return s.updated(ev, now)
	case RuntimePodFound:
		return s.runtimePodFound(ev, now)
	case WorkTaken:
		return s.workTaken(ev, now)
	case Returned:
		return s.returned(ev, now)
	case Reconciled:
		return s.reconciled(ev, now)
	case RetryDue:
		return s.retryDue()
	case WaiterLeft:
		return s.waiterLeft(ev), nil
	}
	return s, nil
}
