package eviction

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// retryAfter is how long a pod whose kill failed is left alone.
	retryAfter = 30 * time.Second
	// abandonOverdue is how long after the end of its grace period a pod that does not stop is left alone. By then it has
	// been killed past the runtime, or that has failed (package escalation), and another pod was evicted in its place.
	abandonOverdue = policy.SilentPatience + retryAfter
	// forgetAfter is when a stopped pod that is never cleaned up leaves the ledger. It has stopped counting long before.
	forgetAfter = 10 * time.Minute
	// maxGraceSeconds bounds what is reckoned with: a hundred years. The API allows more than a time.Duration holds.
	maxGraceSeconds = 100 * 365 * 24 * 60 * 60
)

// ledger holds the evictions that are not over. Kills report to it from their own goroutines.
type ledger struct {
	mu          sync.Mutex
	entries     map[types.UID]*entry
	lastRelease time.Time
}

type entry struct {
	snapshot.InFlight
	// victim is what the pod was first evicted as, decision the number of that decision.
	victim   *policy.Victim
	decision uint64
	// begun: an eviction began the pod's termination; otherwise it was terminating before.
	begun bool
	// running is how many kill requests have not ended: a second one hastens the first.
	running int
	// abandoned: the pod is so late that it is not waited for any more. It is not in flight and may be evicted again, but
	// it is still terminating, and is in flight again when it has stopped.
	abandoned bool
}

func newLedger() *ledger { return &ledger{entries: map[types.UID]*entry{}} }

// begin enters an eviction, or notes that a pod which is in the ledger gets less time.
func (l *ledger) begin(v *policy.Victim, decision uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := now.Add(time.Duration(min(v.GraceSeconds, maxGraceSeconds)) * time.Second)
	e, ok := l.entries[v.Pod.UID]
	if !ok {
		e = &entry{victim: v, decision: decision, InFlight: snapshot.InFlight{UID: v.Pod.UID, Deadline: deadline}}
		l.entries[v.Pod.UID] = e
	}
	if e.abandoned {
		e.abandoned, e.Deadline, e.Hard = false, deadline, false
	}
	e.running++
	e.Signal, e.Expected, e.State, e.Started, e.Changed = v.Cause.Signal, v.Expected, snapshot.Stopping, now, now
	e.Hard = e.Hard || v.Cause.Hard()
	if deadline.Before(e.Deadline) {
		e.Deadline = deadline
	}
}

// observe takes over what the end of pods gives back by present figures: a pod that is being stopped may go on growing,
// and when it is no active pod any more there are no others.
func (l *ledger) observe(pods []snapshot.Pod, layout snapshot.Layout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return
	}
	for i := range pods {
		p := &pods[i]
		if e, ok := l.entries[p.UID]; ok && e.State == snapshot.Stopping && p.Memory().Known {
			e.Expected = p.Release(layout)
		}
	}
}

// accepted records what the pod workers made of a request.
func (l *ledger) accepted(uid types.UID, answer podkill.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[uid]; ok {
		e.begun = e.begun || answer == podkill.Begun
	}
}

// refused takes back a request that the pod workers have not accepted, since the agent stops.
func (l *ledger) refused(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[uid]
	if !ok {
		return
	}
	e.running--
	if e.running == 0 {
		delete(l.entries, uid)
	}
}

// ended records that one kill request has ended. The pod is stopped when any of them says so, and has failed when the
// last one ends with an error. An overdue pod goes on terminating: it is stopping until sweep finds it stopped. The
// result is true once for a pod, when it has stopped and an eviction began its termination.
func (l *ledger) ended(uid types.UID, ending podkill.Ending, now time.Time) (evicted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[uid]
	if !ok {
		return false
	}
	e.running--
	switch {
	case e.State == snapshot.Stopped:
	case ending.Outcome == podkill.Stopped:
		e.State, e.Changed = snapshot.Stopped, now
		return e.begun
	case e.running == 0 && ending.Outcome != podkill.Overdue:
		e.State, e.Changed = snapshot.Failed, now
	}
	return false
}

// lives answers what has become of pods. Its functions must not call back.
type lives struct {
	// stopped is true when no container of the pod can run any more, cleanedUp when nothing of it is left.
	stopped   func(types.UID) bool
	cleanedUp func(types.UID) bool
}

// sweep finds overdue pods that have stopped, and pods that are cleaned up, abandons overdue pods that do not stop, and
// drops entries that are over; changed is true when there was any of them. A kill that has failed may have done its
// work all the same, later; while the runtime is silent it is not given up before it can have.
func (l *ledger) sweep(now time.Time, silent bool, pods lives) (changed bool, results []Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, e := range l.entries {
		if e.running > 0 {
			continue
		}
		if e.State == snapshot.Stopping && pods.stopped(uid) {
			e.State, e.Changed, e.abandoned, changed = snapshot.Stopped, now, false, true
			results = append(results, e.result(PodStopped, now))
		}
		done := e.State != snapshot.Stopping && pods.cleanedUp(uid)
		if done {
			l.lastRelease = now
			results = append(results, e.result(PodReleased, now))
		}
		switch {
		case e.abandoned || !done && !e.waitedEnough(now, silent):
		case e.State == snapshot.Stopping:
			e.abandoned, changed = true, true
		default:
			delete(l.entries, uid)
			changed = true
		}
	}
	// A pod that is found stopped and cleaned up has two results, in this order already.
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.Victim.Pod.UID, b.Victim.Pod.UID) })
	return changed, results
}

// result is what has become of the pod of an entry.
func (e *entry) result(kind ResultKind, now time.Time) Result {
	r := Result{Decision: e.decision, At: now, Kind: kind, Victim: e.victim}
	switch kind {
	case PodStopped:
		r.Evicted = e.begun
	case PodReleased:
		r.Released = e.Expected
	default:
	}
	return r
}

// waitedEnough is true when an entry without a request has been waited for long enough, so that the pod may be evicted
// again.
func (e *entry) waitedEnough(now time.Time, silent bool) bool {
	switch age := now.Sub(e.Changed); e.State {
	case snapshot.Stopping:
		return now.Sub(e.Deadline) >= abandonOverdue
	case snapshot.Stopped:
		return age >= forgetAfter
	default:
		if silent {
			age = min(age, now.Sub(e.Deadline)-policy.SilentPatience)
		}
		return age >= retryAfter
	}
}

// view is what is in flight as a value, in the order of UIDs.
func (l *ledger) view() (inFlight []snapshot.InFlight, lastRelease time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if !e.abandoned {
			inFlight = append(inFlight, e.InFlight)
		}
	}
	slices.SortFunc(inFlight, func(a, b snapshot.InFlight) int { return cmp.Compare(a.UID, b.UID) })
	return inFlight, l.lastRelease
}

// empty is true when nothing is in flight.
func (l *ledger) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if !e.abandoned {
			return false
		}
	}
	return true
}
