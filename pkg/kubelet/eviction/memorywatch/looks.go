package memorywatch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// lookCount looks are kept, at least lookDistance apart: together they span more than 400 ms when looks follow each
	// other as closely as they can, and more than PostponeMost while a decision is postponed. When there is no room for
	// another one, so many of the oldest are dropped together. Looks that are older than lookWindow are not used: from
	// there on samples of the policy measure growth.
	lookCount    = 128
	lookDrop     = 16
	lookDistance = 4 * time.Millisecond
	lookWindow   = time.Second
	// leastWindow is the shortest time over which a rate is computed.
	leastWindow = time.Millisecond
	// leastGrowth is the growth below which a pod counts as not growing: what counters lag by on four CPUs.
	leastGrowth = int64(1) << 20
	// stepWindow is the shortest time in which a single huge page counts as growth. A pod that grows slowly gets one now
	// and then.
	stepWindow = 250 * time.Millisecond
	// A pod whose growth in endedWindow or more is less than leastGrowth, and than one endedShare-th of that of other
	// pods, which have grown by leastGrowth at least, has stopped growing: what it used before is no growth any more.
	// While no other pod grows, it may just as well wait for a CPU. A pod that does that while others grow counts again
	// once it has grown by leastGrowth.
	endedWindow = 10 * time.Millisecond
	endedShare  = 8
	// clearPages is growth after which the rate since a look says enough of a pod that goes on after a pause, however long
	// that look is ago.
	clearPages = 8 * hugePage
	// A pod that has grown by fasterGrowth, fasterTimes as fast as before, counts as one that went on after a pause.
	fasterGrowth = 2*hugePage + littleGrowth
	fasterTimes  = 4
	// A pod is read again if its counter has changed by more than this since it was last read: counters of pods at rest go
	// up and down by as much, since each CPU charges 64 pages in advance.
	changed = batch
	// changedCount is how many of these are read at most where what is left will be used up within restTime, or once the
	// credit is: one takes a third of a millisecond, and on a busy node most pods have changed. They are those that have
	// changed most.
	changedCount = 12
	// headCount is how many pods are read without their page cache with a look: those that have grown most.
	headCount = 6
	// recentCount of them are those that have grown most in endedWindow or a little more, by littleGrowth at least: the
	// counters of one CPU lag by that.
	recentCount  = 4
	littleGrowth = leastGrowth / 4
	// looksEvery is the time between two looks at all pods that are made although the next read of the counters is delayed
	// by them. Once more than restCredit is owed, they take an eighth (lookShare) of what reading may cost at most.
	looksEvery = lookWindow / 2
	restCredit = approachCredit / 4
	lookShare  = 8
	// approachLooks is the least time between two looks while a threshold is approached: the counters are read more often.
	approachLooks = 2 * lookDistance
	// lookCredit is how much of approachCredit looks may use up while a threshold is approached: what is left of that is
	// for reads of the counters.
	lookCredit = approachCredit * 3 / 4
	// baseAge is for how long a reading of all pods is completed by readings of those that have changed.
	baseAge = 15 * time.Second
	// begunShare: a pod that has just begun to grow matters if it may grow at this fraction (one eighth) of the rate of
	// the fastest.
	begunShare = 8
	// explainedShare: growth of the node is explained if pods account for this fraction (one half) of it.
	explainedShare = 2
	// servedShare: a pod that was growing at the last round, and is no victim, is looked at again when it has used up this
	// fraction (one eighth) of what remained then.
	servedShare = 8
	// servedFaster is how many times as fast as at the last round a pod grows that is looked at again whatever is owed.
	servedFaster = 4
)

