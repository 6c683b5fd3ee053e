package eviction

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// watcherMinPause is the shortest pause between two reads of the counters, watcherMetPause the one while a hard
	// threshold is met.
	watcherMinPause = 2 * time.Millisecond
	watcherMetPause = 250 * time.Millisecond
	// rearm is the time after which thresholds are converted to amounts again: limits change, and the cgroup of all pods
	// may be created late.
	rearm = time.Minute
	// watcherPauseShare bounds the cost of reading: the pause after a read is at least this many times as long as it took.
	watcherPauseShare = 50
)

// memoryWatcher reads exact memory counters between the rounds of the loop, as often as the distance to the next
// threshold requires: at the worst rate of growth, half of the distance is left at the next read. It belongs to the
// loop.
type memoryWatcher struct {
	reader MemoryReader
	// period is the longest pause, worst the highest rate at which memory may be used up, in bytes per second.
	period time.Duration
	worst  int64
	how    snapshot.Counting
	clock  func() time.Time
	// next is when the counters are read again.
	next time.Time
	// readAt is when they were last read, took the duration of that read.
	readAt time.Time
	took   time.Duration
	// armAt is when thresholds are converted to amounts again, at once when zero. retry is the pause until then while a
	// read fails, else zero.
	armAt time.Time
	retry time.Duration
	// failure is the error of reading memory of the node, nil without one; failedSince is when it first failed.
	failure     error
	failedSince time.Time

	node   scope
	pods   scope
	floors []floor
	// holds is true while a hard memory threshold is met by the last decision.
	holds bool
}

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

func newMemoryWatcher(reader MemoryReader, clock func() time.Time) *memoryWatcher {
	if reader == nil {
		return nil
	}
	return &memoryWatcher{reader: reader, clock: clock}
}

// adopt sets options. The next read is due at once and arms thresholds again: by the new options one may be met.
func (w *memoryWatcher) adopt(o *Options) {
	w.period, w.worst, w.how = o.MonitoringPeriod, o.WorstGrowth, o.counting()
	w.armAt, w.next = time.Time{}, time.Time{}
}

// due reports whether it is time to read the counters.
func (w *memoryWatcher) due(now time.Time) bool { return !now.Before(w.next) }

// hurry makes the next read due, watcherMinPause after the last one at the earliest.
func (w *memoryWatcher) hurry(now time.Time) { w.next = later(now, w.readAt.Add(watcherMinPause)) }

// hold records whether a hard memory threshold is met by a decision. While one is met, each read of the counters causes
// a round, which detects the end of pressure (minimum reclaim included) as quickly as its beginning.
func (w *memoryWatcher) hold(d *policy.Decision) {
	w.holds = d.Condition(v1.NodeMemoryPressure).HardMet
	if next := w.readAt.Add(w.pause()); next.Before(w.next) {
		w.next = next
	}
}

// watches reports whether the watcher has a threshold that it can read.
func (w *memoryWatcher) watches() bool {
	return w != nil && len(w.floors) > 0 && (w.node.known || w.pods.known)
}

// arm converts thresholds to amounts, which needs a reading for those in percent.
func (w *memoryWatcher) arm(thresholds []policy.Threshold) {
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
	w.setLimits(w.reader.ReadMemory(w.how), counters)
	w.floors = w.floors[:0]
	for i := range thresholds {
		t := &thresholds[i]
		if s := w.scopeOf(t.Signal); s != nil && s.known && !t.DryRun {
			w.floors = append(w.floors, floor{signal: t.Signal, hard: t.Hard(), amount: t.Quantity(s.capacity).Value()})
		}
	}
}

func (w *memoryWatcher) scopeOf(sig snapshot.Signal) *scope {
	switch sig {
	case snapshot.MemoryAvailable:
		return &w.node
	case snapshot.AllocatableMemoryAvailable:
		return &w.pods
	default:
		return nil
	}
}

// setLimits records the limits, and the spare memory of all pods, which is too costly to read each time. The cgroup of
// all pods may never have a limit, so that a failure to read it is retried only when it could be read before.
func (w *memoryWatcher) setLimits(r snapshot.MemoryReading, counters snapshot.MemoryCounters) {
	lost := w.pods.known && !r.Pods.Known()
	w.node = scope{known: r.Node.Known(), capacity: r.Node.Capacity, spare: int64(counters.NodeSpare)}
	w.pods = scope{known: r.Pods.Known(), capacity: r.Pods.Capacity}
	w.pods.spare = max(0, r.Pods.Available+int64(counters.Pods)-r.Pods.Capacity)
	switch {
	case !w.node.known:
		w.fail(r.Node.Err)
		return
	case lost:
		w.tryAgain()
	default:
		w.retry = 0
	}
	w.failure, w.failedSince = nil, time.Time{}
}

