package policy

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// reclaimFirst requests a node-level reclaim before a pod is evicted: once when the need begins, and again after each
// selection of victims. wait is false if the reclaim has ended, or can release nothing.
func (r *round) reclaimFirst(n *need) (o Outcome, wait bool) {
	request, ok := reclaimFor(n, r.snapshot.Layout)
	if !ok {
		return "", false
	}
	if r.rules.dryRun {
		// Its effect is unknown, so that the decision has both the reclaim and the victims if that released nothing.
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return "", false
	}
	s := r.snapshot
	last := reclaimOf(s, &request)
	if last.Running {
		// A reclaim that hangs must not hold up evictions.
		left := r.rules.Timing.Patience - s.Taken.Sub(last.Started)
		r.syncAfter(left)
		return AwaitReclaim, left > 0
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
		// It freed enough, which was used since, and can free more. This ends, as the number of images is finite.
		r.decision.Reclaims = append(r.decision.Reclaims, request)
		return ReclaimNode, true
	}
	return "", false
}

// isDueAgain reports whether node-level reclaim is repeated because victims were selected after its last end. Without a
// candidate it is repeated once in a monitoring period, as by stock, although there may be a round every second. A
// reclaim that failed while the runtime was silent is repeated when the runtime answers, before a pod is evicted.
func (r *round) isDueAgain(n *need, last *snapshot.Reclaim) bool {
	attempt := &r.last.Needs[n.group].LastSelection
	if !last.Finished.Before(attempt.Time) {
		return false
	}
	runtimeIsBack := attempt.RuntimeSilent && !r.snapshot.RuntimeSilent
	return !attempt.NoCandidate || (runtimeIsBack && last.Err != nil) ||
		r.snapshot.Taken.Sub(last.Finished) >= r.rules.Timing.Period
}

// useReclaimMeasurement sets the amount of the need to what a reclaim that was not enough has measured as missing at
// its end, if that is newer than the observation: the stats of a file system may be as old as the monitoring period,
// while a disk fills up. The measurement is valid until victims are selected or a pod is released.
func (r *round) useReclaimMeasurement(n *need) {
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

// observation returns the observation that messages about the need show.
func (r *round) observation(n *need) snapshot.Observation {
	o := r.snapshot.Signals[n.signal]
	if n.measured {
		o.Available = saturatingAdd(n.target, -n.amount)
	}
	return o
}

// reclaimFor returns the reclaim request for a need: dead containers where writable layers are on the device, unused
// images where images are. ok is false if the device has neither.
func reclaimFor(n *need, l snapshot.Layout) (q ReclaimRequest, ok bool) {
	if !n.group.disk() {
		return ReclaimRequest{}, false
	}
	q = ReclaimRequest{Device: n.group.device(), Signal: n.signal, Amount: n.amount, Target: n.target}
	q.Images = !l.DedicatedImageFs || q.Device == snapshot.ImageDevice
	q.Containers = l.MeasureOf(q.Device).WritableLayers
	return q, q.Images || q.Containers
}

// reclaimOf returns what is known of the last reclaim with the device and unit of the request.
func reclaimOf(s *snapshot.Snapshot, q *ReclaimRequest) snapshot.Reclaim {
	for i := range s.Reclaims {
		if s.Reclaims[i].Device == q.Device && s.Reclaims[i].Inodes == q.Inodes() {
			return s.Reclaims[i]
		}
	}
	return snapshot.Reclaim{Device: q.Device, Inodes: q.Inodes()}
}
