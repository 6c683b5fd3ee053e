package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// round is one decision: what it reads, and the state that it writes.
type round struct {
	snapshot *snapshot.Snapshot
	rules    *Rules
	// last is the state that the decision begins with, next the one that it makes.
	last, next *rulesState
	decision   *Decision
	// growth is derived at most once, when it is first needed.
	growth *growth
}

// serve decides about one need and reports whether the round has begun something for it.
func (r *round) serve(n *need) (began bool) {
	r.measure(n)
	st := Starved{Signal: n.signal, Hard: n.hard, Amount: n.amount}
	p := r.pendingFor(n)
	st.InFlight, st.Certain = p.amount, p.certain
	st.Outcome, began = r.settle(n, &p, &st)
	r.keepFresh(n, &st)
	r.decision.Starved = append(r.decision.Starved, st)
	return began
}

func (r *round) settle(n *need, p *pending, st *Starved) (Outcome, bool) {
	if !n.measured && !r.figuresAreNew(n) {
		return AwaitStats, false
	}
	g := r.growthOf(n)
	list := r.protect(n, candidates(n, r.snapshot, p, g), st)
	d := r.demandOf(n.amount - p.amount)
	if d.base <= 0 && d.urgent(list) <= 0 {
		return AwaitRelease, false
	}
	if outcome, wait := r.reclaimFirst(n); wait {
		return outcome, outcome == ReclaimNode
	}
	if r.snapshot.RuntimeSilent && n.group.disk() {
		// It is unknown what pods have on the disk, and a pod that is stopped now frees nothing there until the runtime
		// answers.
		r.selected(n, true)
		return AwaitStats, false
	}
	if r.snapshot.PodsAwaited && n.group.disk() {
		r.keepUnused(n)
		return AwaitStats, false
	}
	if len(list) == 0 {
		r.selected(n, true)
		return NoCandidate, false
	}
	return r.evict(n, p, st, list, d)
}

// evict begins the eviction of as many of the candidates as the need requires at this moment; of none while others have
// to show first what they bring.
func (r *round) evict(n *need, p *pending, st *Starved, list []candidate, d demand) (Outcome, bool) {
	t := r.tempoOf(n, p, list)
	if !t.hurry && t.wait {
		return AwaitTurn, false
	}
	c := r.choose(n, list, d)
	st.Chosen, st.Spared = len(c.pods), st.Spared+c.spared
	now := t.now(c, d)
	awaited := len(now) == 0
	if awaited {
		now = t.meanwhile(list, d.killTime)
	}
	if len(now) == 0 {
		return AwaitTurn, false
	}
	for i := range now {
		r.decision.Victims = append(r.decision.Victims, r.victim(n, &now[i]))
	}
	r.evictedFor(n)
	if awaited {
		// The pace of the others goes on.
		r.next.Needs[n.group].LastEviction = r.last.Needs[n.group].LastEviction
	}
	return Evict, true
}

func (r *round) demandOf(base int64) demand {
	t := &r.rules.Timing
	return demand{base: base, killTime: t.KillTime, settling: t.Settling}
}

// figuresAreNew: a threshold acts on figures that no earlier look has used, and that were taken after the last release:
// those from before do not show what it brought.
func (r *round) figuresAreNew(n *need) bool {
	for _, sig := range n.signals {
		if r.fresh(sig) && !r.taken(sig).Before(r.snapshot.LastRelease) {
			return true
		}
	}
	return false
}

// keepFresh remembers figures that were new but could not be used yet.
func (r *round) keepFresh(n *need, st *Starved) {
	switch st.Outcome {
	case AwaitRelease, AwaitTurn, AwaitReclaim, AwaitOther:
	default:
		return
	}
	r.keepUnused(n)
}

func (r *round) keepUnused(n *need) {
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
	if r.growth == nil {
		r.growth = r.last.MemorySamples.growthAt(r.snapshot)
	}
	return r.growth
}

func (r *round) victim(n *need, c *candidate) Victim {
	t := &r.rules.Thresholds[n.trigger]
	v := Victim{
		Pod: c.pod, Cause: thresholdCause(n.signal, n.hard), Hasten: c.slow,
		Since: r.next.Needs[n.group].ActingSince, GraceSeconds: r.grace(n, c.pod),
		Expected: c.pod.Release(r.snapshot.Layout),
	}
	v.Message, v.Annotations = explain(t, r.figures(n), c.pod)
	return v
}

// grace is one second for hard thresholds. For soft ones it is the pod's own, capped by configuration unless that is
// negative.
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

// selected records an attempt to select victims.
func (r *round) selected(n *need, noCandidate bool) {
	r.next.Needs[n.group].LastSelection = selection{
		Time: r.snapshot.Taken, NoCandidate: noCandidate, RuntimeSilent: r.snapshot.RuntimeSilent,
	}
}

func (r *round) evictedFor(n *need) {
	r.selected(n, false)
	r.next.Needs[n.group].LastEviction = r.snapshot.Taken
	for i := range r.next.Thresholds {
		t := &r.next.Thresholds[i]
		if g, ok := groupOf(t.Signal, r.snapshot.Layout); ok && g == n.group && t.acts() && t.Soft == !n.hard {
			t.Evicted = true
		}
	}
}

// sooner makes the next look come no later than in d.
func (r *round) sooner(d time.Duration) {
	if d > 0 && (r.decision.LookAgain == 0 || d < r.decision.LookAgain) {
		r.decision.LookAgain = d
	}
}
