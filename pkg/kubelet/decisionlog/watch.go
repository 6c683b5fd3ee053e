package decisionlog

import "errors"

const (
	// maxWatchers bounds the clients of /debug/pressure/watch.
	maxWatchers = 16
	// watchQueue is how many events may be queued for a client.
	watchQueue = 64
)

// ErrTooManyWatchers is the error when as many clients watch as may.
var ErrTooManyWatchers = errors.New("too many clients watch already: at most 16 may")

// Event is something that watchers receive.
type Event struct {
	// Name is decision, outcome, admission or preemption.
	Name string
	// ID is the number of the decision, 0 without one.
	ID uint64
	// Data is JSON in one line. It is shared and must not be modified.
	Data []byte
}

// Watcher receives events from its registration on.
type Watcher struct{ events chan Event }

// Events returns the events. It is closed when the watcher has ended: it was too slow, so that its queue was full, or
// Unwatch was called.
func (w *Watcher) Events() <-chan Event { return w.events }

// watchers are the clients. Their owner serializes all calls.
type watchers struct{ list map[*Watcher]struct{} }

func (w *watchers) empty() bool { return len(w.list) == 0 }

func (w *watchers) add() (*Watcher, error) {
	if len(w.list) >= maxWatchers {
		return nil, ErrTooManyWatchers
	}
	if w.list == nil {
		w.list = map[*Watcher]struct{}{}
	}
	n := &Watcher{events: make(chan Event, watchQueue)}
	w.list[n] = struct{}{}
	return n, nil
}

// send never waits: a watcher whose queue is full ends.
func (w *watchers) send(e Event) {
	for n := range w.list {
		select {
		case n.events <- e:
		default:
			watchersDropped.Inc()
			w.remove(n)
		}
	}
}

// remove ends a watcher. It may be called again.
func (w *watchers) remove(n *Watcher) {
	if _, ok := w.list[n]; ok {
		delete(w.list, n)
		close(n.events)
	}
}

// Watch registers a client. It must be ended with Unwatch.
func (l *Log) Watch() (*Watcher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.measure()
	return l.watchers.add()
}

// Unwatch ends a client.
func (l *Log) Unwatch(w *Watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers.remove(w)
	l.measure()
}
