package podworkers

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"

// waiters are those who want to hear of the end of a termination. The lifecycle knows them by number.
type waiters struct {
	last     podlifecycle.WaiterID
	channels map[podlifecycle.WaiterID]chan<- struct{}
}

func newWaiters() waiters {
	return waiters{channels: map[podlifecycle.WaiterID]chan<- struct{}{}}
}

// add registers a waiter; nil is nobody.
func (w *waiters) add(ch chan<- struct{}) podlifecycle.WaiterID {
	if ch == nil {
		return 0
	}
	w.last++
	w.channels[w.last] = ch
	return w.last
}

func (w *waiters) answer(ids []podlifecycle.WaiterID) {
	for _, id := range ids {
		if ch, waits := w.channels[id]; waits {
			close(ch)
			delete(w.channels, id)
		}
	}
}

// withdraw forgets a waiter without an answer.
func (w *waiters) withdraw(id podlifecycle.WaiterID) { delete(w.channels, id) }
