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
	// retryAfter is the time after a failed kill before the pod may be evicted again.
	retryAfter = 30 * time.Second
	// abandonOverdue is the time after the end of its grace period at which a pod that does not stop may be evicted
	// again. By then package escalation has killed it without the container runtime, or has failed to, and another pod
	// was evicted instead.
	abandonOverdue = policy.SilentPatience + retryAfter
	// forgetAfter is the time after which a stopped pod that is not cleaned up no longer counts as in flight. Decisions
	// have stopped counting it long before. Its release is recorded whenever it comes.
	forgetAfter = 10 * time.Minute
	// maxGraceSeconds (a hundred years) limits grace periods: the API allows more than a time.Duration can hold.
	maxGraceSeconds = 100 * 365 * 24 * 60 * 60
)

// ledger records the evictions in flight. It is safe for concurrent use: kills report to it from goroutines of their
// own.
type ledger struct {
	mu          sync.Mutex
	entries     map[types.UID]*entry
	lastRelease time.Time
}

type entry struct {
	snapshot.InFlight
	// victim is that of the first eviction of the pod, decision the number of that decision.
	victim   *policy.Victim
	decision uint64
	// begun: an eviction began the termination of the pod. Otherwise the pod was terminating before.
	begun bool
	// running is the number of kill requests that have not ended; a second one hastens the first.
	running int
	// reporting is the number of kill requests that have ended and whose result the sinks have not received yet. Results
	// of sweep come after it.
	reporting int
	// abandoned: the pod is so late that it no longer counts as in flight and may be evicted again. It is still
	// terminating, and is in flight again once it has stopped; or it has stopped and is not cleaned up.
	abandoned bool
}

func newLedger() *ledger { return &ledger{entries: map[types.UID]*entry{}} }

// begin adds an eviction, or updates the entry of a pod whose grace period is shortened.
func (l *ledger) begin(v *policy.Victim, decision uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := deadlineOf(v, now)
	e, ok := l.entries[v.Pod.UID]
	if ok && e.State == snapshot.Stopped {
		// It has stopped since the snapshot was taken.
		e.running++
		return
	}
	if !ok {
		e = l.add(v, decision, deadline)
	}
	requested := v.Cause.Kind == policy.PluginRequest
	if !ok || e.abandoned || !requested {
		// A request of plugins that only hastens an eviction of the node neither takes that over nor makes a need wait again
		// for its effect.
		e.Signal, e.Requested, e.Started = v.Cause.Signal, requested, now
	}
	if e.abandoned {
		e.abandoned, e.Deadline, e.Hard = false, deadline, false
	}
	e.running++
	e.Expected, e.State, e.Changed = v.Expected, snapshot.Stopping, now
	e.Hard = e.Hard || v.Cause.Hard()
	if deadline.Before(e.Deadline) {
		e.Deadline = deadline
	}
}

// deadlineOf returns the end of the grace period of a victim whose eviction begins now.
func deadlineOf(v *policy.Victim, now time.Time) time.Time {
	return now.Add(time.Duration(min(v.GraceSeconds, maxGraceSeconds)) * time.Second)
}

// add adds an entry for a pod that has none. The caller holds the lock.
func (l *ledger) add(v *policy.Victim, decision uint64, deadline time.Time) *entry {
	e := &entry{victim: v, decision: decision, InFlight: snapshot.InFlight{UID: v.Pod.UID, Deadline: deadline}}
	l.entries[v.Pod.UID] = e
	return e
}

// deleted adds an eviction that the API server has accepted. No kill request runs for it: the pod workers stop the pod
// because of its deletion, and sweep finds that it has stopped. It returns false if the pod is being evicted already.
// That changes nothing, but a pod that was so late that it did not count as in flight does so again.
func (l *ledger) deleted(v *policy.Victim, decision uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, exists := l.entries[v.Pod.UID]; exists {
		if e.abandoned {
			e.abandoned, e.Deadline, e.Started, e.Changed = false, deadlineOf(v, now), now, now
		}
		return false
	}
	e := l.add(v, decision, deadlineOf(v, now))
	e.Requested, e.Started, e.Changed, e.State, e.Expected = true, now, now, snapshot.Stopping, v.Expected
	e.begun = true
	return true
}