// fail records that memory of the node cannot be read.
func (w *memoryWatcher) fail(err error) {
	w.node.known, w.pods.known = false, false
	if w.failure == nil {
		w.failedSince = w.clock()
	}
	w.failure = err
	w.tryAgain()
}

// tryAgain schedules the next arm. The pause until then doubles up to the period, so that a lasting failure costs no
// more than the timer does.
func (w *memoryWatcher) tryAgain() {
	w.retry = min(max(watcherMetPause, 2*w.retry), w.period)
	w.armAt = w.clock().Add(w.retry)
}

// check reads the counters. It returns a reading when a threshold was crossed, or a hard one is still met or no longer
// is; else nil.
func (w *memoryWatcher) check() *snapshot.MemoryReading {
	begin := w.clock()
	reading := w.readCounters()
	w.readAt = w.clock()
	w.took = w.readAt.Sub(begin)
	w.next = w.readAt.Add(w.pause())
	return reading
}

// pause returns the time between the last read and the next one.
func (w *memoryWatcher) pause() time.Duration {
	pause := w.sleep()
	if w.retry > 0 {
		pause = min(pause, max(watcherMinPause, w.armAt.Sub(w.readAt)))
	}
	return max(pause, watcherPauseShare*w.took)
}

// readCounters reads the pods' cgroups too when the counters alone are not exact enough to decide.
func (w *memoryWatcher) readCounters() *snapshot.MemoryReading {
	if !w.watches() {
		return nil
	}
	counters, err := w.reader.Counters(w.how)
	if err != nil {
		w.fail(err)
		return nil
	}
	w.node.spare = int64(counters.NodeSpare)
	left := [2]int64{w.node.left(int64(counters.Node)), w.pods.left(int64(counters.Pods))}
	if !w.holds && !w.suspect(left) && !w.pods.full(int64(counters.Pods)) {
		w.record(left)
		return nil
	}
	r := w.reader.ReadMemory(w.how)
	w.setLimits(r, counters)
	if w.record([2]int64{r.Node.Available, r.Pods.Available}) || w.holds {
		return &r
	}
	return nil
}

// left returns what is available by the counters and the last known spare memory.
func (s *scope) left(usage int64) int64 { return s.capacity - usage + s.spare }

// full reports whether the kernel may be reclaiming pages, so that less may be spare than last known.
func (s *scope) full(usage int64) bool { return s.known && s.capacity-usage < s.capacity/16 }

// suspect reports whether a threshold that can cause a round seems to be met: a hard one, or one that was not met
// before.
func (w *memoryWatcher) suspect(left [2]int64) bool {
	return slices.ContainsFunc(w.floors, func(f floor) bool { return (f.hard || !f.met) && w.distance(f, left) < 0 })
}

// distance returns how much is available above the threshold, negative when it is met. It is the maximum when memory
// cannot be read, so that nothing is done because of it.
func (w *memoryWatcher) distance(f floor, left [2]int64) int64 {
	switch {
	case !w.scopeOf(f.signal).known:
		return math.MaxInt64
	case f.signal == snapshot.MemoryAvailable:
		return left[0] - f.amount
	}
	return left[1] - f.amount
}

// record records which thresholds are met. It reports whether one was crossed, or a hard one is met.
func (w *memoryWatcher) record(left [2]int64) (crossed bool) {
	for i := range w.floors {
		f := &w.floors[i]
		met := w.distance(*f, left) < 0
		crossed = crossed || (met && (f.hard || !f.met))
		f.met = met
		f.left = max(0, w.distance(*f, left))
	}
	return crossed
}

// sleep returns half of the time in which the nearest threshold cannot be reached.
func (w *memoryWatcher) sleep() time.Duration {
	if !w.watches() {
		return w.period
	}
	if w.holds {
		return watcherMetPause
	}
	seconds := w.period.Seconds()
	for i := range w.floors {
		switch f := &w.floors[i]; {
		case !f.met:
			seconds = min(seconds, float64(f.left)/float64(2*w.worst))
		case f.hard:
			seconds = min(seconds, watcherMetPause.Seconds())
		}
	}
	return max(time.Duration(seconds*float64(time.Second)), watcherMinPause)
}

// near reports whether memory is scarce enough to read the pods' cgroups with every collection.
func (w *memoryWatcher) near() bool {
	return slices.ContainsFunc(w.floors, func(f floor) bool { return f.met || f.left < w.scopeOf(f.signal).capacity/4 })
}
