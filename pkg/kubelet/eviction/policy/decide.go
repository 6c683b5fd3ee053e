package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pollUrgent is how often to look while a hard threshold is met and something is in flight.
const pollUrgent = time.Second

// Decide decides about one snapshot. It is a function of its arguments: the order of pods and of other lists in the
// snapshot makes no difference, and none of the arguments is changed. Snapshots must come in the order of their times.
// The second result is the state for the next snapshot.
//
// At most one need begins something in a round; a need that only waits does not hold up the next. Broken local storage
// limits are served besides.
//
// Thresholds in dry run are decided about apart from all others, with a state of their own, so that they change
// nothing.
func Decide(s *snapshot.Snapshot, rules *Rules, state State) (Decision, State) {
	enforced, dryRun := rules.split()
	d, next := decide(s, enforced, &state.Enforced)
	dry, nextDry := decideDryRun(s, dryRun, state.DryRun)
	d.Number, d.DryRun = state.Number+1, dry
	return d, State{Number: d.Number, Enforced: next, DryRun: nextDry}
}

func decide(s *snapshot.Snapshot, rules *Rules, last *rulesState) (Decision, rulesState) {
	d := Decision{At: s.Taken, WallTime: s.WallTime}
	next := *last
	next.Thresholds = last.thresholdsAfter(s, rules.Thresholds)
	for i := range ConditionTypes {
		d.Conditions[i], next.Conditions[i] = conditionOf(i, last.Conditions[i], next.Thresholds, s,
			rules.PressureTransitionPeriod)
	}
	for sig := range next.Signals {
		next.Signals[sig] = last.Signals[sig].observe(&s.Signals[sig], s)
	}
	r := &round{snapshot: s, rules: rules, next: &next, last: last, decision: &d}
	if rules.LocalStorageLimits {
		d.Victims = localStorage(s, rules.Timing)
	}
	r.serveAll()
	r.schedule()
	next.MemorySamples = last.MemorySamples.with(s, rules.Thresholds, r.growth)
	return d, next
}

// taken returns when the observation of a signal, which must be known, was true by the agent's clock.
func (r *round) taken(sig snapshot.Signal) time.Time { return r.next.Signals[sig].Taken }

// fresh reports whether the observation of a signal is new.
func (r *round) fresh(sig snapshot.Signal) bool {
	return r.last.fresh(sig, r.snapshot.Signals[sig], r.taken(sig))
}

func (r *round) serveAll() {
	list := needs(r.snapshot, r.rules.Thresholds, r.next.Thresholds)
	for g := range r.next.Needs {
		r.next.Needs[g].ActingSince = time.Time{}
	}
	for i := range list {
		g := list[i].group
		r.next.Needs[g].ActingSince = r.last.Needs[g].ActingSince
		if r.next.Needs[g].ActingSince.IsZero() {
			r.next.Needs[g].ActingSince = r.snapshot.Taken
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

// awaitRelease: what is in flight covers the need as far as it is known. When that is certain it is enough to look
// after the time that a kill takes; when it may come to less, to look often.
func (r *round) awaitRelease(st *Starved) {
	switch {
	case !st.Hard:
	case st.Certain >= st.Amount:
		r.sooner(max(pollUrgent, r.rules.Timing.KillTime))
	default:
		r.sooner(pollUrgent)
	}
}

// schedule asks for an earlier look where time alone changes something. The end of what is in flight is reported by
// those who carry it out, so that only what is urgent is polled.
func (r *round) schedule() {
	for i := range r.next.Conditions {
		if c := &r.next.Conditions[i]; c.True && c.LastMet.Before(r.snapshot.Taken) {
			r.sooner(c.LastMet.Add(r.rules.PressureTransitionPeriod).Sub(r.snapshot.Taken))
		}
	}
	for i := range r.next.Thresholds {
		if t := &r.next.Thresholds[i]; t.Status == met && !t.Active {
			r.sooner(t.remaining(&r.rules.Thresholds[i]))
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
		case AwaitStats:
			if st.Hard && settling {
				r.sooner(pollUrgent)
			}
		default: // whoever acts reports when he is done
		}
	}
}
