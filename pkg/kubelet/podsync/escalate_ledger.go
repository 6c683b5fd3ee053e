package podsync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// ledger remembers how far each termination has come, over all attempts at it: what was told is not told again, and the grace period
// does not begin anew because an attempt has failed. An entry lives from the first attempt to the one that succeeds.
type ledger struct {
	mu   sync.Mutex
	pods map[types.UID]*entry
}

// entry is one termination.
type entry struct {
	term    escalation.Term
	climbed escalation.Climbed
	// since is when the pod became overdue, zero while it is not.
	since, seen time.Time
	facts       escalation.Facts
	// changed holds a token when term has changed and nobody has looked.
	changed chan struct{}
}

func newLedger() *ledger { return &ledger{pods: map[types.UID]*entry{}} }

// open makes an entry if there is none, so that what shortens the grace period from now on is not lost.
func (l *ledger) open(uid types.UID) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.pods[uid]
	if !known {
		e = &entry{changed: make(chan struct{}, 1)}
		l.pods[uid] = e
	}
	return e
}

// forget ends an entry: nothing of the pod runs any more.
func (l *ledger) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
}

// shorten moves the end of a termination that is under way.
func (l *ledger) shorten(uid types.UID, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.pods[uid]
	if !known {
		return
	}
	e.term = e.term.Shorten(end)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// attempt begins another attempt.
func (l *ledger) attempt(e *entry, now time.Time, grace time.Duration, reached bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.term = e.term.Attempt(now, grace, reached)
}

// next says what is to be done next, and when.
func (l *ledger) next(e *entry, limits escalation.Limits) (escalation.Rung, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return limits.Next(e.term, e.climbed)
}

// climb notes that the rung was reached with these facts, and returns true if it is the first time, with the time since the pod
// was to have stopped.
func (l *ledger) climb(e *entry, rung escalation.Rung, facts escalation.Facts, now time.Time) (first bool, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = rung > e.climbed.Rung
	e.climbed = escalation.Climbed{Rung: rung, At: now}
	e.facts, e.seen = facts, now
	if e.since.IsZero() {
		e.since = now
		if e.term.End.Before(now) {
			e.since = e.term.End
		}
	}
	return first, now.Sub(e.since)
}

// overdue returns every pod that has not stopped in time.
func (l *ledger) overdue() map[types.UID]escalation.Overdue {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[types.UID]escalation.Overdue{}
	for uid, e := range l.pods {
		if !e.since.IsZero() {
			found[uid] = escalation.Overdue{Since: e.since, Rung: e.climbed.Rung, Seen: e.seen, Facts: e.facts}
		}
	}
	return found
}
