package policy

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// ConditionTypes are the types of node conditions that Decide derives, in the order in which they are listed.
var ConditionTypes = [...]v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure, v1.NodePIDPressure}

// Condition is a node condition. It is never Unknown: the taint would be removed while, for example, the disk is full.
type Condition struct {
	Type v1.NodeConditionType
	True bool
	// HardMet: a hard threshold of the condition is met, or was met when its signal was last known. Otherwise a condition
	// that is True only lasts for its transition period, or because of a soft threshold.
	HardMet bool
	// Restored: the condition was taken over from the Node at the start of the agent, and not each of its signals has been
	// observed since, so that it is unknown whether a hard threshold is met.
	Restored bool
	// Since is the time of the last transition; zero if that was before the agent started.
	Since time.Time
	// UnknownSignals lists the signals of the condition that are unknown, in order. UnknownSince is when the first of them
	// became unknown, zero if all are known.
	UnknownSignals []snapshot.Signal
	UnknownSince   time.Time
}

// Equal reports whether two conditions are equal in all fields.
func (c Condition) Equal(o Condition) bool {
	return c.Type == o.Type && c.True == o.True && c.HardMet == o.HardMet && c.Restored == o.Restored &&
		c.Since.Equal(o.Since) && c.UnknownSince.Equal(o.UnknownSince) && slices.Equal(c.UnknownSignals, o.UnknownSignals)
}

// conditionState is the state of a condition.
type conditionState struct {
	True bool `json:"true,omitempty"`
	// LastTransition is the time of the last transition; zero if that was before the agent started.
	LastTransition time.Time `json:"lastTransition,omitzero"`
	// LastMet is when a threshold of the condition was last met; zero for never.
	LastMet time.Time `json:"lastMet,omitzero"`
	// Restored: it was taken over from the Node, and not each of its signals has been observed since.
	Restored bool `json:"restored,omitempty"`
}

// conditionOf derives the condition with index i, and its next state, from the states of the thresholds.
func conditionOf(i int, state conditionState, thresholds []thresholdState, s *snapshot.Snapshot,
	period time.Duration) (Condition, conditionState) {
	c := Condition{Type: ConditionTypes[i]}
	pressure, unobserved := false, false
	for j := range thresholds {
		t := &thresholds[j]
		if t.Signal.Condition() != c.Type || (t.LastKnown == neverObserved && hasNoInodes(t.Signal, s)) {
			continue
		}
		pressure = pressure || t.indicatesPressure()
		unobserved = unobserved || t.LastKnown == neverObserved
		c.HardMet = c.HardMet || (!t.Soft && t.indicatesPressure())
		if t.Status == unknown {
			c.UnknownSignals = appendSignal(c.UnknownSignals, t.Signal)
			c.UnknownSince = earlier(c.UnknownSince, t.UnknownSince)
		}
	}
	state.Restored = state.Restored && unobserved
	if pressure || state.Restored {
		state.LastMet = s.Taken
	}
	now := pressure || state.Restored || (!state.LastMet.IsZero() && s.Taken.Sub(state.LastMet) < period)
	if now != state.True {
		state.True, state.LastTransition = now, s.Taken
	}
	c.True, c.Since, c.Restored = state.True, state.LastTransition, state.Restored
	return c, state
}

// hasNoInodes reports whether a signal about inodes is not reported while the space of its file system is, as on ZFS.
// Waiting for such a signal would keep a restored condition True for ever.
func hasNoInodes(sig snapshot.Signal, s *snapshot.Snapshot) bool {
	space, ok := map[snapshot.Signal]snapshot.Signal{
		snapshot.NodeFsInodesFree:      snapshot.NodeFsAvailable,
		snapshot.ImageFsInodesFree:     snapshot.ImageFsAvailable,
		snapshot.ContainerFsInodesFree: snapshot.ContainerFsAvailable,
	}[sig]
	return ok && s.Signals[space].Known() && errors.Is(s.Signals[sig].Err, snapshot.ErrNotReported)
}

func appendSignal(list []snapshot.Signal, s snapshot.Signal) []snapshot.Signal {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