// looks are the last looks at the memory of each pod, from which growth in milliseconds is computed. Adding one
// allocates nothing as long as the pods are the same. They belong to the memory watcher.
type looks struct {
	reader PodReader
	how    snapshot.Counting
	// usages are those of the last look.
	usages []snapshot.PodUsage
	// at is when each look was made, index 0 the oldest; len is n. state is what the node and all pods had then.
	at    [lookCount]time.Time
	state [lookCount]lookState
	n     int
	// first is the index of the oldest look that is used.
	first int
	pods  []podLooks
	// growers are those that were to be read at the last look.
	growers []*podLooks
	// head are the pods that were read without their page cache at the last look.
	head []*podLooks
	// hardMet is true while a hard memory threshold is met by the last decision.
	hardMet bool
	// lag is by how much the counter of a pod at rest may vary, left what remained at the last read.
	lag, left int64
	// fresh is true if the last look was made with the present read of the counters, freshBefore if one was made with the
	// read before that.
	fresh, freshBefore bool
	// took is the cost of the last look, tookBefore that of the one before.
	took, tookBefore time.Duration
	// base is the last reading of all pods, baseAt when it was begun.
	base   map[types.UID]*snapshot.Memory
	baseAt time.Time
	// served are the pods that were growing at the last round, servedLeft is what remained then, victims are those that
	// were evicted with a fence since a hard threshold is met.
	served     []servedPod
	servedLeft int64
	victims    []types.UID
	// evicted are the pods that are being evicted, released is what these have freed, in all.
	evicted  []types.UID
	released int64
	// climbs is room for sumClimbs: how much a pod has gained until each look.
	climbs [lookCount]int64
	// asked is how many pods the last reading has read.
	asked int
}

// lookState is the memory of the node and of all pods together at a look.
type lookState struct {
	// free is what the node had available, used the counter of all pods, and spare what of it counted as available, as far
	// as it was known.
	free, used, spare int64
	// released is what pods that were being evicted had freed until then.
	released int64
	// date is that of the counters.
	date time.Time
	// pods is true if all pods together had less available than the node, whose thresholds were not met: then growth of
	// the node, by processes outside of pods too, says nothing about what is used up.
	pods bool
}

// servedPod is a pod that was growing at a round, with its counter and its rate, in bytes per second.
type servedPod struct {
	uid   types.UID
	usage int64
	rate  snapshot.Bytes
}

// podLooks is the memory of one pod at each look.
type podLooks struct {
	uid types.UID
	// usage is the counter, resident what is not page cache; unknown where it was not read.
	usage, resident [lookCount]int64
	// read is the counter when the pod was last read in full; unknown before. excess is how much more it used by that.
	read, excess int64
	// since is the index of the look at which the pod had last stopped growing. Its growth counts from there on.
	since int
	// again is the index of the look at which the pod last went on after a pause, or began to grow faster.
	again int
	// faster is true if again is when it began to grow faster.
	faster bool
	// working is the working set, as it was last read; unknown before.
	working int64
	// rate is how fast it was growing at the look before the last one, zero if that was not measured.
	rate snapshot.Bytes
	// unread is true if it could not be read at the last look, to which it belongs: its containers may have changed.
	unread bool
	// memory is what was read at the last look if the pod is one of the head.
	memory snapshot.Memory
}

const unknown = int64(snapshot.Unknown)

// add makes a look.
func (l *looks) add(at time.Time, state lookState) {
	l.fresh = true
	unexplained := l.n >= 2 && (!l.explained() || !l.explainedLately())
	for i := range l.pods {
		rate, _, _ := l.rateOf(&l.pods[i])
		l.pods[i].rate = rate.PerSecond
	}
	l.usages = l.reader.PodUsages(l.usages[:0])
	l.observeReleases(&state)
	state.released = l.released
	l.match()
	l.advance(at)
	last := l.n - 1
	l.at[last], l.state[last] = at, state
	for l.first = 0; at.Sub(l.at[l.first]) > lookWindow; l.first++ {
	}
	for i := range l.usages {
		l.pods[i].usage[last], l.pods[i].resident[last] = int64(l.usages[i].Usage), unknown
	}
	l.readHead(unexplained)
	for _, p := range l.head {
		l.observeEnd(p)
		l.observePause(p)
		l.observeFaster(p)
	}
}

