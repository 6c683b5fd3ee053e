package memorywatch

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// minPause is the shortest pause between two reads of the counters, MetPause the longest one while a
	// hard threshold is met, and the time between two rounds meanwhile.
	minPause = 2 * time.Millisecond
	MetPause = 250 * time.Millisecond
	// restPause is a pause that is short enough for a first read while memory is being used up, debtPause the same where
	// reading takes long and more than restCredit is owed.
	restPause = 50 * time.Millisecond
	debtPause = 2 * restPause
	// rearm is the time after which thresholds are converted to amounts again: limits change, and the cgroup of all pods
	// may be created late.
	rearm = time.Minute
	// While no threshold will be met within restTime pauses are restShare times as long as reading requires, but for that
	// not longer than restPause or debtPause, nor than it takes to use up three quarters of what remains, and not while
	// the kernel may be reclaiming pages.
	restShare = 3
	restTime  = time.Second
	// refreshTime is how long before a threshold will be met all pods are read, if that is due: with 110 pods it takes
	// about 40 ms, by which the decision at the crossing would be later.
	refreshTime = 100 * time.Millisecond
	// hugePage is the size of a huge page: the kernel charges as much at once. For that, a threshold is expected to be met
	// earlier than by the rate of growth, by hugePageTime at most: reading that often for longer would cost too much.
	hugePage     = int64(2) << 20
	hugePageTime = 20 * time.Millisecond
	// fullMargin is how far below a limit the usage may be where the kernel reclaims pages because of the limit: each CPU
	// charges 64 pages in advance. Where less than that, or than a fraction of the limit (one sixteenth), is left, what is
	// spare is read again: each time, or when the usage has changed by a fraction of the distance to the threshold (one
	// quarter), or after spareAge.
	fullMargin   = int64(64) << 20
	fullShare    = 16
	changedShare = 4
	spareAge     = 250 * time.Millisecond
	// spareFresh is for how long what is spare is not read again before a crossing is believed: the reading that follows
	// says whether it is one.
	spareFresh = 20 * time.Millisecond
)

// Watcher reads exact memory counters between the rounds of the loop, as often as the distance to the next
// threshold requires: at the worst rate of growth, half of the distance is left at the next read, or none where that
// would be in less than restPause. Where that costs too much, or growth is faster, half of it is left at the present
// rate of growth, for a while. It belongs to the loop.
type Watcher struct {
	reader Reader
	// period is the longest pause, worst the highest rate at which memory may be used up, in bytes per second.
	period time.Duration
	worst  int64
	how    snapshot.Counting
	clock  func() time.Time
	// next is when the counters are read again.
	next time.Time
	// readAt is when they were last read.
	readAt time.Time
	costs  readCosts
	// armAt is when thresholds are converted to amounts again, at once when zero. retry is the pause until then while a
	// read fails, else zero.
	armAt time.Time
	retry time.Duration
	// failure is the error of reading memory of the node, nil without one; failedSince is when it first failed.
	failure     error
	failedSince time.Time

	node scope
	pods scope
	// spareAt is when pods.spare was read, spareUsage what all pods used then.
	spareAt    time.Time
	spareUsage int64

	// armed are the thresholds of the last Arm, floors those of them that are watched, as amounts, thresholds which they
	// are.
	armed      []policy.Threshold
	floors     []floor
	thresholds []policy.ThresholdID
	// nodeTrend and podsTrend are how fast memory of each scope is used up, meetsIn is the time from the last read in
	// which the next threshold is met if that goes on; zero if none will be, or if that is not known.
	nodeTrend, podsTrend trend
	meetsIn              time.Duration
	// observedAt is when the counters were read by which meetsIn was computed. A look follows, which takes time.
	observedAt time.Time
	// hardMet is true while a hard memory threshold is met by the last decision.
	hardMet bool
	// looks are nil if fences are off, or if the reader cannot read single pods.
	looks *looks
	// killTime is that of the options.
	killTime time.Duration
	// remains is what is available at the last read, of the node or of all pods, whichever is less.
	remains int64
	// roundLeft is what remained when the last reading caused a round, roundAt is when that was.
	roundLeft int64
	roundAt   time.Time
	// freedAt is when memory began to be freed that counts although too much is owed (mayHalve).
	freedAt time.Time
	// putOffAt is when the next round was first put off until the next read, zero if it was not; reliefDue is true if no
	// hard threshold is met any more and no round says so yet.
	putOffAt  time.Time
	reliefDue bool
	// refreshedAt is when all pods were last read before a threshold was met.
	refreshedAt time.Time
	// falseAlarm is true if the counters last showed a crossing that a reading did not confirm, refuted what they showed.
	falseAlarm bool
	refuted    [2]int64
	postponed  postponement
	// awaited is true if the round of a collection that shows a crossing waits for the next read: pods are looked at with
	// it, until that shows who grows.
	awaited bool
	// awaitedLeft is what remained by the reading of that round.
	awaitedLeft int64
	// soon is true if the next read follows the last one at once: it will show statistics of all pods that a look has made
	// right, or how fast a pod grows that has begun to, or the last one has read all pods, which took long.
	soon bool
	// collected is the last reading that a collection has taken, so far as it is known here.
	collected *snapshot.MemoryReading
}

