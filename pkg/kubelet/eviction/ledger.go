package eviction

import (
	"cmp"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// retryAfter is how long a pod whose kill failed is left alone.
	retryAfter = 30 * time.Second
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
	pod *v1.Pod
	// running is how many kill requests have not returned: a second one hastens the first.
	running int
}

func newLedger() *ledger { return &ledger{entries: map[types.UID]*entry{}} }

// begin enters an eviction, or notes that a pod which is in the ledger gets less time.
func (l *ledger) begin(v *policy.Victim, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := now.Add(time.Duration(min(v.GraceSeconds, maxGraceSeconds)) * time.Second)
	e, ok := l.entries[v.Pod.UID]
	if !ok {
		e = &entry{pod: v.Pod.Object, InFlight: snapshot.InFlight{UID: v.Pod.UID, Started: now, Deadline: deadline}}
		l.entries[v.Pod.UID] = e
	}
	e.running++
	e.Signal, e.Expected, e.State, e.Changed = v.Signal, v.Expected, snapshot.Stopping, now
	e.Hard = e.Hard || v.Hard
	if deadline.Before(e.Deadline) {
		e.Deadline = deadline
	}
}

// ended notes that one kill request has returned. The pod counts as failed when the last one returns with an error, and as
// stopped when any returns without.
func (l *ledger) ended(uid types.UID, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[uid]
	if !ok {
		return
	}
	e.running--
	switch {
	case e.State == snapshot.Stopped:
	case err == nil:
		e.State, e.Changed = snapshot.Stopped, now
	case e.running == 0:
		e.State, e.Changed = snapshot.Failed, now
	}
}

// sweep drops what is over and reports whether that was anything. A kill that has failed may have done its work all the same, later; while
// the runtime is silent it is not given up before it can have. cleanedUp must not call back.
func (l *ledger) sweep(now time.Time, silent bool, cleanedUp func(*v1.Pod) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := false
	for uid, e := range l.entries {
		age := now.Sub(e.Changed)
		done := e.State != snapshot.Stopping && e.running == 0 && cleanedUp(e.pod)
		if done {
			l.lastRelease = now
			released(&e.Expected)
		}
		if silent && e.State == snapshot.Failed {
			age = min(age, now.Sub(e.Deadline)-policy.SilentPatience)
		}
		forgotten := e.running == 0 && (e.State == snapshot.Failed && age >= retryAfter || e.State == snapshot.Stopped && age >= forgetAfter)
		if done || forgotten {
			delete(l.entries, uid)
			changed = true
		}
	}
	return changed
}

// view is the ledger as a value, in the order of UIDs.
func (l *ledger) view() (inFlight []snapshot.InFlight, lastRelease time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		inFlight = append(inFlight, e.InFlight)
	}
	slices.SortFunc(inFlight, func(a, b snapshot.InFlight) int { return cmp.Compare(a.UID, b.UID) })
	return inFlight, l.lastRelease
}

func (l *ledger) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries) == 0
}
