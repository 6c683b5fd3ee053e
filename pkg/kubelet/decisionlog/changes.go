package decisionlog

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// heartbeat is the time between two records while nothing changes.
	heartbeat = time.Minute
	// movedShare: an amount that has moved by this fraction (a hundredth) of the capacity since the last record is a
	// change, and is recorded once in movedPause.
	movedShare = 100
	movedPause = time.Second
)

// changes decides which rounds are kept. One belongs to the goroutine that decides, another one to that of the sink,
// which compares a round with the last one that was recorded.
type changes struct {
	// kept is when a round was last kept, on the monotonic clock; zero before the first. signals are its observations.
	kept    time.Time
	signals [snapshot.NumSignals]snapshot.Observation
	// needs and dryRun are what was last decided about needs; requests is how many pods plugins requested, inFlight how
	// many evictions were in flight.
	needs, dryRun      []needOutcome
	requests, inFlight int
	silent             bool
	// due: the round of the snapshot that was taken at asked is kept. Rounds that have all pods in any case are made
	// without asking.
	due   bool
	asked time.Time
}

type needOutcome struct {
	signal  snapshot.Signal
	hard    bool
	outcome policy.Outcome
}

// snapshotDue reports whether the round of this snapshot is kept whatever is decided.
func (c *changes) snapshotDue(s *snapshot.Snapshot) bool {
	since := s.Taken.Sub(c.kept)
	c.asked = s.Taken
	c.due = c.kept.IsZero() || since >= heartbeat || (since >= movedPause && c.moved(s))
	return c.due
}

// moved reports whether an amount has moved far, or has become known or unknown.
func (c *changes) moved(s *snapshot.Snapshot) bool {
	for i := range s.Signals {
		now, before := &s.Signals[i], &c.signals[i]
		if now.Known() != before.Known() {
			return true
		}
		if !now.Known() {
			continue
		}
		distance := now.Available - before.Available
		if max(distance, -distance) > now.Capacity/movedShare || now.Capacity != before.Capacity {
			return true
		}
	}
	return false
}

// keeps reports whether a round is kept, and remembers what the next one is compared with.
func (c *changes) keeps(r *eviction.Round) bool {
	d := &r.Decision
	if !c.asked.Equal(r.Snapshot.Taken) {
		c.snapshotDue(r.Snapshot)
	}
	if !c.due && !acts(d) && !c.changed(r) {
		return false
	}
	c.remember(r)
	return true
}

// remember has the next rounds compared with this one.
func (c *changes) remember(r *eviction.Round) {
	d := &r.Decision
	c.kept, c.signals = r.Snapshot.Taken, r.Snapshot.Signals
	c.needs, c.dryRun = outcomes(c.needs[:0], d.Needs), outcomes(c.dryRun[:0], d.DryRun.Needs)
	c.requests, c.inFlight, c.silent = len(r.Snapshot.Requests), len(r.Snapshot.InFlight), r.Snapshot.RuntimeSilent
}

// acts reports whether a decision begins something, or ends it.
func acts(d *policy.Decision) bool {
	return len(d.Victims) > 0 || len(d.Reclaims) > 0 || len(d.Withdrawn) > 0
}

func (c *changes) changed(r *eviction.Round) bool {
	d := &r.Decision
	return len(r.Snapshot.Requests) != c.requests || len(r.Snapshot.InFlight) != c.inFlight ||
		r.Snapshot.RuntimeSilent != c.silent || differ(c.needs, d.Needs) || differ(c.dryRun, d.DryRun.Needs) ||
		conditionsChanged(r)
}

func differ(before []needOutcome, now []policy.NeedDecision) bool {
	return !slices.EqualFunc(before, now, func(o needOutcome, n policy.NeedDecision) bool { return o == outcomeOf(&n) })
}

func outcomes(list []needOutcome, needs []policy.NeedDecision) []needOutcome {
	for i := range needs {
		list = append(list, outcomeOf(&needs[i]))
	}
	return list
}

func outcomeOf(n *policy.NeedDecision) needOutcome {
	return needOutcome{signal: n.Signal, hard: n.Hard, outcome: n.Outcome}
}

func conditionsChanged(r *eviction.Round) bool {
	for i := range r.Decision.Conditions {
		now, j := &r.Decision.Conditions[i], 0
		for j < len(r.Before) && r.Before[j].Type != now.Type {
			j++
		}
		if j == len(r.Before) || !now.Equal(r.Before[j]) {
			return true
		}
	}
	return false
}