// New returns a watcher that reads nothing before Adopt and Arm; nil without a reader. clock returns the time with a
// monotonic reading.
func New(reader Reader, clock func() time.Time) *Watcher {
	if reader == nil {
		return nil
	}
	return &Watcher{reader: reader, clock: clock, costs: newReadCosts(reader, clock)}
}

// Adopt sets options. The next read is due at once and arms thresholds again: by the new options one may be met.
func (w *Watcher) Adopt(o *settings.Options) {
	w.period, w.worst, w.how = o.MonitoringPeriod, o.WorstGrowth, o.Counting()
	w.armAt, w.next, w.killTime = time.Time{}, time.Time{}, o.KillTime
	// What was observed is dropped: memory of the node and of pods may be counted in another way.
	w.looks, w.falseAlarm = nil, false
	w.forget()
	if pods, ok := w.reader.(PodReader); ok && o.Fence {
		w.looks = &looks{reader: pods, how: w.how, lag: lagOf(w.reader)}
	}
}

// Use records the reading of the last collection, and when that was begun; nil without one. It completes later readings
// of single pods.
func (w *Watcher) Use(r *snapshot.MemoryReading, begun time.Time) {
	if r == nil || r == w.collected || w.looks == nil {
		return
	}
	if w.collected = r; r.ByPod != nil && begun.After(w.looks.baseAt) {
		w.looks.use(r.ByPod, begun)
	}
}

// Next returns when the counters are to be read again.
func (w *Watcher) Next() time.Time { return w.next }

// Counting returns how memory is counted by the options.
func (w *Watcher) Counting() snapshot.Counting { return w.how }

// Failure returns the error of reading memory of the node, and since when there is one; nil without.
func (w *Watcher) Failure() (since time.Time, err error) { return w.failedSince, w.failure }

// Due reports whether it is time to read the counters.
func (w *Watcher) Due(now time.Time) bool { return !now.Before(w.next) }

// Hurry makes the next read due, minPause after the last one at the earliest. It does nothing, and returns
// false, once so much was read that the credit is used up, or while no threshold will be met soon that for the approach
// to one: the kernel may report pressure several times a second for hours.
func (w *Watcher) Hurry(now time.Time) bool {
	most := Credit
	if w.resting() {
		most = approachCredit
	}
	if w.costs.owed(now) > most {
		return false
	}
	w.next = snapshot.Later(now, w.readAt.Add(minPause))
	return true
}

// Decided records whether a hard memory threshold is met by a decision, and which pods are being evicted: its victims,
// and those in flight before it. While one is met, reads of the counters cause rounds, which detect the end of pressure
// (minimum reclaim included) nearly as quickly as its beginning.
func (w *Watcher) Decided(d *policy.Decision, inFlight []snapshot.InFlight) {
	met := w.hardMet
	if w.hardMet = d.Condition(v1.NodeMemoryPressure).HardMet; w.hardMet {
		w.setRoundLeft(met) // The round may be that of a collection.
	} else {
		w.reliefDue = false
	}
	if w.looks != nil {
		w.looks.decided(d, inFlight, w.hardMet)
	}
	if next := w.readAt.Add(w.pause()); next.Before(w.next) {
		w.next = next
	}
}