// observe updates what the ends of pods release by their current usage: a pod may grow while it is being stopped, and
// later there are no stats of it. Stats leave out containers that have exited, so that amounts which are unknown now
// stay.
func (l *ledger) observe(pods []snapshot.Pod, layout snapshot.Layout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return
	}
	for i := range pods {
		p := &pods[i]
		if e, ok := l.entries[p.UID]; ok && e.State != snapshot.Stopped {
			e.Expected = p.UpdateRelease(e.Expected, layout)
		}
	}
}

// accepted records the pod workers' answer to a request.
func (l *ledger) accepted(uid types.UID, answer podkill.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[uid]; ok {
		e.begun = e.begun || answer == podkill.Begun
	}
}

// refused removes a request that the pod workers have not accepted, since the agent is stopping.
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

// ended records that a kill request has ended. The pod is stopped if any of its requests ended so, and has failed
// if the last one ended with an error. An overdue pod is still stopping, until sweep finds that it has stopped.
// evicted is true once for a pod, when it has stopped and an eviction had begun its termination. The caller must
// call reported once it has passed the result to the sinks.
func (l *ledger) ended(uid types.UID, ending podkill.Ending, now time.Time) (evicted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[uid]
	if !ok {
		return false
	}
	e.running--
	e.reporting++
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

// reported records that the sinks have received the result of a kill request that has ended.
func (l *ledger) reported(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[uid]; ok {
		e.reporting--
	}
}

// lives reports the progress of pods. Its functions must not call methods of the ledger.
type lives struct {
	// stopped returns true if no container of the pod can run any more, cleanedUp if its cgroups and volumes are removed
	// as well.
	stopped   func(types.UID) bool
	cleanedUp func(types.UID) bool
}

// sweep updates the entries without running requests. It finds overdue pods, and pods whose kill has failed, that have
// stopped all the same, and pods that are cleaned up; it marks overdue pods as abandoned, and removes entries that have
// ended; changed is true if it did any of that. While the runtime is silent the entry of a failed kill is kept until
// the pod has stopped.
//
// The times of stops and releases are those of the answers, which the clock returns after them: an observation from
// before an answer may not show the release yet.
func (l *ledger) sweep(clock func() time.Time, silent bool, pods lives) (changed bool, results []Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, e := range l.entries {
		if e.running > 0 || e.reporting > 0 {
			continue
		}
		if e.State != snapshot.Stopped && pods.stopped(uid) {
			now := clock()
			e.State, e.Changed, e.abandoned, changed = snapshot.Stopped, now, false, true
			results = append(results, e.result(PodStopped, now))
		}
		done := e.State != snapshot.Stopping && pods.cleanedUp(uid)
		now := clock()
		if done {
			l.lastRelease = now
			results = append(results, e.result(PodReleased, now))
		}
		switch {
		case !done && (e.abandoned || !e.expired(now, silent)):
		case !done && e.State != snapshot.Failed:
			e.abandoned, changed = true, true
		default:
			delete(l.entries, uid)
			changed = true
		}
	}
	// A pod that has stopped and is cleaned up has two results, which are already in this order.
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.Victim.Pod.UID, b.Victim.Pod.UID) })
	return changed, results
}

// result returns a result for the pod of an entry.
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

// expired reports whether an entry without running requests has lasted so long that the pod may be evicted again.
func (e *entry) expired(now time.Time, silent bool) bool {
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

// view returns the evictions in flight, in the order of UIDs.
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

// empty reports whether nothing is in flight.
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

// unused reports whether the ledger has no entry, not even of a pod that no longer counts as in flight.
func (l *ledger) unused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries) == 0
}

// InFlightPod is a pod that is being evicted and is not released yet.
type InFlightPod struct {
	UID types.UID
	// Overdue: its kill has failed, or patience has passed since the end of its grace period.
	Overdue bool
}

// InFlight returns the pods that are being evicted for whatever cause, until everything that they used is released, in
// the order of UIDs. An overdue pod is listed until it is gone or, after a failed kill, may be evicted again.
func (m *Manager) InFlight() []InFlightPod {
	return m.ledger.pods(m.clock.now(), m.options.Load().Patience)
}

func (l *ledger) pods(now time.Time, patience time.Duration) []InFlightPod {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]InFlightPod, 0, len(l.entries))
	for uid, e := range l.entries {
		overdue := e.abandoned || e.State == snapshot.Failed || now.Sub(e.Deadline) > patience
		list = append(list, InFlightPod{UID: uid, Overdue: overdue})
	}
	slices.SortFunc(list, func(a, b InFlightPod) int { return cmp.Compare(a.UID, b.UID) })
	return list
}
