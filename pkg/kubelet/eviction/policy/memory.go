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
	// number is that of the last decision.
	number     uint64
	clocks     []clock
	conditions [len(ConditionTypes)]conditionMemory
	signals    [snapshot.NumSignals]signalMemory
	// judged is what last became of the question which pod has to go, to which a need of the group comes after all else was tried.
	judged [numGroups]judgement
	// evicted is when a pod was last evicted for a need of the group; zero for never.
	evicted [numGroups]time.Time
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

// signalMemory remembers the figures of a signal that were looked at last. Their source may date them by the time of
// day, which can be set at any time. So the date is compared with the agent's time of day once, at the first look at
// the figures; the age that results gives their time on the monotonic clock, which is compared with all other times.
type signalMemory struct {
	// at is their date by their source, taken their time on the monotonic clock, first when they were first looked at.
	at, taken, first time.Time
	// newest is the latest time at which figures were true that were looked at.
	newest time.Time
	// unused: those figures were new, and nothing was begun because of them only since something else was in flight.
	unused bool
}

// oldest is the greatest age of figures that is used. Sources measure about every ten seconds; a greater age, or a
// negative one, comes from a clock that was set.
const oldest = 30 * time.Second

// look is the memory after a look at figures.
func (m signalMemory) look(o *snapshot.Observation, now time.Time) signalMemory {
	m.unused = false
	if !o.Known() || m.has(o) {
		return m
	}
	m.taken = m.date(o.At, now)
	m.at, m.first, m.newest = o.At, now, latest(m.newest, m.taken)
	return m
}

// has reports whether the figures are the ones that were looked at last. Those without a date never are.
func (m *signalMemory) has(o *snapshot.Observation) bool { return !o.At.IsZero() && o.At.Equal(m.at) }

// date is when figures that were not seen before were true. Without a date that can be used they are as old as
// they can be: the source showed others before, and measured these after it had begun to show those.
func (m *signalMemory) date(at, now time.Time) time.Time {
	age := now.Sub(at)
	switch {
	case at.IsZero():
		return now
	case age >= 0 && age <= oldest:
		return now.Add(-age)
	case m.first.IsZero():
		return now
	}
	return m.first
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
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

// fresh reports whether the figures of a signal are others than those of the last look and no older, or were not used
// then. m is the memory of before the look at them, taken when they were true.
func (m *Memory) fresh(sig snapshot.Signal, o snapshot.Observation, taken time.Time) bool {
	last := &m.signals[sig]
	return last.unused || !last.has(&o) && !taken.Before(last.newest)
}
