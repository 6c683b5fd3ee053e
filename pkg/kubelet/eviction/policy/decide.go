package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pollUrgent is the time between two rounds while a hard threshold is met and evictions are in flight.
const pollUrgent = time.Second

// Decide makes the decision about one snapshot and returns it with the state for the next snapshot. It is a function of
// its arguments and modifies none of them; the order of pods and of other lists in the snapshot has no effect, except
// that victims which plugins request are in the order of the requests. Snapshots must be passed in the order of Taken.
//
// In one round at most one need begins a reclaim or evictions. A need that only waits does not hold up the next one.
// Evictions for limits on local storage and for requests of eviction plugins are in addition to that.
//
// Thresholds in dry run are evaluated separately, with a state of their own, and have no effect on the rest of the
// decision.
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
		d.Victims = localStorageVictims(s, rules.Timing)
	}
	r.serveAll()
	r.serveRequests()
	r.schedule()
	if rules.ReportMemoryGrowth {
		r.reportGrowth()
	}
	if rules.ReportOutlook {
		d.Outlook = r.outlook()
	}
	next.MemorySamples = last.MemorySamples.with(s, rules, r.growth)
	return d, next
}

// taken returns the time of a signal's observation, which must be known, on the agent's monotonic clock.
func (r *round) taken(sig snapshot.Signal) time.Time { return r.next.Signals[sig].Taken }

// outdated reports whether a signal's observation, which must be known, is from before the last release, whose effect
// it does not show.
func (r *round) outdated(sig snapshot.Signal) bool {
	return r.taken(sig).Before(r.snapshot.LastRelease)
}

// fresh reports whether a decision may use the observation of a signal: see rulesState.fresh.
func (r *round) fresh(sig snapshot.Signal) bool {
	return r.last.fresh(sig, r.snapshot.Signals[sig], r.taken(sig))
}

func (r *round) serveAll() {
	list := needs(r.snapshot, r.rules.Thresholds, r.next.Thresholds, r.outdated)
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

// postpone leaves a need to the next round, which observes the effect of the need that is served in this one.
func (r *round) postpone(n *need) {
	nd := NeedDecision{Signal: n.signal, Hard: n.hard, Amount: n.amount, Outcome: AwaitOther}
	r.keepWhileWaiting(n, &nd)
	r.decision.Needs = append(r.decision.Needs, nd)
}

// awaitRelease requests the next round for a need that is covered by what is in flight. If what is certain to come free
// covers it, that round is due after the time that a kill takes, otherwise after pollUrgent.
func (r *round) awaitRelease(nd *NeedDecision) {
	switch {
	case !nd.Hard:
	case nd.Certain >= nd.Amount:
		r.syncAfter(max(pollUrgent, r.rules.Timing.KillTime))
	default:
		r.syncAfter(pollUrgent)
	}
}

// schedule requests an earlier round where a decision may change by the passing of time alone. The ends of kills and
// reclaims cause rounds by themselves, so that only hard needs are polled.
func (r *round) schedule() {
	for i := range r.next.Conditions {
		if c := &r.next.Conditions[i]; c.True && c.LastMet.Before(r.snapshot.Taken) {
			r.syncAfter(c.LastMet.Add(r.rules.PressureTransitionPeriod).Sub(r.snapshot.Taken))
		}
	}
	for i := range r.next.Thresholds {
		if t := &r.next.Thresholds[i]; t.Status == met && !t.Active {
			r.syncAfter(t.remaining(&r.rules.Thresholds[i]))
		}
	}
	settling := len(r.snapshot.InFlight) > 0 || r.snapshot.Taken.Sub(r.snapshot.LastRelease) < r.rules.Timing.Patience
	for i := range r.decision.Needs {
		switch nd := &r.decision.Needs[i]; nd.Outcome {
		case AwaitOther, AwaitTurn:
			if nd.Hard {
				r.syncAfter(pollUrgent)
			}
		case AwaitRelease:
			r.awaitRelease(nd)
		case AwaitStats:
			if nd.Hard && settling {
				r.syncAfter(pollUrgent)
			}
		case ReclaimNode:
			// The end of the reclaim causes a round, unless it hangs.
			r.syncAfter(r.rules.Timing.Patience)
		default: // The end of the eviction causes a round.
		}
	}
}
