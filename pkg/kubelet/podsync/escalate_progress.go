package podsync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// progressByPod stores how far the escalation of each termination is, over all attempts: an event is not repeated, and
// the grace period does not begin again because an attempt has failed. An entry exists from the first attempt to the
// one that succeeds.
type progressByPod struct {
	mu   sync.Mutex
	pods map[types.UID]*progress
}

// progress is the escalation of one termination.
type progress struct {
	gracePeriod escalation.GracePeriod
	done        escalation.Progress
	// since is when the pod became overdue, zero while it is not.
	since, seen time.Time
	facts       escalation.Facts
	// changed has a token when gracePeriod has changed.
	changed chan struct{}
}

func newProgressByPod() *progressByPod { return &progressByPod{pods: map[types.UID]*progress{}} }

// get returns the entry of a pod, and creates it first if necessary: from then on shorten is effective.
func (l *progressByPod) get(uid types.UID) *progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.pods[uid]
	if !known {
		e = &progress{changed: make(chan struct{}, 1)}
		l.pods[uid] = e
	}
	return e
}

// remove removes the entry of a pod whose containers and processes have terminated.
func (l *progressByPod) remove(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
}

// shorten shortens the grace period of a termination in progress; the pod is to be stopped at end.
func (l *progressByPod) shorten(uid types.UID, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.pods[uid]
	if !known {
		return
	}
	e.gracePeriod = e.gracePeriod.Shorten(end)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// beginAttempt records the beginning of another attempt.
func (l *progressByPod) beginAttempt(e *progress, now time.Time, grace time.Duration, reached bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.gracePeriod = e.gracePeriod.Attempt(now, grace, reached)
}

// next returns the next step, and the time when it is due.
func (l *progressByPod) next(e *progress, limits escalation.Limits) (escalation.Step, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return limits.Next(e.gracePeriod, e.done)
}

// record records a step and the state of the pod. It returns true for the first time of this step, and the time since
// the pod should have stopped.
func (l *progressByPod) record(
	e *progress, taken escalation.Step, facts escalation.Facts, now time.Time,
) (first bool, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = taken > e.done.Step
	e.done = escalation.Progress{Step: taken, At: now}
	e.facts, e.seen = facts, now
	if e.since.IsZero() {
		e.since = now
		if e.gracePeriod.End.Before(now) {
			e.since = e.gracePeriod.End
		}
	}
	return first, now.Sub(e.since)
}

// overdue returns all overdue pods.
func (l *progressByPod) overdue() map[types.UID]escalation.Overdue {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[types.UID]escalation.Overdue{}
	for uid, e := range l.pods {
		if !e.since.IsZero() {
			found[uid] = escalation.Overdue{Since: e.since, Step: e.done.Step, Seen: e.seen, Facts: e.facts}
		}
	}
	return found
}
