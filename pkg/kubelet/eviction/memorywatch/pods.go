package memorywatch

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file has when the memory watcher reads single pods. What it learns from that is in looks.

// look looks at the memory of each pod if memory is scarce, or a threshold seems to be met. That takes longer than
// reading the counters, and the next read has to wait accordingly: so it is done if what is available has changed and
// the next read is not due earlier anyway, if a threshold is about to be met, and from time to time.
func (w *Watcher) look(left [2]int64, counters snapshot.MemoryCounters, suspect bool) {
	l := w.looks
	if l == nil {
		return
	}
	l.fresh, l.hardMet, l.left = false, w.hardMet, w.remaining(left)
	if !suspect && !w.Near() {
		return
	}
	now := w.clock()
	state := lookState{
		free: left[0], used: int64(counters.Pods), spare: w.pods.spare, pods: w.pods.known && left[1] < left[0],
		date: counters.At,
	}
	for i := range w.floors {
		if f := &w.floors[i]; f.signal == snapshot.MemoryAvailable && w.distance(*f, left) < 0 {
			state.pods = false
		}
	}
	cost := PauseShare * min(l.took, l.tookBefore)
	due := l.n == 0 || w.lookDue(now.Sub(l.at[l.n-1]), cost)
	meets := w.meetsIn > 0 && w.meetsIn < 2*cost && w.costs.owed(now)+cost < lookCredit && !w.lookedLately(now)
	lags := w.lags(state)
	if due || suspect || meets || lags || (w.sleep() >= cost && w.moved(state)) {
		before := w.costs.spent()
		l.add(now, state)
		if lags {
			l.readOwners()
		}
		l.tookBefore, l.took = l.took, w.costs.spent()-before
		w.soon = (lags || w.beganWhileMet(left)) && w.costs.owed(now) < approachCredit
		if !suspect && !w.postponed.begun() {
			w.refresh(now)
		}
	}
}

// lookedLately reports whether the last look says enough while a threshold is approached. Where the kernel may be
// reclaiming pages, counters alone do not show who grows.
func (w *Watcher) lookedLately(now time.Time) bool {
	l := w.looks
	return !w.hardMet && !w.reclaiming() && l.n > 0 && now.Sub(l.at[l.n-1]) < approachLooks
}

// lookDue reports whether the last look is so long ago that another one is made whatever has changed. Looks that need
// long pauses are rarer while no threshold is met or will be soon, and leave credit for the approach to one. Two reads
// that look, one after the other, would make the pause so long that the next one had to look as well.
func (w *Watcher) lookDue(ago, cost time.Duration) bool {
	owed := w.costs.owed(w.clock())
	needed := w.hardMet || (!w.resting() && owed+cost < approachCredit)
	if !needed && cost >= looksEvery && w.looks.freshBefore {
		return false
	}
	return ago >= looksEvery && (needed || ago >= lookShare*cost || owed < restCredit)
}

// beganWhileMet reports whether the last look shows that a pod has begun to grow while a hard threshold is met, and
// what is left may be used up before a kill takes effect: only the next look says how fast the pod grows.
func (w *Watcher) beganWhileMet(left [2]int64) bool {
	in := w.timeFor(w.remaining(left))
	return w.hardMet && in > 0 && in < w.killTime && (w.looks.justBegun(0) || w.looks.jumped())
}

// refresh reads all pods if that was not done for some time and a threshold will be met soon, but not at once.
func (w *Watcher) refresh(now time.Time) {
	soon := w.meetsIn >= refreshTime && w.meetsIn < baseAge
	if w.hardMet || !soon || !w.looks.stale(now) || now.Sub(w.refreshedAt) < baseAge {
		return
	}
	w.refreshedAt, w.soon = now, true
	before := w.costs.spent()
	w.looks.use(w.reader.ReadMemory(w.how).ByPod, now)
	w.costs.refreshing = w.costs.spent() - before
	w.costs.all = w.costs.refreshing
}

// Cause returns the pod that grows fastest if a threshold will be met soon; "" if that is not so, or not known.
func (w *Watcher) Cause() types.UID {
	if w.looks == nil || w.hardMet || w.meetsIn == 0 || w.meetsIn >= restTime {
		return ""
	}
	uid, _ := w.looks.fastest()
	return uid
}

// lags reports whether a pod seems to use up page cache of others that the statistics of all pods still have (defect
// D40, package snapshot/collect): since the last look the node has less, while all pods together have reached their
// limit, and by the statistics as much of that is spare as before. What the look reads, the kernel sums up.
func (w *Watcher) lags(now lookState) bool {
	if w.hardMet || !w.reclaiming() || w.looks.n == 0 {
		return false
	}
	last := &w.looks.state[w.looks.n-1]
	less := last.free - now.free
	return less >= leastGrowth && last.spare-now.spare < less/2
}

// moved reports whether what is available has changed since the last look, of the node or of all pods, where it is
// scarce. A pod grows unseen only as far as other memory is freed meanwhile.
func (w *Watcher) moved(now lookState) bool {
	last := &w.looks.state[w.looks.n-1]
	free, pods := now.free-last.free, (now.used-now.spare)-(last.used-last.spare)
	return slices.ContainsFunc(w.floors, func(f floor) bool {
		changed := pods
		if f.signal == snapshot.MemoryAvailable {
			changed = free
		}
		return w.scarce(f) && max(changed, -changed) >= leastGrowth
	})
}
