package memorywatch

import "time"

const (
	// PostponeMost is for how long the decision about a crossing is postponed at most, PostponeShare which fraction of
	// what is left (one sixteenth) may be used up meanwhile if that takes longer than endedWindow. The pauses between the
	// reads in this time are one postponePauseShare-th of the time that has passed, at least minPause.
	PostponeMost       = 500 * time.Millisecond
	PostponeShare      = 16
	postponePauseShare = 4
)

// postponement is the time for which the decision about a crossing waits, because the next reads will show which pod
// causes it. A pod that has just begun to grow, and slowly, has grown by less than counters lag, or by a huge page: so
// the decision waits for longer than endedWindow while less than one PostponeShare-th of what was left is used up, and
// then for endedWindow once more, since a pod may have begun only now.
type postponement struct {
	// active is true if the last read has postponed the decision.
	active bool
	// since is when the first read did; zero if none has. left is the most that has remained since.
	since time.Time
	left  int64
	// hastened is when too much of that was used up; zero before.
	hastened time.Time
}

// begun reports whether a crossing has been seen about which there is no decision yet.
func (p *postponement) begun() bool { return !p.since.IsZero() }

// observe records what remains at a time. If that may lag, it does not show how much is used up: too much is assumed.
func (p *postponement) observe(now time.Time, remains int64, mayLag bool) {
	if !p.begun() {
		*p = postponement{since: now}
	}
	p.left = max(p.left, remains)
	if p.hastened.IsZero() && (mayLag || p.left-remains >= p.left/PostponeShare) {
		p.hastened = now
	}
}

// passed returns for how long the decision has waited, and for how long it waits at most: since the first read that
// postponed it or, if too much is used up, since then.
func (p *postponement) passed(now time.Time) (passed, most time.Duration) {
	if p.hastened.IsZero() {
		return now.Sub(p.since), PostponeMost
	}
	return now.Sub(p.hastened), endedWindow
}

// pause returns the time from a read to the next one. No more than worst may pass, since another pod may begin to use
// up what is left.
func (p *postponement) pause(readAt time.Time, worst time.Duration) time.Duration {
	passed, most := p.passed(readAt)
	return max(minPause, min(passed/postponePauseShare, most-passed, worst))
}

// postpone reports whether the decision about a crossing waits for the next read.
func (w *Watcher) postpone(left [2]int64) bool {
	if w.looks == nil {
		return false
	}
	now, p := w.clock(), &w.postponed
	w.remains = w.remaining(left)
	p.observe(now, w.remains, w.reclaiming()) // While the kernel reclaims pages its statistics may lag.
	passed, most := p.passed(now)
	p.active = passed < most && w.looks.unmeasured(most, now.Sub(p.since))
	return p.active
}

// Postpones reports whether the last read has postponed the decision about a crossing, nil included.
func (w *Watcher) Postpones() bool { return w != nil && w.postponed.active }
