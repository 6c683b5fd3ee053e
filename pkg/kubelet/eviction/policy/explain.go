package policy

import (
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Explanation is what a decision was based on and does not contain: the states of the thresholds and the rankings of
// the pods. It is for people.
type Explanation struct {
	// Thresholds are in the order of the rules, those in dry run last.
	Thresholds []ThresholdExplanation
	// Rankings has one entry for each resource with a threshold: first those of the needs of the decision, in their order,
	// then the others, whose thresholds are not met. Those of the rules in dry run follow in the same way.
	Rankings []Ranking
}

// ThresholdExplanation is the state of a threshold after a snapshot.
type ThresholdExplanation struct {
	Threshold
	// Known is false if the signal is unknown. Then Amount and Target are 0.
	Known bool
	// The threshold is met while less than Amount is available. One that was active is resolved once Target is available.
	// Both are in the unit of the signal.
	Amount, Target int64
	// Met is true while the threshold is met; Active if its grace period has passed too, so that pods may be evicted for
	// it.
	Met, Active bool
	// GracePeriodElapsed is how much of the grace period has passed, NotMetFor how long the threshold has not been met.
	GracePeriodElapsed, NotMetFor time.Duration
	// UnknownSince is the time since when the signal is unknown, on the monotonic clock; zero while it is known.
	UnknownSince time.Time
}

// Ranking is the order in which pods are evicted for one resource.
type Ranking struct {
	// Signal is that of the need, or the first one with a threshold on the resource.
	Signal snapshot.Signal
	// Hard is true for hard thresholds, DryRun for those in dry run.
	Hard, DryRun bool
	// Needed is false if no threshold is met: the ranking is that of a need that could begin now.
	Needed bool
	// Candidates are the pods that may be evicted, the next victim first. Critical pods, pods whose termination the need
	// waits for, and pods that opted out of a soft threshold are not among them.
	Candidates []Candidate
}

// Candidate is a pod that may be evicted. Amounts are in the unit of the signal.
type Candidate struct {
	Pod *snapshot.Pod
	// Usage is valid only if Known is true.
	Usage, Request int64
	Known          bool
	// Growth is the growth of memory usage in bytes per second, at least 0; 0 for other resources and if it is unknown.
	Growth float64
	// Preference is the effective value of the annotation.
	Preference int32
	// AboveRequest: the pod uses more than its request or, of PIDs, far more than an equal share.
	AboveRequest bool
	// Terminating: the pod is terminating already; its eviction would shorten its grace period.
	Terminating bool
	// OptedOut: the pod asks not to be evicted for this resource, and is granted that.
	OptedOut bool
	// Reason is the first criterion of the ranking that distinguishes the pod from the one before it; for the first pod,
	// from the one after it.
	Reason Criterion
}

// Criterion is a criterion by which candidates are ranked; see rank.
type Criterion string

// The criteria, in their order.
const (
	// ByTermination: pods that are already terminating come first.
	ByTermination Criterion = "Terminating"
	// ByRequest: then pods above their requests.
	ByRequest Criterion = "AboveRequest"
	// ByPriority: then pods of lower priority.
	ByPriority Criterion = "Priority"
	// ByKnownUsage: then pods whose usage is known.
	ByKnownUsage Criterion = "KnownUsage"
	// ByPreference: then pods with the greater preference.
	ByPreference Criterion = "Preference"
	// ByUsage: then pods that use more above their request.
	ByUsage Criterion = "Usage"
	// ByUID: then the UID decides.
	ByUID Criterion = "UID"
	// OnlyCandidate: there is no other candidate.
	OnlyCandidate Criterion = "OnlyCandidate"
)

// Explain returns the explanation of the decision that Decide makes from the same arguments. A snapshot without all
// pods (Calm) has rankings without them.
func Explain(s *snapshot.Snapshot, rules *Rules, state State) Explanation {
	var e Explanation
	enforced, dryRun := rules.split()
	e.add(s, enforced, &state.Enforced)
	if dryRun != nil {
		last := state.DryRun
		if last == nil {
			last = &rulesState{}
		}
		e.add(s, dryRun, last)
	}
	return e
}

func (e *Explanation) add(s *snapshot.Snapshot, rules *Rules, last *rulesState) {
	next := *last
	next.Thresholds = last.thresholdsAfter(s, rules.Thresholds)
	for sig := range next.Signals {
		next.Signals[sig] = last.Signals[sig].observe(&s.Signals[sig], s)
	}
	r := &round{snapshot: s, rules: rules, next: &next, last: last, decision: &Decision{}}
	if rules.LocalStorageLimits {
		r.decision.Victims = localStorageVictims(s, rules.Timing)
	}
	for i := range next.Thresholds {
		e.Thresholds = append(e.Thresholds, r.explainThreshold(i))
	}
	list := needs(s, rules.Thresholds, next.Thresholds, r.outdated)
	for i := range list {
		e.Rankings = append(e.Rankings, r.ranking(&list[i], true))
	}
	for _, n := range r.possibleNeeds(list) {
		e.Rankings = append(e.Rankings, r.ranking(&n, false))
	}
}

func (r *round) explainThreshold(i int) ThresholdExplanation {
	t, state := &r.rules.Thresholds[i], &r.next.Thresholds[i]
	o := &r.snapshot.Signals[t.Signal]
	x := ThresholdExplanation{
		Threshold: *t, Known: o.Known(), Met: state.Status == met, Active: state.acts(),
		GracePeriodElapsed: state.GracePeriodElapsed, NotMetFor: state.NotMetFor, UnknownSince: state.UnknownSince,
	}
	if o.Known() {
		x.Amount, x.Target = t.floor(o.Capacity), t.target(o.Capacity)
	}
	return x
}

// possibleNeeds returns a need for each group that has a threshold and none of the given needs: a hard one if there is
// a hard threshold.
func (r *round) possibleNeeds(list []need) []need {
	var taken [numGroups]bool
	for i := range list {
		taken[list[i].group] = true
	}
	var possible []need
	for _, hard := range []bool{true, false} {
		for i := range r.rules.Thresholds {
			t := &r.rules.Thresholds[i]
			g, ok := groupOf(t.Signal, r.snapshot.Layout)
			if !ok || taken[g] || t.Hard() != hard || !r.snapshot.Signals[t.Signal].Known() {
				continue
			}
			taken[g] = true
			possible = append(possible, needOf(i, g, t, r.snapshot))
		}
	}
	return possible
}

func (r *round) ranking(n *need, needed bool) Ranking {
	p := r.pendingFor(n)
	list := r.applyAnnotations(n, candidates(n, r.snapshot, &p, r.growthOf(n)), &NeedDecision{})
	k := Ranking{Signal: n.signal, Hard: n.hard, DryRun: r.rules.dryRun, Needed: needed}
	k.Candidates = make([]Candidate, len(list))
	for i := range list {
		c := &list[i]
		k.Candidates[i] = Candidate{
			Pod: c.pod, Usage: c.usage, Request: c.request, Known: c.known, Growth: c.growth.steady(),
			Preference: c.preference, AboveRequest: c.first, Terminating: c.hasten, OptedOut: c.optedOut,
			Reason: reasonOf(list, i),
		}
	}
	return k
}

// reasonOf returns why the candidate has its place.
func reasonOf(list []candidate, i int) Criterion {
	switch {
	case len(list) == 1:
		return OnlyCandidate
	case i == 0:
		return difference(&list[0], &list[1])
	}
	return difference(&list[i-1], &list[i])
}

// difference returns the first criterion of rank by which two candidates differ.
func difference(a, b *candidate) Criterion {
	switch {
	case a.hasten != b.hasten:
		return ByTermination
	case a.first != b.first:
		return ByRequest
	case a.priority != b.priority:
		return ByPriority
	case a.known != b.known:
		return ByKnownUsage
	case a.preference != b.preference:
		return ByPreference
	case a.usage-a.request != b.usage-b.request:
		return ByUsage
	}
	return ByUID
}

// EvictionPreference returns the value of PreferenceAnnotation, 0 if it is absent or invalid, and the resources that
// OptOutAnnotation lists, none if it is absent or invalid. Decisions use nothing else of annotations.
func EvictionPreference(annotations map[string]string) (preference int, optOut []string) {
	preference, err := preferenceOf(annotations)
	if err != nil {
		preference = 0
	}
	if _, err := optOutOf(annotations); err == nil {
		optOut = optOutWords(annotations[OptOutAnnotation])
	}
	return preference, optOut
}
