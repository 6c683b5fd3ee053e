package simulate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Result compares what was decided with what would have been.
type Result struct {
	// Decisions were made again; Skipped could not be, since what they were made from is missing.
	Decisions int `json:"decisions"`
	Skipped   int `json:"skipped"`
	// From and To are the times of the first and the last decision.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Different are the recorded decisions that were not the same when they were made again from what was recorded, with
	// the recorded rules. There are none, unless another version of the program made the recording.
	Different []uint64 `json:"different,omitempty"`
	// Changed: the rules of the plan differ from the recorded ones.
	Changed bool `json:"changed"`
	// Recorded are the evictions of reality, Planned those of the plan, both in the order of time.
	Recorded []Eviction `json:"recorded"`
	Planned  []Eviction `json:"planned"`
	// ExhaustedAt is when pods that the plan spared had used up the memory, not set if they have not.
	ExhaustedAt time.Time `json:"exhaustedAt,omitzero"`
	// Signal is the signal of Course.
	Signal string  `json:"signal"`
	Course []Point `json:"course"`
}

// Eviction is an eviction.
type Eviction struct {
	Decision  uint64    `json:"decision"`
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Cause     string    `json:"cause"`
	Signal    string    `json:"signal,omitempty"`
	DryRun    bool      `json:"dryRun,omitempty"`
}

// Point is what was available at a time, and what would have been with the plan.
type Point struct {
	Time     time.Time `json:"time"`
	Recorded int64     `json:"recorded"`
	Planned  int64     `json:"planned"`
	// Threshold is the greatest amount of a threshold of the plan, 0 without one.
	Threshold int64 `json:"threshold,omitempty"`
}

// observe adds what a recorded decision did.
func (r *Result) observe(d *debugv1alpha1.PressureDecision) {
	if r.Decisions++; r.Decisions == 1 {
		r.From = d.Time
	}
	r.To = d.Time
	for i := range d.Victims {
		v := &d.Victims[i]
		if v.Hastened || (v.DryRun && !isFirst(r.Recorded, v.UID)) {
			continue
		}
		r.Recorded = append(r.Recorded, Eviction{
			Decision: d.Number, Time: d.Time, Namespace: v.Namespace, Name: v.Name, UID: v.UID, Cause: v.Cause,
			Signal: v.Signal, DryRun: v.DryRun,
		})
	}
}

// isFirst: decisions in dry run repeat what they would do.
func isFirst(list []Eviction, uid types.UID) bool {
	return !slices.ContainsFunc(list, func(e Eviction) bool { return e.UID == uid })
}

// add adds a decision of the plan.
func (r *Result) add(
	d *policy.Decision, seen *snapshot.Snapshot, sig snapshot.Signal, recorded *snapshot.Snapshot, rules *policy.Rules,
) {
	add := func(v *policy.Victim, dryRun bool) {
		if v.Hasten || (dryRun && !isFirst(r.Planned, v.Pod.UID)) {
			return
		}
		e := Eviction{
			Decision: d.Number, Time: d.WallTime, Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.Pod.UID,
			Cause: string(v.Cause.Kind), DryRun: dryRun,
		}
		if v.Cause.Signal != snapshot.NoSignal {
			e.Signal = v.Cause.Signal.String()
		}
		r.Planned = append(r.Planned, e)
	}
	for i := range d.Victims {
		add(&d.Victims[i], false)
	}
	for i := range d.DryRun.Victims {
		add(&d.DryRun.Victims[i], true)
	}
	if !recorded.Signals[sig].Known() {
		return
	}
	p := Point{Time: d.WallTime, Recorded: recorded.Signals[sig].Available, Planned: seen.Signals[sig].Available}
	for i := range rules.Thresholds {
		if t := &rules.Thresholds[i]; t.Signal == sig && !t.DryRun {
			p.Threshold = max(p.Threshold, t.Quantity(recorded.Signals[sig].Capacity).Value())
		}
	}
	r.Course = append(r.Course, p)
}

// Pair is a pod that was evicted in reality, by the plan, or by both.
type Pair struct {
	Recorded, Planned *Eviction
}

// Pairs returns the pods of both lists, in the order of the earlier of both evictions. Of a pod that would have been
// evicted, by a dry run, and was evicted later, it has the latter.
func (r *Result) Pairs() []Pair {
	recorded, planned := byPod(r.Recorded), byPod(r.Planned)
	var pairs []Pair
	for _, list := range [][]Eviction{r.Recorded, r.Planned} {
		for i := range list {
			uid := list[i].UID
			if p := (Pair{Recorded: recorded[uid], Planned: planned[uid]}); p != (Pair{}) {
				pairs = append(pairs, p)
				delete(recorded, uid)
				delete(planned, uid)
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b Pair) int { return a.time().Compare(b.time()) })
	return pairs
}

// byPod returns the first eviction of each pod; those in dry run come after others.
func byPod(list []Eviction) map[types.UID]*Eviction {
	first := map[types.UID]*Eviction{}
	for i := range list {
		e := &list[i]
		if have := first[e.UID]; have == nil || (have.DryRun && !e.DryRun) {
			first[e.UID] = e
		}
	}
	return first
}

func (p *Pair) time() time.Time {
	switch {
	case p.Recorded == nil:
		return p.Planned.Time
	case p.Planned == nil || p.Recorded.Time.Before(p.Planned.Time):
		return p.Recorded.Time
	}
	return p.Planned.Time
}

// Outcome says what the plan changes about the pod: Same (in the same decision), Earlier, Later, Spared, or Additional.
// An eviction in dry run is none beside one that is not.
func (p *Pair) Outcome() string {
	switch {
	case p.Recorded == nil, p.Planned != nil && p.Recorded.DryRun && !p.Planned.DryRun:
		return "Additional"
	case p.Planned == nil, p.Planned.DryRun && !p.Recorded.DryRun:
		return "Spared"
	case p.Planned.Time.Before(p.Recorded.Time):
		return "Earlier"
	case p.Planned.Time.After(p.Recorded.Time):
		return "Later"
	}
	return "Same"
}
