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
	// Restored: it was taken over from the Node, and not all of its signals were seen since. Nobody knows whether a hard threshold is
	// met.
	Restored bool
	// Since is when it became what it is; zero when that was before the agent started.
	Since time.Time
	// Blind lists its signals that cannot be seen, in order, and BlindSince when the first of them was lost.
	Blind      []snapshot.Signal
	BlindSince time.Time
}

// Equal reports whether two conditions are the same in everything.
func (c Condition) Equal(o Condition) bool {
	return c.Type == o.Type && c.True == o.True && c.HardMet == o.HardMet && c.Restored == o.Restored && c.Since.Equal(o.Since) &&
		c.BlindSince.Equal(o.BlindSince) && slices.Equal(c.Blind, o.Blind)
}

// conditionMemory is what is remembered of a condition.
type conditionMemory struct {
	holds bool
	since time.Time
	// lastMet is when a threshold of it was last met; zero means never.
	lastMet time.Time
	// restored: taken over from the Node and none of it was confirmed yet by a look at each of its signals.
	restored bool
}

// conditionOf derives one condition and what to remember of it from the clocks.
func conditionOf(i int, mem conditionMemory, clocks []clock, s *snapshot.Snapshot, period time.Duration) (Condition, conditionMemory) {
	c := Condition{Type: ConditionTypes[i]}
	pressing, unseen := false, false
	for j := range clocks {
		k := &clocks[j]
		if k.signal.Condition() != c.Type || (k.known == neverSeen && inodeless(k.signal, s)) {
			continue
		}
		pressing = pressing || k.pressing()
		unseen = unseen || k.known == neverSeen
		c.HardMet = c.HardMet || (!k.soft && k.state == met)
		if k.state == blind {
			c.Blind = appendSignal(c.Blind, k.signal)
			c.BlindSince = earlier(c.BlindSince, k.blindSince)
		}
	}
	mem.restored = mem.restored && unseen
	if pressing || mem.restored {
		mem.lastMet = s.Taken
	}
	now := pressing || mem.restored || (!mem.lastMet.IsZero() && s.Taken.Sub(mem.lastMet) < period)
	if now != mem.holds {
		mem.holds, mem.since = now, s.Taken
	}
	c.True, c.Since, c.Restored = mem.holds, mem.since, mem.restored
	return c, mem
}

// inodeless tells, of a signal about inodes, that its file system tells its space and has no inodes to tell, as ZFS. To wait for
// them would hold a condition for ever.
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
