package policy

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// DryRun is what the thresholds in dry run would do, and limits of pods in dry run. Nothing of it is carried out, and it has no
// influence on anything else in the decision: neither on conditions, nor on what is done for other thresholds.
type DryRun struct {
	Starved  []Starved
	Victims  []Victim
	Reclaims []ReclaimRequest
}

// Reclaiming reports whether a node-level reclaim for the signal would begin.
func (d *DryRun) Reclaiming(signal snapshot.Signal) bool {
	return slices.ContainsFunc(d.Reclaims, func(q ReclaimRequest) bool { return q.Signal == signal })
}

// rehearsed splits rules in two: those that hold, and those that are only rehearsed, which is nil when there is nothing of the kind.
func (r *Rules) rehearsed() (holding, dry *Rules) {
	isDry := func(t Threshold) bool { return t.DryRun }
	limits := r.LocalStorageLimits && r.LocalStorageDryRun
	if !limits && !slices.ContainsFunc(r.Thresholds, isDry) {
		return r, nil
	}
	h, d := *r, *r
	h.Thresholds = slices.DeleteFunc(slices.Clone(r.Thresholds), isDry)
	h.LocalStorageLimits = r.LocalStorageLimits && !limits
	d.Thresholds = slices.DeleteFunc(slices.Clone(r.Thresholds), func(t Threshold) bool { return !t.DryRun })
	d.LocalStorageLimits = limits
	d.rehearsal = true
	return &h, &d
}

// rehearse decides as if the thresholds in dry run were all there is, with a memory of its own. Since nothing is carried out, the
// same is found again with each look for as long as the need lasts.
func rehearse(s *snapshot.Snapshot, dry *Rules, m *Memory) (DryRun, *Memory) {
	if dry == nil {
		return DryRun{}, nil
	}
	if m == nil {
		m = &Memory{}
	}
	d, next := decide(s, dry, *m)
	return DryRun{Starved: d.Starved, Victims: d.Victims, Reclaims: d.Reclaims}, &next
}
