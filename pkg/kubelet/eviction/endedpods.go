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
// or were stopped for another reason. What they used is released a while later, when their volumes are unmounted, and
// stats of a disk from before that do not show the release; evicting another pod meanwhile is unnecessary. It belongs
// to the loop, and knows of pods that were active in a round with all pods only.
type endedPods struct {
	// active are the pods of the last round if that had all pods, in the order of UIDs.
	active []snapshot.Pod
	// releases has what the end of those releases that were terminating. Stats leave out containers that have exited, so
	// the last known amounts count.
	releases map[types.UID]snapshot.Release
	entries  map[types.UID]*snapshot.InFlight
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
	// Page cache is not certain to come free, and was not expected to before the pod ended.
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

// sweep finds pods that have stopped, and pods that are cleaned up; changed is true if there are any. Entries end when
// the pod is cleaned up, or is so late that decisions do not count it any more. A time that it records is that of the
// answer, as in ledger.sweep.
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

// released records a release, which makes older observations useless. Where pods end all the time, every observation
// would be older than the last release: from patience after the first release of a burst on, no further one is recorded
// for as long.
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
	s.LastRelease = later(s.LastRelease, e.lastRelease)
}

func (e *endedPods) empty() bool { return len(e.entries) == 0 }
