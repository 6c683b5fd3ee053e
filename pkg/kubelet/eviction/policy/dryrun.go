package policy

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// DryRun is what the thresholds in dry run would do, and limits of pods in dry run. Nothing of it is carried out, and
// it has no influence on anything else in the decision: neither on conditions, nor on what is done for other
// thresholds.
type DryRun struct {
	Starved  []Starved
	Victims  []Victim
	Reclaims []ReclaimRequest
}

// Reclaiming reports whether a node-level reclaim for the signal would begin.
func (d *DryRun) Reclaiming(signal snapshot.Signal) bool {
	return slices.ContainsFunc(d.Reclaims, func(q ReclaimRequest) bool { return q.Signal == signal })
}

// split divides rules into those that are enforced and those in dry run, which are nil if there are none.
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
	d.LocalStorageLimits = limits
	d.dryRun = true
	return &e, &d
}

// decideDryRun decides as if there were only the rules in dry run, from a state of their own. Since nothing is carried
// out, each decision finds the same as the one before for as long as the need lasts.
func decideDryRun(s *snapshot.Snapshot, dryRun *Rules, last *rulesState) (DryRun, *rulesState) {
	if dryRun == nil {
		return DryRun{}, nil
	}
	if last == nil {
		last = &rulesState{}
	}
	d, next := decide(s, dryRun, last)
	return DryRun{Starved: d.Starved, Victims: d.Victims, Reclaims: d.Reclaims}, &next
}
