package policy

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// DryRun is what the rules in dry run would do. It is only reported, and has no effect on the rest of the decision,
// node conditions included.
type DryRun struct {
	Needs    []NeedDecision
	Victims  []Victim
	Reclaims []ReclaimRequest
}

// Reclaiming reports whether a node-level reclaim for the signal would begin.
func (d *DryRun) Reclaiming(signal snapshot.Signal) bool {
	return slices.ContainsFunc(d.Reclaims, func(q ReclaimRequest) bool { return q.Signal == signal })
}

// split divides the rules into those that are enforced and those in dry run; the latter are nil if there are none.
func (r *Rules) split() (enforced, dryRun *Rules) {
	isDry := func(t Threshold) bool { return t.DryRun }
	limits := r.LocalStorageLimits && r.LocalStorageDryRun
	if !limits && !slices.ContainsFunc(r.Thresholds, isDry) {
		return r, nil
	}
	e, d := *r, *r
	e.Thresholds = slices.DeleteFunc(slices.Clone(r.Thresholds), isDry)
	e.LocalStorageLimits = r.LocalStorageLimits && !limits
	d.Thresholds = slices.DeleteFunc(slices.Clone(r.Thresholds), func(t Threshold) bool { return !t.DryRun })
	d.LocalStorageLimits, d.ReportMemoryGrowth, d.ReportOutlook = limits, false, false
	d.dryRun = true
	return &e, &d
}

// decideDryRun makes a decision as if there were only the rules in dry run. Since it is not carried out, successive
// decisions are the same for as long as the need lasts.
func decideDryRun(s *snapshot.Snapshot, dryRun *Rules, last *rulesState) (DryRun, *rulesState) {
	if dryRun == nil {
		return DryRun{}, nil
	}
	if last == nil {
		last = &rulesState{}
	}
	d, next := decide(s, dryRun, last)
	return DryRun{Needs: d.Needs, Victims: d.Victims, Reclaims: d.Reclaims}, &next
}
