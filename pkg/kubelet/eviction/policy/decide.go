package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pollUrgent is how often to look while a hard threshold is met and something is in flight.
const pollUrgent = time.Second

// Decide decides about one snapshot. It is a function of its arguments: the order of pods and of other lists in the snapshot
// makes no difference, and none of the arguments is changed. Snapshots must come in the order of their times.
//
// At most one need begins something in a round; a need that only waits does not hold up the next. Broken local storage limits
// are served besides.
//
// Thresholds in dry run are decided about apart from all others, so that they change nothing.
func Decide(s *snapshot.Snapshot, rules *Rules, m Memory) (Decision, Memory) {
	holding, dry := rules.rehearsed()
	d, next := decide(s, holding, m)
	d.DryRun, next.rehearsal = rehearse(s, dry, m.rehearsal)
	next.number = m.number + 1
	d.Number = next.number
	return d, next
}

func decide(s *snapshot.Snapshot, rules *Rules, m Memory) (Decision, Memory) {
	d := Decision{At: s.Taken}
	next := m
	next.clocks = m.clocksFor(s, rules.Thresholds)
	for i := range ConditionTypes {
		d.Conditions[i], next.conditions[i] = conditionOf(i, m.conditions[i], next.clocks, s, rules.PressureTransitionPeriod)
	}
	next.look(s)
	r := &round{snapshot: s, rules: rules, memory: &next, before: &m, decision: &d}
	if rules.LocalStorageLimits {
		d.Victims = localStorage(s, rules.Timing)
	}
	r.serveAll()
	r.schedule()
	next.past = m.past.with(s, rules.Thresholds, r.readings)
	return d, next
}

// look remembers how new the figures are.
func (m *Memory) look(s *snapshot.Snapshot) {
	for sig := range m.signals {
		m.signals[sig] = m.signals[sig].look(&s.Signals[sig], s.Taken)
	}
}

// taken is when the figures of a signal, which must be known, were true by the agent's clock.
func (r *round) taken(sig snapshot.Signal) time.Time { return r.memory.signals[sig].taken }

// fresh reports whether figures are new.
func (r *round) fresh(sig snapshot.Signal) bool {
	return r.before.fresh(sig, r.snapshot.Signals[sig], r.taken(sig))
}

func (r *round) serveAll() {
	list := needs(r.snapshot, r.rules.Thresholds, r.memory.clocks)
	r.memory.acting = [numGroups]time.Time{}
	for i := range list {
		g := list[i].group
		r.memory.acting[g] = r.before.acting[g]
		if r.memory.acting[g].IsZero() {
			r.memory.acting[g] = r.snapshot.Taken
		}
	}
	for i := range list {
		if r.serve(&list[i]) {
			for j := i + 1; j < len(list); j++ {
				r.postpone(&list[j])
			}
			return
		}
	}
}

// postpone leaves a need to the next round, when it is seen what the one before it brings.
func (r *round) postpone(n *need) {
	st := Starved{Signal: n.signal, Hard: n.hard, Amount: n.amount, Outcome: AwaitOther}
	r.keepFresh(n, &st)
	r.decision.Starved = append(r.decision.Starved, st)
}

// awaitRelease: what is in flight covers the need as far as it is known. When that is certain it is enough to look after the time
// that a kill takes; when it may come to less, to look often.
func (r *round) awaitRelease(st *Starved) {
	switch {
	case !st.Hard:
	case st.Certain >= st.Amount:
		r.sooner(max(pollUrgent, r.rules.Timing.KillTime))
	default:
		r.sooner(pollUrgent)
	}
}

// schedule asks for an earlier look where time alone changes something. The end of what is in flight is reported by those who
// carry it out, so that only what is urgent is polled.
func (r *round) schedule() {
	for i := range r.memory.conditions {
		if c := &r.memory.conditions[i]; c.holds && c.lastMet.Before(r.snapshot.Taken) {
			r.sooner(c.lastMet.Add(r.rules.PressureTransitionPeriod).Sub(r.snapshot.Taken))
		}
	}
	for i := range r.memory.clocks {
		c := &r.memory.clocks[i]
		if c.state == met && !c.active {
			r.sooner(c.remaining(&r.rules.Thresholds[i]))
		}
	}
	settling := len(r.snapshot.InFlight) > 0 || r.snapshot.Taken.Sub(r.snapshot.LastRelease) < r.rules.Timing.Patience
	for i := range r.decision.Starved {
		switch st := &r.decision.Starved[i]; st.Outcome {
		case AwaitOther, AwaitTurn:
			if st.Hard {
				r.sooner(pollUrgent)
			}
		case AwaitRelease:
			r.awaitRelease(st)
		case AwaitFigures:
			if st.Hard && settling {
				r.sooner(pollUrgent)
			}
		default: // whoever acts reports when he is done
		}
	}
}
