package memorywatch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file says which crossings, and which changes while a hard threshold is met, are worth a reading.

// AddRates adds the rates of pods by the last look to a reading that was not taken for them.
func (w *Watcher) AddRates(r *snapshot.MemoryReading) {
	if w != nil && w.looks != nil && w.looks.fresh && r != nil {
		w.looks.measure(r, w.looks.explained())
	}
}

// Await makes the next read due for the round of a collection, whose reading shows a crossing: it is read even if the
// credit is used up after a false alarm.
func (w *Watcher) Await(r *snapshot.MemoryReading) {
	w.next, w.awaited, w.awaitedLeft = time.Time{}, true, w.remaining(leftByReading(r))
}

// RatesDecide reports whether the round of a collection waits for the next read although that need not show a crossing:
// while a hard threshold is met, the decision depends on which pod is growing, and that only looks show.
func (w *Watcher) RatesDecide() bool { return w.hardMet && w.looks != nil && w.Watches() }

// Freed reports whether memory was freed since that reading.
func (w *Watcher) Freed() bool { return w.remains-leastGrowth >= w.awaitedLeft }

// refused reports whether a crossing that the counters show is not read, unless a round waits for it.
func (w *Watcher) refused(left [2]int64) bool { return !w.awaited && w.canWait(left) }

// canWait reports whether too much was read for a crossing that matters less: it is of soft thresholds only, or a
// reading has refuted one before, and the counters hardly show less now. It is not read then; if a round waits for it,
// it is read at once. One for which the decision was postponed is read.
func (w *Watcher) canWait(left [2]int64) bool {
	if !w.exhausted() || w.postponed.begun() {
		return false
	}
	less := left[0] <= w.refuted[0]-leastGrowth || left[1] <= w.refuted[1]-leastGrowth
	return !w.meetsHard(left) || (w.falseAlarm && !less)
}

// refute records what the counters showed when a reading did not confirm it. It may have been true for a moment, and
// far below a threshold: it counts as no less than that without one PostponeShare-th, so that the next crossing is read
// before much is used up.
func (w *Watcher) refute(left [2]int64) {
	lowest := [2]int64{math.MaxInt64, math.MaxInt64}
	for i := range w.floors {
		f, scope := &w.floors[i], 0
		if f.signal != snapshot.MemoryAvailable {
			scope = 1
		}
		if w.distance(*f, left) < 0 {
			lowest[scope] = min(lowest[scope], f.amount-f.amount/PostponeShare)
		}
	}
	for i := range left {
		if w.refuted[i] = left[i]; lowest[i] < math.MaxInt64 {
			w.refuted[i] = max(left[i], lowest[i])
		}
	}
}

// exhausted reports whether so much was read that the next reading has to wait.
func (w *Watcher) exhausted() bool { return w.costs.owed(w.clock()) > Credit }

// decidesAnew reports whether another decision may be different, while a hard threshold is met by the last one: some
// time has passed, half of what remained is used up, no hard threshold is met any more, or another pod uses up the
// rest. A decision that is due, or for another pod, is put off, for endedWindow at most, where the next read follows at
// once: a pod has begun to grow, or may have become faster, and only that read says how fast.
func (w *Watcher) decidesAnew(left [2]int64) bool {
	now, remains := w.clock(), w.remaining(left)
	// Whatever is owed: half can be used up only a few times until all is.
	if w.halved(remains) {
		w.roundLeft = remains
		w.freedAt = earlier(w.freedAt, now.Add(-MetPause))
		return true
	}
	if remains > w.roundLeft && w.mayHalve(now, remains) {
		w.roundLeft = remains // Memory was freed, which may be used up again.
	}
	owed := w.costs.owed(now)
	w.reliefDue = (w.reliefDue || w.wasMet()) && !w.meetsHard(left)
	another := w.looks != nil && w.looks.growsAnew(remains, w.killTime, owed < approachCredit)
	due := !now.Before(w.roundAt.Add(MetPause)) && owed < approachCredit
	if !due && !another {
		w.putOffAt = time.Time{}
	} else if w.soon {
		w.putOffAt = cmp.Or(w.putOffAt, now)
		if now.Sub(w.putOffAt) < endedWindow {
			due, another = false, false
		}
	}
	if owed > Credit { // Then only what can be remembered.
		return another && owed+PauseShare*w.decisionCost(now) <= Debt
	}
	return due || w.reliefDue || another
}

// decisionCost returns what a reading for another decision may cost: one of all pods, unless what is known of them is
// recent and says who grows.
func (w *Watcher) decisionCost(now time.Time) time.Duration {
	if w.looks.stale(now) || !w.looks.explained() {
		return max(w.costs.decision, w.costs.all)
	}
	return w.costs.decision
}

// mayHalve reports whether memory that was freed counts when half of what remains is used up. Half of the rest may be
// freed and used up again and again: once the credit is used up, what is freed counts only within MetPause and before
// the next decision, once in the time in which debt is paid.
func (w *Watcher) mayHalve(now time.Time, remains int64) bool {
	if !w.exhausted() || now.Before(w.freedAt.Add(MetPause)) {
		return true
	}
	if now.Before(w.freedAt.Add(Debt)) || remains-w.roundLeft < leastGrowth {
		return false
	}
	w.freedAt = now
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// setRoundLeft records what remains at a round. While a hard threshold stays met, and the credit is used up, it is no
// more than before.
func (w *Watcher) setRoundLeft(met bool) {
	if met && w.exhausted() {
		w.roundLeft = min(w.roundLeft, w.remains)
		return
	}
	w.roundLeft = w.remains
}

// halved reports whether half of what remained at the last round, or since, is used up.
func (w *Watcher) halved(remains int64) bool {
	return w.roundLeft-remains > max(remains, leastGrowth)
}

// wasMet reports whether a hard threshold was met at the last read.
func (w *Watcher) wasMet() bool {
	return slices.ContainsFunc(w.floors, func(f floor) bool { return f.hard && f.met })
}

// meetsHard reports whether a hard threshold is met.
func (w *Watcher) meetsHard(left [2]int64) bool {
	return slices.ContainsFunc(w.floors, func(f floor) bool { return f.hard && w.distance(f, left) < 0 })
}
