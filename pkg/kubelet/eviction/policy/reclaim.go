package policy

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// reclaimFirst requests node-level reclaim before a pod is evicted: when the need begins, and again each time after
// victims were selected. wait is false if that has been done, or cannot help.
func (r *round) reclaimFirst(n *need) (o Outcome, wait bool) {
	request, ok := reclaimFor(n, r.snapshot.Layout)
	if !ok {
		return "", false
	}
	if r.rules.dryRun {
		// What it would bring is never seen; so it is said, and said too who would go if it brought nothing.
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return "", false
	}
	s := r.snapshot
	last := reclaimOf(s, &request)
	if last.Running {
		// A reclaim that hangs must not hold up evictions.
		return AwaitReclaim, s.Taken.Sub(last.Started) < r.rules.Timing.Patience
	}
	if last.Finished.IsZero() || last.Finished.Before(r.next.Needs[n.group].ActingSince) || r.isDueAgain(n, &last) {
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return ReclaimNode, true
	}
	if n.measured {
		return "", false
	}
	if r.taken(n.signal).Before(last.Finished) {
		return AwaitStats, true
	}
	if last.Got.More {
		// It freed enough, which has been used up since, and has more to give. That ends: there are only so many images.
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return ReclaimNode, true
	}
	return "", false
}

// isDueAgain reports whether node-level reclaim is repeated, since victims were selected after its last end. While
// there is no candidate, that is not done in each round, of which there may be one per second, but no more often than
// stock does it. A reclaim that failed while the runtime was silent is repeated before a pod is evicted.
func (r *round) isDueAgain(n *need, last *snapshot.Reclaim) bool {
	attempt := &r.last.Needs[n.group].LastSelection
	if !last.Finished.Before(attempt.Time) {
		return false
	}
	runtimeIsBack := attempt.RuntimeSilent && !r.snapshot.RuntimeSilent
	return !attempt.NoCandidate || (runtimeIsBack && last.Err != nil) ||
		r.snapshot.Taken.Sub(last.Finished) >= r.rules.Timing.Period
}

// measure takes over what a reclaim that was not enough has left, if that is newer than the observation: the stats of
// a file system may be as old as the period, and a disk that fills up does not wait. It counts until victims are
// selected, and not beyond a release.
func (r *round) measure(n *need) {
	request, ok := reclaimFor(n, r.snapshot.Layout)
	if !ok || r.rules.dryRun {
		return
	}
	s := r.snapshot
	last := reclaimOf(s, &request)
	if last.Running || last.Got.Missing <= 0 || !r.taken(n.signal).Before(last.Finished) {
		return
	}
	before, now := &r.last.Needs[n.group], &r.next.Needs[n.group]
	if last.Finished.Before(now.ActingSince) || !last.Finished.After(before.LastSelection.Time) ||
		last.Finished.Before(s.LastRelease) {
		return
	}
	n.amount, n.measured = last.Got.Missing, true
}

// figures are those that the need is served by.
func (r *round) figures(n *need) snapshot.Observation {
	o := r.snapshot.Signals[n.signal]
	if n.measured {
		o.Available = saturatingAdd(n.target, -n.amount)
	}
	return o
}

// reclaimFor says what of the node itself lies on the device of a need: dead containers where writable layers are,
// unused images where images are. On a node device that carries neither there is nothing to reclaim.
func reclaimFor(n *need, l snapshot.Layout) (ReclaimRequest, bool) {
	if !n.group.disk() {
		return ReclaimRequest{}, false
	}
	q := ReclaimRequest{Device: n.group.device(), Signal: n.signal, Amount: n.amount, Target: n.target}
	q.Images = !l.DedicatedImageFs || q.Device == snapshot.ImageDevice
	q.Containers = l.MeasureOf(q.Device).WritableLayers
	return q, q.Images || q.Containers
}

func reclaimOf(s *snapshot.Snapshot, q *ReclaimRequest) snapshot.Reclaim {
	for i := range s.Reclaims {
		if s.Reclaims[i].Device == q.Device && s.Reclaims[i].Inodes == q.Inodes() {
			return s.Reclaims[i]
		}
	}
	return snapshot.Reclaim{Device: q.Device, Inodes: q.Inodes()}
}
