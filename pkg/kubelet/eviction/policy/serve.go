package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// round is the evaluation of one decision.
type round struct {
	snapshot *snapshot.Snapshot
	rules    *Rules
	// last is the state before the decision, next the state after it.
	last, next *rulesState
	decision   *Decision
	// growth is computed at most once, when it is first used.
	growth *growth
	// steady is computed at most once, when it is first used.
	steady *steadyGrowth
}

// serve decides about one need and reports whether it begins evictions or a reclaim in this round.
func (r *round) serve(n *need) (began bool) {
	r.useReclaimMeasurement(n)
	nd := NeedDecision{Signal: n.signal, Hard: n.hard, Amount: n.amount}
	p := r.pendingFor(n)
	nd.InFlight, nd.Certain = p.amount, p.certain
	nd.Outcome, began = r.decideNeed(n, &p, &nd)
	r.keepWhileWaiting(n, &nd)
	r.decision.Needs = append(r.decision.Needs, nd)
	return began
}

// decideNeed returns the outcome for a need, and whether it begins evictions or a reclaim.
func (r *round) decideNeed(n *need, p *pending, nd *NeedDecision) (Outcome, bool) {
	if !n.measured && !r.hasNewObservation(n) {
		return AwaitStats, false
	}
	g := r.growthOf(n)
	list := r.applyAnnotations(n, candidates(n, r.snapshot, p, g), nd)
	d := r.demandOf(n.amount - p.amount)
	if d.base <= 0 && d.urgent(list) <= 0 {
		return r.evictBeforeRelease(n, p, list)
	}
	if outcome, wait := r.reclaimFirst(n); wait {
		return outcome, outcome == ReclaimNode
	}
	if r.snapshot.RuntimeSilent && n.group.disk() {
		// The usage of the disk by pods is unknown, and a pod that is stopped now frees nothing there until the runtime
		// answers.
		r.recordSelection(n, true)
		return AwaitStats, false
	}
	if r.snapshot.PodsAwaited && n.group.disk() {
		r.markUnused(n)
		return AwaitStats, false
	}
	if len(list) == 0 {
		r.recordSelection(n, true)
		return NoCandidate, false
	}
	return r.evict(n, p, nd, list, d)
}

// evict adds as many of the candidates to the victims as the need requires in this round; none while the effect of
// earlier evictions has to be observed first.
func (r *round) evict(n *need, p *pending, nd *NeedDecision, list []candidate, d demand) (Outcome, bool) {
	t := r.pacingOf(n, p, list)
	if !t.imminent && t.wait {
		return AwaitTurn, false
	}
	c := r.choose(n, list, d)
	nd.Chosen, nd.PassedOver = len(c.pods), nd.PassedOver+c.passedOver
	now := t.victims(c, list, d)
	awaited := len(now) == 0
	if awaited {
		now = t.firstOverRequest(list, d.killTime)
	}
	if len(now) == 0 {
		return AwaitTurn, false
	}
	r.addVictims(n, now)
	if awaited {
		r.keepPace(n)
	}
	return Evict, true
}

// hasteTime is how long what is left has to last while terminations in progress release enough. Rounds follow each
// other faster when half of it is used up, and a fence ends growth within milliseconds.
const hasteTime = 250 * time.Millisecond

// evictBeforeRelease waits for what terminations in progress release, which is enough. Only pods that use up what is
// left within moments are evicted beside them, each with a fence.
func (r *round) evictBeforeRelease(n *need, p *pending, list []candidate) (Outcome, bool) {
	t := r.pacingOf(n, p, list)
	if !t.imminent {
		return AwaitRelease, false
	}
	now := t.exhausting(list, hasteTime, r.rules.Timing.KillTime)
	if len(now) == 0 {
		return AwaitRelease, false
	}
	r.addVictims(n, now)
	r.keepPace(n)
	return Evict, true
}

// keepPace has the victims of this round delay no others: they are not those that the need requires.
func (r *round) keepPace(n *need) {
	r.next.Needs[n.group].LastEviction = r.last.Needs[n.group].LastEviction
}

