package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// round is one call of Decide: what it reads, and the memory that it writes.
type round struct {
	snapshot *snapshot.Snapshot
	rules    *Rules
	memory   *Memory
	before   *Memory
	decision *Decision
	// growth is worked out at most once, when it is first asked for, from the readings of all pods.
	growth   *growth
	readings []reading
}

// serve decides about one need and reports whether the round has begun something for it.
func (r *round) serve(n *need) (began bool) {
	r.measure(n)
	st := Starved{Signal: n.signal, Hard: n.hard, Amount: n.amount}
	p := pendingFor(n, r.snapshot, r.rules.Timing)
	st.InFlight, st.Certain = p.amount, p.certain
	st.Outcome, began = r.settle(n, &p, &st)
	r.keepFresh(n, &st)
	r.decision.Starved = append(r.decision.Starved, st)
	return began
}

func (r *round) settle(n *need, p *pending, st *Starved) (Outcome, bool) {
	if !n.measured && !r.figuresAreNew(n) {
		return AwaitFigures, false
	}
	if p.amount >= n.amount {
		return AwaitRelease, false
	}
	if outcome, wait := r.reclaimFirst(n); wait {
		return outcome, outcome == ReclaimNode
	}
	if r.snapshot.RuntimeSilent && n.group.disk() {
		// Nobody can tell who fills the disk, and whoever is stopped now gives nothing of it back until the runtime answers.
		r.judge(n, true)
		return AwaitFigures, false
	}
	g := r.growthOf(n)
	list := r.protect(n, candidates(n, r.snapshot, p, g), st)
	if len(list) == 0 {
		r.judge(n, true)
		return NoCandidate, false
	}
	hurry := r.hurry(n, g)
	if !hurry && r.mustWait(p) {
		return AwaitTurn, false
	}
	chosen, d, spared := r.choose(n, list, n.amount-p.amount, g)
	st.Chosen, st.Spared = len(chosen), st.Spared+spared
	for _, c := range r.now(chosen, d, hurry) {
		r.decision.Victims = append(r.decision.Victims, r.victim(n, &c))
	}
	r.evictedFor(n)
	return Evict, true
}

// figuresAreNew: a threshold acts on figures that no earlier look has used, and that were taken after the last release: those
// from before do not show what it brought.
func (r *round) figuresAreNew(n *need) bool {
	for _, sig := range n.signals {
		o := r.snapshot.Signals[sig]
		if r.before.fresh(sig, o) && !o.Time(r.snapshot.Taken).Before(r.snapshot.LastRelease) {
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
	for _, sig := range n.signals {
		if r.before.fresh(sig, r.snapshot.Signals[sig]) {
			r.memory.signals[sig].unused = true
		}
	}
}

func (r *round) growthOf(n *need) growth {
	if n.group != memoryGroup {
		return growth{}
	}
	if r.growth == nil {
		r.readings = readingsOf(r.snapshot)
		g := r.before.past.growthAt(r.snapshot, r.readings)
		r.growth = &g
	}
	return *r.growth
}

// rest is how fast memory goes that is not used by a candidate.
func (r *round) rest(list []candidate, g growth) float64 {
	rest := g.node
	for i := range list {
		rest -= list[i].rate
	}
	return max(0, rest)
}

// hurry: at the present rate memory is used up before a kill takes effect, so that there is no time to go one by one.
func (r *round) hurry(n *need, g growth) bool {
	if n.group != memoryGroup || !n.hard || g.worst <= 0 {
		return false
	}
	left := r.snapshot.Signals[n.signal].Available
	return float64(left)/g.worst < r.rules.Timing.KillTime.Seconds()
}

// mustWait: kills go one by one, so that each shows what it brings. A kill that has failed brings the next victim, but a broken
// killer is not run through all pods in a moment.
func (r *round) mustWait(p *pending) bool {
	t, now := &r.rules.Timing, r.snapshot.Taken
	return (!p.newest.IsZero() && now.Sub(p.newest) < t.Patience) || (!p.failed.IsZero() && now.Sub(p.failed) < t.KillTime)
}

// now is the part of the chosen pods that is evicted in this round: the first one, and in a hurry as many as are needed to
// outlive the time a kill takes.
func (r *round) now(chosen []candidate, d demand, hurry bool) []candidate {
	if !hurry || len(chosen) == 0 {
		return chosen[:min(1, len(chosen))]
	}
	need := d.need(chosen, d.killTime, nil)
	var sum int64
	for i := range chosen {
		if sum = saturatingAdd(sum, chosen[i].gain(d.killTime)); sum >= need {
			return chosen[:i+1]
		}
	}
	return chosen
}

func (r *round) victim(n *need, c *candidate) Victim {
	t := &r.rules.Thresholds[n.trigger]
	v := Victim{
		Pod: c.pod, Signal: n.signal, Metric: n.signal.String(), Hard: n.hard, Hasten: c.slow,
		Since: r.memory.acting[n.group], GraceSeconds: r.grace(n, c.pod), Expected: c.pod.Release(r.snapshot.Layout),
	}
	v.Message, v.Annotations = explain(t, r.figures(n), c.pod)
	return v
}

// grace is one second for hard thresholds. For soft ones it is the pod's own, capped by configuration unless that is negative.
func (r *round) grace(n *need, pod *snapshot.Pod) int64 {
	limit := r.rules.MaxPodGracePeriodSeconds
	own := pod.Object.Spec.TerminationGracePeriodSeconds
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

// judge remembers that the question which pod has to go was asked.
func (r *round) judge(n *need, nobody bool) {
	r.memory.judged[n.group] = judgement{at: r.snapshot.Taken, nobody: nobody, silent: r.snapshot.RuntimeSilent}
}

func (r *round) evictedFor(n *need) {
	r.judge(n, false)
	for i := range r.memory.clocks {
		c := &r.memory.clocks[i]
		if g, ok := groupOf(c.signal, r.snapshot.Layout); ok && g == n.group && c.acts() && c.soft == !n.hard {
			c.acted = true
		}
	}
}

// sooner makes the next look come no later than in d.
func (r *round) sooner(d time.Duration) {
	if d > 0 && (r.decision.LookAgain == 0 || d < r.decision.LookAgain) {
		r.decision.LookAgain = d
	}
}