// Watches reports whether the watcher has a threshold that it can read.
func (w *Watcher) Watches() bool {
	return w != nil && len(w.floors) > 0 && (w.node.known || w.pods.known)
}

// Check reads the counters. It returns a reading when a threshold was crossed, or when a hard one is met by the last
// decision and another decision may be different; else nil.
func (w *Watcher) Check() *snapshot.MemoryReading {
	w.costs.begin()
	defer w.costs.release()
	w.postponed.active, w.soon = false, false
	if w.looks != nil {
		w.looks.fresh, w.looks.freshBefore = false, w.looks.fresh // The counters may not be readable.
	}
	reading := w.readCounters()
	if !w.postponed.active {
		w.postponed, w.awaited = postponement{}, false
	}
	w.readAt = w.clock()
	w.costs.end(w.readAt, w.hardMet)
	w.next = w.readAt.Add(w.pause())
	switch {
	case w.postponed.active:
		w.next = w.readAt.Add(w.postponed.pause(w.readAt, w.leastTimeFor(w.remains/2)))
	case w.soon:
		w.next = w.readAt.Add(minPause)
	}
	return reading
}

// pause returns the time between the last read and the next one.
func (w *Watcher) pause() time.Duration {
	pause := w.sleep()
	if w.retry > 0 {
		pause = min(pause, max(minPause, w.armAt.Sub(w.readAt)))
	}
	share, last, owed := w.costs.pauses(w.readAt, w.hardMet)
	if w.resting() {
		rest := restPause
		if owed > restCredit {
			rest = max(rest, min(2*share, debtPause))
		}
		share = max(share, min(restShare*share, rest, w.leastTimeFor(w.remains/4*3)))
	}
	pause = max(pause, share)
	in := w.meetsIn - w.readAt.Sub(w.observedAt)
	if w.meetsIn > 0 && owed < approachCredit {
		return min(pause, max(in/2, min(approachPauseShare*w.costs.took, in), minPause))
	}
	if w.meetsIn > 0 && owed < Credit {
		return min(pause, max(in, approachPauseShare*w.costs.took, minPause))
	}
	return max(pause, min(owed-approachCredit, last))
}

// readCounters reads the pods' cgroups too when the counters alone are not exact enough to decide. Where the kernel
// may be reclaiming pages, and before a crossing is believed, what is spare in the cgroup of all pods is read with the
// counters: a reading of all pods each time would cost so much that the crossing itself could not be read.
//
// A crossing that the counters show is always read, unless refused says that it is not.
func (w *Watcher) readCounters() *snapshot.MemoryReading {
	if !w.Watches() {
		w.forget()
		return nil
	}
	counters, err := w.reader.Counters(w.how)
	if err != nil {
		w.fail(err)
		return nil
	}
	w.node.spare = int64(counters.NodeSpare)
	if size := int64(counters.NodeCapacity); w.node.known && size > 0 && size != w.node.capacity {
		w.node.capacity = size
		w.setFloors() // Thresholds in percent follow.
	}
	left := w.leftBy(counters)
	full := !w.hardMet && w.spareIsOld(int64(counters.Pods), left)
	suspect := w.suspect(left)
	changes := suspect
	if w.hardMet {
		changes = w.halved(w.remaining(left))
	}
	if (full || changes) && w.readsSpare(int64(counters.Pods), suspect) {
		counters = w.readSpare(counters)
		left, full = w.leftBy(counters), false
		suspect = w.suspect(left)
	}
	w.approach(left)
	w.look(left, counters, suspect || w.awaited)
	switch {
	case !w.hardMet && !suspect && w.awaited && !w.canWait(left) && w.postpone(left):
		w.record(left)
		return nil
	case w.hardMet && !w.decidesAnew(left):
		w.record(left)
		return nil
	case !w.hardMet && !suspect && !full:
		w.record(left)
		return nil
	case !w.hardMet && suspect && (w.refused(left) || (!w.canWait(left) && w.postpone(left))):
		return nil
	}
	r := w.readAll(counters)
	exact := [2]int64{r.Node.Available, r.Pods.Available}
	w.approach(exact)
	crossed := w.record(exact)
	w.falseAlarm = suspect && !crossed
	w.refute(left)
	if crossed || w.hardMet {
		w.began()
		return &r
	}
	return nil
}

