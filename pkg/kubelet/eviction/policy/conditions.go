package policy

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// ConditionTypes are the node conditions that are decided here, in the order in which they are listed.
var ConditionTypes = [...]v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure, v1.NodePIDPressure}

// Condition is one node condition. It is never Unknown: that would lift the taint while the disk is full.
type Condition struct {
	Type v1.NodeConditionType
	True bool
	// HardMet: a hard threshold of it is met at this moment, so that the condition does not merely linger.
	HardMet bool
	// Restored: it was taken over from the Node, and not all of its signals were seen since. Nobody knows whether a hard
	// threshold is met.
	Restored bool
	// Since is when it became what it is; zero when that was before the agent started.
	Since time.Time
	// Blind lists its signals that cannot be seen, in order, and BlindSince when the first of them was lost.
	Blind      []snapshot.Signal
	BlindSince time.Time
}

// Equal reports whether two conditions are the same in everything.
func (c Condition) Equal(o Condition) bool {
	return c.Type == o.Type && c.True == o.True && c.HardMet == o.HardMet && c.Restored == o.Restored &&
		c.Since.Equal(o.Since) && c.BlindSince.Equal(o.BlindSince) && slices.Equal(c.Blind, o.Blind)
}

// conditionState is the state of a condition.
type conditionState struct {
	True bool `json:"true,omitempty"`
	// LastTransition is when it became what it is; zero if that was before the agent started.
	LastTransition time.Time `json:"lastTransition,omitzero"`
	// LastMet is when a threshold of it was last met; zero for never.
	LastMet time.Time `json:"lastMet,omitzero"`
	// Restored: it was taken over from the Node, and not each of its signals was observed since.
	Restored bool `json:"restored,omitempty"`
}

// conditionOf derives one condition and its state from the states of the thresholds.
func conditionOf(i int, state conditionState, thresholds []thresholdState, s *snapshot.Snapshot,
	period time.Duration) (Condition, conditionState) {
	c := Condition{Type: ConditionTypes[i]}
	pressing, unobserved := false, false
	for j := range thresholds {
		t := &thresholds[j]
		if t.Signal.Condition() != c.Type || (t.LastKnown == neverObserved && inodeless(t.Signal, s)) {
			continue
		}
		pressing = pressing || t.pressing()
		unobserved = unobserved || t.LastKnown == neverObserved
		c.HardMet = c.HardMet || (!t.Soft && t.Status == met)
		if t.Status == unknown {
			c.Blind = appendSignal(c.Blind, t.Signal)
			c.BlindSince = earlier(c.BlindSince, t.UnknownSince)
		}
	}
	state.Restored = state.Restored && unobserved
	if pressing || state.Restored {
		state.LastMet = s.Taken
	}
	now := pressing || state.Restored || (!state.LastMet.IsZero() && s.Taken.Sub(state.LastMet) < period)
	if now != state.True {
		state.True, state.LastTransition = now, s.Taken
	}
	c.True, c.Since, c.Restored = state.True, state.LastTransition, state.Restored
	return c, state
}

// inodeless tells, of a signal about inodes, that its file system tells its space and has no inodes to tell, as ZFS. To
// wait for them would hold a condition for ever.
func inodeless(sig snapshot.Signal, s *snapshot.Snapshot) bool {
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
