package podlifecycle

import "time"

// Next returns the state after event ev at time now, and the commands to execute, in order. It has no side effects and
// does not change s. An event that does not apply to the state, because it arrives late, changes nothing.
func (s State) Next(ev Event, now time.Time) (State, []Command) {
	switch ev := ev.(type) {
	case Updated:
		return s.updated(ev, now)
	case RuntimePodFound:
		return s.runtimePodFound(ev, now)
	case WorkerReady:
		return s.workerReady(ev, now)
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