// leftBy returns what the node and all pods have available by the counters and the last known spare memory.
func (w *Watcher) leftBy(counters snapshot.MemoryCounters) [2]int64 {
	return [2]int64{w.node.left(int64(counters.Node)), w.pods.left(int64(counters.Pods))}
}

// readAll takes a reading that a decision can be based on.
func (w *Watcher) readAll(counters snapshot.MemoryCounters) (r snapshot.MemoryReading) {
	before := w.costs.spent()
	if w.looks == nil {
		r = w.reader.ReadMemory(w.how)
	} else {
		most := len(w.looks.pods)
		in := w.timeFor(w.remaining(w.leftBy(counters)))
		if (in > 0 && in < restTime) || (w.hardMet && w.exhausted()) { // What it may cost then is that of so many.
			most = changedCount
		}
		r = w.looks.read(w.reader, w.clock(), most)
	}
	w.setLimits(r, counters)
	asked, all := 0, 0
	if w.looks != nil {
		asked, all = w.looks.asked, len(w.looks.pods)
	}
	w.costs.decided(w.costs.spent()-before, asked, all)
	return r
}

// timeFor returns the time in which an amount is used up, of the node or of all pods; zero if that is not known.
func (w *Watcher) timeFor(amount int64) (least time.Duration) {
	for _, t := range []*trend{&w.nodeTrend, &w.podsTrend} {
		if in := t.timeFor(amount); in > 0 && (least == 0 || in < least) {
			least = in
		}
	}
	return least
}

// ShowsUnreadCrossing reports whether a reading shows a crossing that the last read of the counters has not. It is
// false without looks, which say who caused it.
func (w *Watcher) ShowsUnreadCrossing(r *snapshot.MemoryReading) bool {
	if r == nil || w.looks == nil || !w.Watches() || w.hardMet {
		return false
	}
	return w.suspect(leftByReading(r))
}

// leftByReading returns what the node and all pods have available by a reading.
func leftByReading(r *snapshot.MemoryReading) [2]int64 {
	left := [2]int64{math.MaxInt64, math.MaxInt64}
	for i, o := range []snapshot.Observation{r.Node, r.Pods} {
		if o.Known() {
			left[i] = o.Available
		}
	}
	return left
}

// began records that a reading causes a round.
func (w *Watcher) began() {
	w.setRoundLeft(w.hardMet)
	w.roundAt, w.putOffAt, w.reliefDue = w.clock(), time.Time{}, false
	if w.looks != nil {
		w.looks.serve()
	}
}

// remaining returns what is available, of the node or of all pods, whichever is less.
func (w *Watcher) remaining(left [2]int64) int64 {
	least := int64(math.MaxInt64)
	if w.node.known {
		least = left[0]
	}
	if w.pods.known {
		least = min(least, left[1])
	}
	return max(0, least)
}

// left returns what is available by the counters and the last known spare memory.
func (s *scope) left(usage int64) int64 { return s.capacity - usage + s.spare }

// spareIsOld reports whether much less of the pods' memory may be spare than last known: the kernel may be reclaiming
// pages because the limit is reached, or little is left below it and it was not read for some time, or the usage has
// changed by much of what is left above a threshold.
func (w *Watcher) spareIsOld(usage int64, left [2]int64) bool {
	free, changed := w.pods.capacity-usage, usage-w.spareUsage
	switch {
	case !w.pods.known || free >= w.pods.capacity/fullShare:
		return false
	case free < fullMargin:
		return true
	}
	much := leastGrowth
	for i := range w.floors {
		if distance := w.distance(w.floors[i], left); w.floors[i].signal != snapshot.MemoryAvailable {
			much = max(much, min(distance, fullMargin)/changedShare)
		}
	}
	return max(changed, -changed) >= much || w.clock().Sub(w.spareAt) >= spareAge
}

// readsSpare reports whether what is spare is read with the counters: without all pods. A crossing is believed without
// that if it was read less than spareFresh ago, since all is read then; but not where the kernel may be reclaiming
// pages, nor after a reading that has shown no crossing.
func (w *Watcher) readsSpare(usage int64, suspect bool) bool {
	if _, quick := w.reader.(PodReader); !quick {
		return false
	}
	return !suspect || w.hardMet || w.falseAlarm || (w.pods.known && w.pods.capacity-usage < fullMargin) ||
		w.clock().Sub(w.spareAt) >= spareFresh
}