// observeReleases finds out what pods that are being evicted have freed since the last look. Page cache does not count,
// since it was available before.
func (l *looks) observeReleases(now *lookState) {
	if l.n == 0 || len(l.evicted) == 0 {
		return
	}
	uncharged := unknown
	for i := range l.pods {
		p := &l.pods[i]
		before := p.usage[l.n-1]
		if before == unknown || p.working == unknown || !slices.Contains(l.evicted, p.uid) {
			continue
		}
		j := slices.IndexFunc(l.usages, func(u snapshot.PodUsage) bool { return u.UID == p.uid })
		if j >= 0 {
			if int64(l.usages[j].Usage) <= before-littleGrowth {
				l.observeRelease(p)
			}
			continue
		}
		if uncharged == unknown {
			uncharged = max(0, l.uncharged(now))
		}
		freed := min(p.working, before, uncharged) // It may have freed the rest long ago.
		l.released += freed
		uncharged -= freed
	}
}

// uncharged returns by how much the counter of all pods has become less since the last look, beyond what pods account
// for that are still there or were not being evicted: page cache of a cgroup that was removed is charged to the one
// above it.
func (l *looks) uncharged(now *lookState) int64 {
	last := l.n - 1
	less := l.state[last].used - now.used
	for i := range l.usages {
		less += int64(l.usages[i].Usage)
	}
	for i := range l.pods {
		p := &l.pods[i]
		remains := slices.ContainsFunc(l.usages, func(u snapshot.PodUsage) bool { return u.UID == p.uid })
		if p.usage[last] != unknown && (remains || !slices.Contains(l.evicted, p.uid)) {
			less -= p.usage[last]
		}
	}
	return less
}

// observeRelease finds out what one of them has freed that is still there.
func (l *looks) observeRelease(p *podLooks) {
	if pod, err := l.reader.ReadPod(l.how, p.uid); err == nil && pod.WorkingSet.Known {
		now := int64(pod.WorkingSet.Amount)
		l.released += max(0, p.working-now)
		p.working = now
	}
}

// match makes pods those of usages, in the same order.
func (l *looks) match() {
	same := len(l.pods) == len(l.usages)
	for i := 0; same && i < len(l.pods); i++ {
		same = l.pods[i].uid == l.usages[i].UID
	}
	if same {
		return
	}
	before := make(map[types.UID]int, len(l.pods))
	for i := range l.pods {
		before[l.pods[i].uid] = i
	}
	pods := make([]podLooks, len(l.usages))
	for i := range l.usages {
		if j, ok := before[l.usages[i].UID]; ok {
			pods[i] = l.pods[j]
			continue
		}
		p := &pods[i]
		p.uid, p.read, p.working = l.usages[i].UID, unknown, unknown
		for j := range lookCount {
			p.usage[j], p.resident[j] = unknown, unknown
		}
	}
	l.pods = pods
}

// advance makes room for a look at the end. The last one is replaced if it is too near to the one before.
func (l *looks) advance(at time.Time) {
	switch {
	case l.n >= 2 && l.at[l.n-1].Sub(l.at[l.n-2]) < lookDistance:
		// Then the span from the one before to the new one is greater.
	case l.n < lookCount:
		l.n++
	default:
		copy(l.at[:], l.at[lookDrop:])
		copy(l.state[:], l.state[lookDrop:])
		for i := range l.pods {
			p := &l.pods[i]
			copy(p.usage[:], p.usage[lookDrop:])
			copy(p.resident[:], p.resident[lookDrop:])
			p.since, p.again = max(0, p.since-lookDrop), max(0, p.again-lookDrop)
		}
		l.n = lookCount - lookDrop + 1
	}
}

// recent returns the index of the last look that is at least endedWindow older than the newest, or of the oldest look.
func (l *looks) recent() int {
	i := max(0, l.n-2)
	for i > 0 && l.at[l.n-1].Sub(l.at[i]) < endedWindow {
		i--
	}
	return i
}

// grown returns by how much the counter of a pod has grown since the oldest look that is used.
func (l *looks) grown(p *podLooks, first int) int64 {
	for i := first; i < l.n-1; i++ {
		if p.usage[i] != unknown {
			return p.usage[l.n-1] - p.usage[i]
		}
	}
	return 0
}

