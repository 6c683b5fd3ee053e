package eviction

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// endedPods records pods that are no longer active though no eviction stopped them: they were deleted, have completed,
// or were stopped for another reason. What they used is released later, when their volumes are unmounted, and stats of
// a disk from before that do not show the release. Evicting another pod meanwhile frees nothing sooner. It records only
// pods that were active in a round with all pods. Only the goroutine of the loop uses it.
type endedPods struct {
	// active are the pods of the last round if that had all pods, in the order of UIDs.
	active []snapshot.Pod
	// releases has, for each of these pods that is terminating, what its end releases. Stats leave out containers that
	// have exited, so that the last known amounts count.
	releases map[types.UID]snapshot.Release
	// entries are the pods that have ended and are not cleaned up.
	entries map[types.UID]*snapshot.InFlight
	// lastRelease is when a pod was last cleaned up, releasing when the first one of a burst was.
	lastRelease, releasing time.Time
}

// observe finds the pods that have ended since the last round. The snapshot must have all pods; its InFlight are the
// evictions.
func (e *endedPods) observe(s *snapshot.Snapshot, stopped func(types.UID) bool) {
	releases := map[types.UID]snapshot.Release{}
	for i := range s.Pods {
		p := &s.Pods[i]
		delete(e.entries, p.UID)
		if p.Terminating == nil {
			continue
		}
		if before, ok := e.releases[p.UID]; ok {
			releases[p.UID] = p.UpdateRelease(before, s.Layout)
		} else {
			releases[p.UID] = p.Release(s.Layout)
		}
	}
	rest := s.Pods
	for i := range e.active {
		p := &e.active[i]
		for len(rest) > 0 && rest[0].UID < p.UID {
			rest = rest[1:]
		}
		if (len(rest) == 0 || rest[0].UID != p.UID) && !contains(s.InFlight, p.UID) {
			e.add(p, s, stopped(p.UID))
		}
	}
	e.active, e.releases = s.Pods, releases
}

func contains(list []snapshot.InFlight, uid types.UID) bool {
	return slices.ContainsFunc(list, func(f snapshot.InFlight) bool { return f.UID == uid })
}

// add adds an entry for a pod that is no longer active. Its containers may still run: a pod that its source has dropped
// is not active while it is being stopped.
func (e *endedPods) add(p *snapshot.Pod, s *snapshot.Snapshot, stopped bool) {
	release, terminating := e.releases[p.UID]
	if !terminating {
		release = p.Release(s.Layout)
	}
	// Page cache may stay after the end of the pod: only what certainly becomes free is expected.
	release.Memory = release.CertainMemory
	if release == (snapshot.Release{}) {
		return
	}
	f := &snapshot.InFlight{
		UID: p.UID, State: snapshot.Stopping, Changed: s.Taken, Deadline: s.Taken, Expected: release,
	}
	if p.Terminating != nil && !p.Terminating.Deadline.IsZero() {
		f.Deadline = p.Terminating.Deadline
	}
	if stopped {
		f.State = snapshot.Stopped
	}
	if e.entries == nil {
		e.entries = map[types.UID]*snapshot.InFlight{}
	}
	e.entries[p.UID] = f
}

// forget discards the pods of the last round, since there is none with all pods now.
func (e *endedPods) forget() { e.active, e.releases = nil, nil }

// sweep updates entries of pods that have stopped, and deletes those of pods that were cleaned up; changed is true if
// there are any. It also deletes entries of pods that are so late that decisions do not count them any more. Times are
// read from the clock after each answer of lives, as in ledger.sweep.
func (e *endedPods) sweep(clock func() time.Time, patience time.Duration, pods lives) (changed bool) {
	for uid, f := range e.entries {
		if f.State == snapshot.Stopping && pods.stopped(uid) {
			f.State, f.Changed, changed = snapshot.Stopped, clock(), true
		}
		switch now := clock(); {
		case f.State == snapshot.Stopped && pods.cleanedUp(uid):
			e.released(clock(), patience)
			delete(e.entries, uid)
			changed = true
		case f.State == snapshot.Stopped && now.Sub(f.Changed) >= forgetAfter,
			f.State == snapshot.Stopping && now.Sub(f.Deadline) >= policy.SilentPatience:
			delete(e.entries, uid)
		}
	}
	return changed
}

// released records a release: observations from before it are outdated. Where pods end all the time, every observation
// would be outdated. So releases are recorded for the time patience after the first one, and then not for as long.
func (e *endedPods) released(now time.Time, patience time.Duration) {
	if now.Sub(e.releasing) >= 2*patience {
		e.releasing = now
	}
	if now.Sub(e.releasing) < patience {
		e.lastRelease = now
	}
}

// addTo adds the pods that have ended to those in flight, which stay in the order of UIDs.
func (e *endedPods) addTo(s *snapshot.Snapshot) {
	for uid, f := range e.entries {
		if !contains(s.InFlight, uid) {
			s.InFlight = append(s.InFlight, *f)
		}
	}
	slices.SortFunc(s.InFlight, func(a, b snapshot.InFlight) int { return cmp.Compare(a.UID, b.UID) })
	s.LastRelease = snapshot.Later(s.LastRelease, e.lastRelease)
}

func (e *endedPods) empty() bool { return len(e.entries) == 0 }