// suspect reports whether a threshold that can cause a round seems to be met: a hard one, or one that was not met
// before.
func (w *Watcher) suspect(left [2]int64) bool {
	return slices.ContainsFunc(w.floors, func(f floor) bool { return (f.hard || !f.met) && w.distance(f, left) < 0 })
}

// distance returns how much is available above the threshold, negative when it is met. It is the maximum when memory
// cannot be read, so that nothing is done because of it.
func (w *Watcher) distance(f floor, left [2]int64) int64 {
	switch {
	case !w.scopeOf(f.signal).known:
		return math.MaxInt64
	case f.signal == snapshot.MemoryAvailable:
		return left[0] - f.amount
	}
	return left[1] - f.amount
}

// record records which thresholds are met. It reports whether one was crossed, or a hard one is met.
func (w *Watcher) record(left [2]int64) (crossed bool) {
	w.remains = w.remaining(left)
	for i := range w.floors {
		f := &w.floors[i]
		met := w.distance(*f, left) < 0
		crossed = crossed || (met && (f.hard || !f.met))
		f.met = met
		f.left = max(0, w.distance(*f, left))
	}
	return crossed
}

// forget drops what was observed of how fast memory is used up.
func (w *Watcher) forget() { w.nodeTrend, w.podsTrend, w.meetsIn = trend{}, trend{}, 0 }

// approach observes how fast memory is used up, and when the next threshold will be met.
func (w *Watcher) approach(left [2]int64) {
	now := w.clock()
	w.meetsIn, w.observedAt = 0, now
	w.nodeTrend.observe(left[0], now)
	w.podsTrend.observe(left[1], now)
	for i := range w.floors {
		f := &w.floors[i]
		trend := w.trendOf(f.signal)
		in := trend.timeFor(w.distance(*f, left))
		if in == 0 {
			continue
		}
		// Growth comes in steps, of which the next one may be due.
		in = max(1, in-min(trend.timeFor(hugePage), hugePageTime))
		if w.meetsIn == 0 || in < w.meetsIn {
			w.meetsIn = in
		}
	}
}

// sleep returns half of the time in which the nearest threshold cannot be reached, all of it up to restPause. While a
// hard one is met, it is half of the time in which what remains cannot be used up.
func (w *Watcher) sleep() time.Duration {
	if !w.Watches() {
		return w.period
	}
	exhausted := min(MetPause, w.leastTimeFor(w.remains/2)).Seconds()
	if w.hardMet {
		return max(time.Duration(exhausted*float64(time.Second)), minPause)
	}
	seconds := w.period.Seconds()
	for i := range w.floors {
		switch f := &w.floors[i]; {
		case !f.met:
			reached := float64(f.left) / float64(w.worst)
			rest := reached / 2
			if !w.reclaiming() {
				rest = max(rest, min(reached, restPause.Seconds()))
			}
			seconds = min(seconds, rest)
		case f.hard:
			seconds = min(seconds, exhausted)
		}
	}
	return max(time.Duration(seconds*float64(time.Second)), minPause)
}

// leastTimeFor returns the time in which no more than an amount can be used up, at the worst rate of growth.
func (w *Watcher) leastTimeFor(amount int64) time.Duration {
	seconds := float64(amount) / float64(w.worst)
	return time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
}

// resting reports whether no threshold is met, or will be met soon by the last readings.
func (w *Watcher) resting() bool {
	return !w.hardMet && (w.meetsIn == 0 || w.meetsIn >= restTime) && !w.reclaiming()
}

// reclaiming reports whether the kernel may be reclaiming pages because all pods together have reached their limit. Its
// statistics, by which that is seen, may lag.
func (w *Watcher) reclaiming() bool {
	return w.pods.known && w.pods.capacity-w.spareUsage < fullMargin
}

// Near reports whether memory is scarce enough to read the pods' cgroups with every collection.
func (w *Watcher) Near() bool { return slices.ContainsFunc(w.floors, w.scarce) }

// scarce reports whether less than a quarter of the memory is left above a threshold.
func (w *Watcher) scarce(f floor) bool { return f.met || f.left < w.scopeOf(f.signal).capacity/4 }
