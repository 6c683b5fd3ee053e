package policy

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// State is what one decision passes on to the next. The zero value is the state at the start of the agent. Decide
// returns a new State and leaves the old one unchanged; it can be encoded and decoded again without loss.
type State struct {
	// Number is that of the last decision, zero before the first.
	Number uint64 `json:"number,omitempty"`
	// Enforced is the state of the rules that are enforced.
	Enforced rulesState `json:"enforced,omitzero"`
	// DryRun is the state of the rules in dry run, nil if there are none.
	DryRun *rulesState `json:"dryRun,omitempty"`
}

// rulesState is the state of one set of rules. The values that its pointers and slices refer to are never modified.
type rulesState struct {
	// Thresholds are in the order of the rules.
	Thresholds []thresholdState `json:"thresholds,omitzero"`
	Conditions conditionStates  `json:"conditions,omitzero"`
	Signals    signalStates     `json:"signals,omitzero"`
	Needs      needStates       `json:"needs,omitzero"`
	// MemorySamples are samples of memory usage.
	MemorySamples history `json:"memorySamples,omitzero"`
}

// Lists with a fixed length are encoded as objects, so that each element has a name.
type (
	// conditionStates are in the order of ConditionTypes.
	conditionStates [len(ConditionTypes)]conditionState
	// signalStates are indexed by signal.
	signalStates [snapshot.NumSignals]signalState
	// needStates are indexed by group.
	needStates [numGroups]needState
)

// needState is the state of what is served by the evictions of one group.
type needState struct {
	// ActingSince is the time since when thresholds of the group may act without interruption; zero while none may.
	ActingSince time.Time `json:"actingSince,omitzero"`
	// LastEviction is when a pod was last evicted for the group, except for pods above their requests that were evicted
	// while all chosen pods awaited their turn; zero for never.
	LastEviction time.Time `json:"lastEviction,omitzero"`
	// LastSelection is the last attempt to select victims. It comes after node-level reclaim.
	LastSelection selection `json:"lastSelection,omitzero"`
	// OptOut records for how long pods that opted out have been passed over.
	OptOut optOutState `json:"optOut,omitzero"`
}

// selection is an attempt to select victims.
type selection struct {
	// Time is when it was made; zero for never.
	Time time.Time `json:"time,omitzero"`
	// NoCandidate: no pod could be evicted, so that only node-level reclaim is left.
	NoCandidate bool `json:"noCandidate,omitempty"`
	// RuntimeSilent: the container runtime was silent.
	RuntimeSilent bool `json:"runtimeSilent,omitempty"`
}

// signalState is the state of the newest observation of a signal. Its source may date it by the time of day, which
// can be set at any time. So the date is compared with the agent's time of day once, when the observation is first
// seen; the age that results gives its time on the monotonic clock, which is compared with all other times.
type signalState struct {
	// Date is the date by the source.
	Date time.Time `json:"date,omitzero"`
	// Taken is when it was true, on the monotonic clock; FirstSeen is the time of the first snapshot that had it.
	Taken     time.Time `json:"taken,omitzero"`
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	// Newest is the latest Taken of all observations of the signal.
	Newest time.Time `json:"newest,omitzero"`
	// Unused: the observation was new, and was not used only because the need was waiting for something else.
	Unused bool `json:"unused,omitempty"`
}

// maxObservationAge is the greatest age of an observation that is used to date it. Sources measure about every ten
// seconds; a greater or a negative age means that a clock was set.
const maxObservationAge = 30 * time.Second

// observe returns the state after a snapshot with this observation of the signal.
func (st signalState) observe(o *snapshot.Observation, s *snapshot.Snapshot) signalState {
	st.Unused = false
	if !o.Known() || st.has(o) {
		return st
	}
	st.Taken = st.takenAt(o.At, s)
	st.Date, st.FirstSeen, st.Newest = o.At, s.Taken, latest(st.Newest, st.Taken)
	return st
}

// has reports whether the observation is the same as in the last snapshot that had one. An observation without a date
// is always a new one.
func (st *signalState) has(o *snapshot.Observation) bool {
	return !o.At.IsZero() && o.At.Equal(st.Date)
}

// takenAt returns when a new observation was true, on the monotonic clock. If its date cannot be used, that is the time
// at which the previous observation was first seen: the source made the new one later than that.
func (st *signalState) takenAt(date time.Time, s *snapshot.Snapshot) time.Time {
	age := s.WallTime.Sub(date)
	switch {
	case date.IsZero():
		return s.Taken
	case age >= 0 && age <= maxObservationAge:
		return s.Taken.Add(-age)
	case st.FirstSeen.IsZero():
		return s.Taken
	}
	return st.FirstSeen
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// WithConditions returns the state of an agent that starts with conditions which are True on the Node. They stay True
// for the transition period, and until each of their signals has been observed.
func (s State) WithConditions(conditions []v1.NodeConditionType, now time.Time) State {
	for i, t := range ConditionTypes {
		if slices.Contains(conditions, t) {
			s.Enforced.Conditions[i] = conditionState{True: true, LastMet: now, Restored: true}
		}
	}
	return s
}

// WithoutMemorySamples returns the state of an agent that counts memory in another way from now on: the difference to
// what was counted before is no growth.
func (s State) WithoutMemorySamples() State {
	s.Enforced.MemorySamples = history{}
	if s.DryRun != nil {
		dryRun := *s.DryRun
		dryRun.MemorySamples = history{}
		s.DryRun = &dryRun
	}
	return s
}

// thresholdsAfter returns the states of the thresholds after a snapshot. When the rules have changed, states are
// assigned by signal and kind.
func (r *rulesState) thresholdsAfter(s *snapshot.Snapshot, thresholds []Threshold) []thresholdState {
	states := make([]thresholdState, len(thresholds))
	for i := range thresholds {
		t := &thresholds[i]
		states[i] = r.threshold(i, t).observe(t, s.Signals[t.Signal], s.Taken)
	}
	return states
}

// threshold returns the state of the threshold with index i.
func (r *rulesState) threshold(i int, t *Threshold) thresholdState {
	same := func(s thresholdState) bool { return s.Signal == t.Signal && s.Soft == t.Soft }
	if i < len(r.Thresholds) && same(r.Thresholds[i]) {
		return r.Thresholds[i]
	}
	if j := slices.IndexFunc(r.Thresholds, same); j >= 0 {
		return r.Thresholds[j]
	}
	return thresholdState{Signal: t.Signal, Soft: t.Soft}
}

// fresh reports whether an observation, which was true at taken, may be used: it is another one than that of the last
// snapshot and not older, or it was not used then. r is the state before this snapshot.
func (r *rulesState) fresh(sig snapshot.Signal, o snapshot.Observation, taken time.Time) bool {
	last := &r.Signals[sig]
	return last.Unused || !last.has(&o) && !taken.Before(last.Newest)
}
