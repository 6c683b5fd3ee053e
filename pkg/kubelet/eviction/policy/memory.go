package policy

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Memory is what one decision hands to the next. The zero value is that of an agent that has just started. It is a value:
// Decide returns a new one and leaves the old as it was.
type Memory struct {
	clocks     []clock
	conditions [len(ConditionTypes)]conditionMemory
	signals    [snapshot.NumSignals]signalMemory
	// judged is what last became of the question which pod has to go, to which a need of the group comes after all else was tried.
	judged [numGroups]judgement
	// acting is since when thresholds of the group may act without a break; zero when none does.
	acting [numGroups]time.Time
	past   history
	// sparing is how long pods that opted out have been passed over.
	sparing [numGroups]sparing
	// rehearsal is the memory of thresholds in dry run, nil when there are none.
	rehearsal *Memory
}

// judgement is an answer to that question.
type judgement struct {
	// at is when it was asked; zero for never.
	at time.Time
	// nobody: there was no pod that may go, so that all that is left is to try again what the node itself can give.
	nobody bool
	// silent: the container runtime was silent.
	silent bool
}

// signalMemory remembers how new the figures of a signal were.
type signalMemory struct {
	// seen is the time of the newest figures that were looked at.
	seen time.Time
	// unused: those figures were new, and nothing was begun because of them only since something else was in flight.
	unused bool
}

// WithConditions is the memory of an agent that takes over conditions which are True on the Node at start. They hold for the
// transition period, and until every signal behind them was seen once.
func (m Memory) WithConditions(conditions []v1.NodeConditionType, now time.Time) Memory {
	for i, t := range ConditionTypes {
		if slices.Contains(conditions, t) {
			m.conditions[i] = conditionMemory{holds: true, lastMet: now, restored: true}
		}
	}
	return m
}

// clocksFor are the clocks after a look, one per threshold, found again by signal and kind when the thresholds have changed.
func (m *Memory) clocksFor(s *snapshot.Snapshot, thresholds []Threshold) []clock {
	clocks := make([]clock, len(thresholds))
	for i := range thresholds {
		t := &thresholds[i]
		clocks[i] = m.clockOf(i, t).step(t, s.Signals[t.Signal], s.Taken)
	}
	return clocks
}

func (m *Memory) clockOf(i int, t *Threshold) clock {
	same := func(c clock) bool { return c.signal == t.Signal && c.soft == t.Soft }
	if i < len(m.clocks) && same(m.clocks[i]) {
		return m.clocks[i]
	}
	if j := slices.IndexFunc(m.clocks, same); j >= 0 {
		return m.clocks[j]
	}
	return newClock(t)
}

// fresh tells whether the figures of a signal are newer than those of the last look, or were not used then.
func (m *Memory) fresh(sig snapshot.Signal, o snapshot.Observation) bool {
	last := m.signals[sig]
	return last.unused || o.At.IsZero() || last.seen.IsZero() || o.At.After(last.seen)
}