// readHead reads the pods that have grown most without their page cache. A pod that fills page cache is among them; its
// rate shows that it does not grow otherwise.
func (l *looks) readHead(unexplained bool) {
	growing := l.growing(unexplained)
	l.head = l.head[:0]
	for i := range l.pods {
		l.pods[i].unread = false
	}
	for _, p := range growing {
		pod, err := l.reader.ReadPod(l.how, p.uid)
		if p.unread = err != nil; err != nil {
			continue // It has no rate, also if its cgroup is gone.
		}
		p.resident[l.n-1], p.memory = int64(pod.Resident), pod.Memory
		p.observeWorking(&pod.Memory)
		l.head = append(l.head, p)
	}
}

// growing returns the pods of the head: those that have grown most lately; those that were growing at the look before;
// the one that has grown most of all others since the oldest look that is used; if all that does not explain the growth
// of the node, those with most page cache, which they may use up; and then more of those that have grown most. Many
// pods may have grown before and have stopped when one begins, which has grown less.
func (l *looks) growing(unexplained bool) []*podLooks {
	first, recent := l.first, l.recent()
	lately := l.ranked(littleGrowth, func(p *podLooks) int64 { return l.grown(p, recent) })
	before := l.ranked(1, func(p *podLooks) int64 { return int64(p.rate) })
	most := l.ranked(leastGrowth, func(p *podLooks) int64 { return l.grown(p, first) })
	l.growers = l.growers[:0]
	l.addGrowers(recentCount, lately)
	l.addGrowers(headCount-1, before)
	l.addGrowers(min(len(l.growers)+1, headCount), most)
	if unexplained {
		l.addGrowers(headCount, l.ranked(leastGrowth, l.cacheOf))
	}
	l.addGrowers(headCount, most)
	return l.growers
}

// addGrowers adds pods to growers until there are so many.
func (l *looks) addGrowers(count int, pods [headCount]*podLooks) {
	for _, p := range pods {
		if p != nil && len(l.growers) < count && !slices.Contains(l.growers, p) {
			l.growers = append(l.growers, p)
		}
	}
}

// cacheOf returns how much page cache a pod has that its working set does not include, by the last reading of all pods.
func (l *looks) cacheOf(p *podLooks) int64 {
	if before := l.base[p.uid]; before != nil && before.WorkingSet.Known {
		return p.usage[l.n-1] - int64(before.WorkingSet.Amount)
	}
	return 0
}

// readOwners reads pods whose page cache may be used up, since statistics of all pods may lag by that until they are
// read: those that have lost most since the oldest look that is used; or, if no pod has grown or lost, those that use
// most, one of which may use up its own.
func (l *looks) readOwners() {
	first := l.first
	owners := l.ranked(leastGrowth, func(p *podLooks) int64 { return -l.grown(p, first) })
	if owners[0] == nil && len(l.head) == 0 {
		owners = l.ranked(1, func(p *podLooks) int64 { return p.usage[l.n-1] })
	}
	for _, p := range owners {
		if p != nil {
			_, _ = l.reader.ReadPod(l.how, p.uid) // Its statistics are summed up.
		}
	}
}

// ranked returns the pods for which an amount is greatest, and at least so much, the greatest first; then nil.
func (l *looks) ranked(least int64, amount func(*podLooks) int64) (most [headCount]*podLooks) {
	for i := range l.pods {
		p := &l.pods[i]
		n := amount(p)
		for j := 0; n >= least && j < len(most); j++ {
			if most[j] == nil || n > amount(most[j]) {
				copy(most[j+1:], most[j:])
				most[j] = p
				break
			}
		}
	}
	return most
}

