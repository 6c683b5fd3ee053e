package memorywatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file has the limits and thresholds that the memory watcher compares its counters with.

// scope is the node, or all pods together.
type scope struct {
	known bool
	// spare is the memory in use that counts as available: by default, inactive file pages.
	capacity, spare int64
}

// floor is one threshold as an amount.
type floor struct {
	signal snapshot.Signal
	hard   bool
	amount int64
	met    bool
	// left is the amount available above it at the last read.
	left int64
}

// id identifies the threshold: floors are added, removed and reordered when thresholds are armed again.
func (f *floor) id() policy.ThresholdID { return policy.ThresholdID{Signal: f.signal, Soft: !f.hard} }

// Arm converts thresholds to amounts, which needs a reading for those in percent. The caller must not modify them.
func (w *Watcher) Arm(thresholds []policy.Threshold) {
	now := w.clock()
	if now.Before(w.armAt) {
		return
	}
	w.armAt = now.Add(rearm)
	counters, err := w.reader.Counters(w.how)
	if err != nil {
		w.fail(err)
		return
	}
	w.setLimits(ReadNode(w.reader, w.how), counters)
	w.armed = thresholds
	w.setFloors()
}

// setFloors converts the armed thresholds to amounts. A floor that was there before keeps its state.
func (w *Watcher) setFloors() {
	before := w.floors
	w.floors, w.thresholds = nil, nil
	for i := range w.armed {
		t := &w.armed[i]
		if s := w.scopeOf(t.Signal); s != nil && s.known && !t.DryRun {
			f := floor{signal: t.Signal, hard: t.Hard(), amount: t.Quantity(s.capacity).Value()}
			if j := slices.IndexFunc(before, func(o floor) bool { return o.id() == f.id() }); j >= 0 {
				f.met, f.left = before[j].met, before[j].left+before[j].amount-f.amount
			}
			w.floors, w.thresholds = append(w.floors, f), append(w.thresholds, f.id())
		}
	}
}

// Rearm has the next Arm convert thresholds to amounts again: there are others now.
func (w *Watcher) Rearm() { w.armAt = time.Time{} }

// Thresholds returns those that are watched, until the next Arm. The caller must not modify them.
func (w *Watcher) Thresholds() []policy.ThresholdID { return w.thresholds }

// UsageAt returns the usage at which a watched threshold is met, in bytes: the capacity less the threshold, plus the
// spare memory, whose pages are not part of the working set. It is false if that is not known, or cannot be reached.
func (w *Watcher) UsageAt(id policy.ThresholdID) (usage int64, ok bool) {
	i := slices.IndexFunc(w.floors, func(f floor) bool { return f.id() == id })
	if i < 0 {
		return 0, false
	}
	s := w.scopeOf(id.Signal)
	usage = s.capacity - w.floors[i].amount + s.spare
	return usage, s.known && usage > 0 && usage < s.capacity+s.spare
}

func (w *Watcher) scopeOf(sig snapshot.Signal) *scope {
	switch sig {
	case snapshot.MemoryAvailable:
		return &w.node
	case snapshot.AllocatableMemoryAvailable:
		return &w.pods
	default:
		return nil
	}
}

func (w *Watcher) trendOf(sig snapshot.Signal) *trend {
	if sig == snapshot.MemoryAvailable {
		return &w.nodeTrend
	}
	return &w.podsTrend
}

// setLimits records the limits, and the spare memory of all pods, which is too costly to read each time. The cgroup of
// all pods may never have a limit, so that a failure to read it is retried only when it could be read before.
func (w *Watcher) setLimits(r snapshot.MemoryReading, counters snapshot.MemoryCounters) {
	lost, before := w.pods.known && !r.Pods.Known(), [2]int64{w.node.capacity, w.pods.capacity}
	w.node = scope{known: r.Node.Known(), capacity: r.Node.Capacity, spare: int64(counters.NodeSpare)}
	w.pods = scope{known: r.Pods.Known(), capacity: r.Pods.Capacity}
	// The counters were read before: what pods have used or released in between is not spare.
	usage := int64(cmp.Or(r.PodsUsed, counters.Pods))
	w.pods.spare = max(0, r.Pods.Available+usage-r.Pods.Capacity)
	w.spareAt, w.spareUsage = w.clock(), usage
	switch {
	case !w.node.known:
		w.fail(r.Node.Err)
		return
	case lost:
		w.tryAgain()
	default:
		if w.retry = 0; before != [2]int64{w.node.capacity, w.pods.capacity} {
			w.setFloors()
		}
	}
	w.failure, w.failedSince = nil, time.Time{}
}

// readSpare reads the limits and what is spare, and returns the counters as of then.
func (w *Watcher) readSpare(counters snapshot.MemoryCounters) snapshot.MemoryCounters {
	r := ReadNode(w.reader, w.how)
	w.setLimits(r, counters)
	counters.Pods = cmp.Or(r.PodsUsed, counters.Pods)
	return counters
}

// fail records that memory of the node cannot be read.
func (w *Watcher) fail(err error) {
	w.forget()
	w.node.known, w.pods.known = false, false
	if w.failure == nil {
		w.failedSince = w.clock()
	}
	w.failure = err
	w.tryAgain()
}

// tryAgain schedules the next arm. The pause until then doubles up to the period, so that a lasting failure costs no
// more than the timer does.
func (w *Watcher) tryAgain() {
	w.retry = min(max(MetPause, 2*w.retry), w.period)
	w.armAt = w.clock().Add(w.retry)
}