// addVictims adds pods to the victims, each with its fence.
func (r *round) addVictims(n *need, pods []candidate) {
	before := len(r.decision.Victims)
	for i := range pods {
		r.decision.Victims = append(r.decision.Victims, r.victim(n, &pods[i]))
	}
	r.setFences(n, r.decision.Victims[before:], pods)
	r.recordEviction(n)
}

func (r *round) demandOf(base int64) demand {
	t := &r.rules.Timing
	return demand{base: base, killTime: t.KillTime, settling: t.Settling}
}

// hasNewObservation reports whether a signal of the need has an observation that no earlier round has used and that is
// not outdated.
func (r *round) hasNewObservation(n *need) bool {
	for _, sig := range n.signals {
		if r.fresh(sig) && !r.outdated(sig) {
			return true
		}
	}
	return false
}

// keepWhileWaiting marks the observations of a need that waits, so that the next round may use them.
func (r *round) keepWhileWaiting(n *need, nd *NeedDecision) {
	switch nd.Outcome {
	case AwaitRelease, AwaitTurn, AwaitReclaim, AwaitOther:
	default:
		return
	}
	r.markUnused(n)
}

// markUnused records that the new observations of the need were not used.
func (r *round) markUnused(n *need) {
	for _, sig := range n.signals {
		if r.fresh(sig) {
			r.next.Signals[sig].Unused = true
		}
	}
}

func (r *round) growthOf(n *need) *growth {
	if n.group != memoryGroup {
		return &growth{}
	}
	return r.allGrowth()
}

// allGrowth returns the growth until the snapshot.
func (r *round) allGrowth() *growth {
	if r.growth == nil {
		r.growth = r.last.MemorySamples.growthAt(r.snapshot, r.rules.Timing.KillTime)
	}
	return r.growth
}

func (r *round) victim(n *need, c *candidate) Victim {
	t := &r.rules.Thresholds[n.trigger]
	v := Victim{
		Pod: c.pod, Cause: thresholdCause(n.signal, n.hard), Hasten: c.hasten,
		Since: r.next.Needs[n.group].ActingSince, GraceSeconds: r.grace(n, c.pod),
		Expected: c.pod.Release(r.snapshot.Layout),
	}
	v.Message, v.Annotations = evictionMessage(t, r.observation(n), c.pod)
	return v
}

// grace returns the grace period of an eviction in seconds: one second for hard thresholds; for soft ones that of the
// pod, limited by MaxPodGracePeriodSeconds unless that is negative.
func (r *round) grace(n *need, pod *snapshot.Pod) int64 {
	limit := r.rules.MaxPodGracePeriodSeconds
	own := pod.GracePeriodSeconds
	switch {
	case n.hard:
		return immediateGrace
	case limit < 0:
		return pod.Grace()
	case own == nil:
		return limit
	}
	return min(limit, *own)
}

// recordSelection records an attempt to select victims.
func (r *round) recordSelection(n *need, noCandidate bool) {
	r.next.Needs[n.group].LastSelection = selection{
		Time: r.snapshot.Taken, NoCandidate: noCandidate, RuntimeSilent: r.snapshot.RuntimeSilent,
	}
}

// recordEviction records that pods are evicted for the need.
func (r *round) recordEviction(n *need) {
	r.recordSelection(n, false)
	r.next.Needs[n.group].LastEviction = r.snapshot.Taken
	for i := range r.next.Thresholds {
		t := &r.next.Thresholds[i]
		if g, ok := groupOf(t.Signal, r.snapshot.Layout); ok && g == n.group && t.acts() && t.Soft == !n.hard {
			t.Evicted = true
		}
	}
}

// syncAfter limits the time until the next round to d.
func (r *round) syncAfter(d time.Duration) {
	if d > 0 && (r.decision.SyncAfter == 0 || d < r.decision.SyncAfter) {
		r.decision.SyncAfter = d
	}
}