// use begins with a reading of all pods, which others complete. Looks may have been made since the reading was begun:
// what pods have gained by then may not be in it. A pod that by the reading uses more than it did at the look before it
// has grown in between, and may have shrunk again before the next look: it counts as changed by that. With swap, which
// its counter does not have, that cannot be known.
func (l *looks) use(byPod map[types.UID]*snapshot.Memory, begun time.Time) {
	l.base, l.baseAt = byPod, begun
	look := l.n - 1
	for look >= 0 && l.at[look].After(begun) {
		look--
	}
	for i := range l.pods {
		p := &l.pods[i]
		p.read, p.excess = unknown, 0
		m := byPod[p.uid]
		p.observeWorking(m)
		if look < 0 || m == nil {
			continue
		}
		if p.read = p.usage[look]; p.read != unknown && !l.how.Swap {
			p.excess = max(0, int64(m.WorkingSet.Amount)-p.read)
		}
	}
}

// observeWorking records the working set of a pod that was read, nil if it was not.
func (p *podLooks) observeWorking(m *snapshot.Memory) {
	if m != nil && m.WorkingSet.Known {
		p.working = int64(m.WorkingSet.Amount)
	}
}

// stale reports whether the last reading of all pods, if any, is too old to be completed.
func (l *looks) stale(now time.Time) bool { return l.base == nil || now.Sub(l.baseAt) > baseAge }

// read takes a reading: of the pods that have changed most since they were last read, so many at most, if the rest is
// known and the growth of the node is explained; else of all.
func (l *looks) read(all Reader, now time.Time, most int) snapshot.MemoryReading {
	var r snapshot.MemoryReading
	explained := l.explained()
	if l.stale(now) || !explained {
		r = all.ReadMemory(l.how)
		l.use(r.ByPod, now)
		l.asked = len(l.pods)
	} else {
		r = l.readChanged(most)
	}
	l.measure(&r, explained)
	return r
}

// readChanged reads the pods that have changed most, so many at most, except for those of the head if the look has just
// read them, and then the node and all pods together.
func (l *looks) readChanged(most int) snapshot.MemoryReading {
	last := l.n - 1
	// The base is shared with earlier snapshots.
	byPod := make(map[types.UID]*snapshot.Memory, len(l.pods))
	var list []*podLooks
	for i := range l.pods {
		p := &l.pods[i]
		before := l.base[p.uid]
		if l.fresh && p.resident[last] != unknown && before != nil {
			now := p.memory
			now.Processes = before.Processes
			byPod[p.uid], p.read, p.excess = &now, p.usage[last], 0
			continue
		}
		if l.changeOf(p) > changed {
			list = append(list, p)
		} else if before != nil {
			before = asOf(before, l.state[last].date)
		}
		if before != nil {
			byPod[p.uid] = before
		}
	}
	slices.SortFunc(list, func(a, b *podLooks) int {
		return cmp.Or(cmp.Compare(l.changeOf(b), l.changeOf(a)), cmp.Compare(a.uid, b.uid))
	})
	list = list[:min(most, len(list))]
	uids := make([]types.UID, 0, len(list))
	for _, p := range list {
		uids = append(uids, p.uid)
	}
	r := l.reader.ReadPods(l.how, uids)
	l.asked = len(uids)
	for _, p := range list {
		p.read, p.excess = unknown, 0 // It is read again with the next reading.
		delete(byPod, p.uid)
		if m := r.ByPod[p.uid]; m != nil {
			byPod[p.uid], p.read = m, p.usage[last]
			p.observeWorking(m)
		}
	}
	r.ByPod, l.base = byPod, byPod
	return r
}

// asOf returns memory that has not changed until a date, with that date: so it has not grown.
func asOf(m *snapshot.Memory, date time.Time) *snapshot.Memory {
	now := *m
	for _, v := range []*snapshot.Value[snapshot.Bytes]{&now.WorkingSet, &now.Anonymous} {
		if v.At.Before(date) {
			v.At = snapshot.WallTime(date)
		}
	}
	return &now
}

// changeOf returns by how much the counter of a pod has changed since the pod was last read.
func (l *looks) changeOf(p *podLooks) int64 {
	if p.read == unknown {
		return math.MaxInt64
	}
	diff := p.usage[l.n-1] - p.read
	return max(diff, -diff, p.excess)
}
