package policy

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// reclaimFirst sees to it that the node gives what it can before a pod has to go: when the need begins, and again each time
// the question which pod has to go was asked. wait is false when that has been done, or cannot help.
func (r *round) reclaimFirst(n *need) (o Outcome, wait bool) {
	request, ok := reclaimFor(n, r.snapshot.Layout)
	if !ok {
		return "", false
	}
	if r.rules.rehearsal {
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
	if last.Finished.IsZero() || last.Finished.Before(r.memory.acting[n.group]) || r.isDueAgain(n, &last) {
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return ReclaimNode, true
	}
	if n.measured {
		return "", false
	}
	if r.taken(n.signal).Before(last.Finished) {
		return AwaitFigures, true
	}
	if last.Got.More {
		// It freed enough, which has been used up since, and has more to give. That ends: there are only so many images.
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return ReclaimNode, true
	}
	return "", false
}

// isDueAgain tells whether the node is asked once more, since the question which pod has to go was asked after it was asked last. While
// there is nobody who may go, that is not done with each look, which may come every second, but no more often than stock does. What
// has failed while the runtime was silent is done anew before a pod goes.
func (r *round) isDueAgain(n *need, last *snapshot.Reclaim) bool {
	j := r.before.judged[n.group]
	if !last.Finished.Before(j.at) {
		return false
	}
	heardAgain := j.silent && !r.snapshot.RuntimeSilent
	return !j.nobody || (heardAgain && last.Err != nil) || r.snapshot.Taken.Sub(last.Finished) >= r.rules.Timing.Period
}

// measure takes over what a reclaim that was not enough has left, when that is newer than the figures: the figures of a file
// system may be as old as the period, and a disk that fills up does not wait. It counts until the question which pod has to go was
// asked, and not beyond a release.
func (r *round) measure(n *need) {
	request, ok := reclaimFor(n, r.snapshot.Layout)
	if !ok || r.rules.rehearsal {
		return
	}
	s := r.snapshot
	last := reclaimOf(s, &request)
	if last.Running || last.Got.Missing <= 0 || !r.taken(n.signal).Before(last.Finished) {
		return
	}
	if last.Finished.Before(r.memory.acting[n.group]) || !last.Finished.After(r.before.judged[n.group].at) || last.Finished.Before(s.LastRelease) {
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

// reclaimFor says what of the node itself lies on the device of a need: dead containers where writable layers are, unused
// images where images are. On a node device that carries neither there is nothing to reclaim.
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
