package memorywatch

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file has what looks say: how fast pods and the node grow.

// observeEnd finds out whether a pod of the head has stopped growing, at the last look that shows it.
func (l *looks) observeEnd(p *podLooks) {
	last := l.n - 1
	for i := last - 1; i > max(p.since, l.first-1); i-- {
		if p.resident[i] == unknown || l.at[last].Sub(l.at[i]) < endedWindow {
			continue
		}
		others := l.othersGrown(p, i)
		if others < leastGrowth {
			continue
		}
		if grown := p.resident[last] - p.resident[i]; grown < min(leastGrowth, others/endedShare) {
			p.since = i
		}
		return
	}
}

// observePause finds out whether a pod goes on after a pause: it grows after it has stood still for stepWindow, or for
// endedWindow since it stopped.
func (l *looks) observePause(p *podLooks) {
	last := l.n - 1
	again := l.stillFrom(p, last)
	end := again - 1
	if end < max(p.since, l.first) || p.resident[end] == unknown || p.resident[last] <= p.resident[end] {
		return
	}
	begin, least := l.stillFrom(p, end), stepWindow
	if p.since > 0 && begin == p.since {
		least = endedWindow
	}
	if l.at[last].Sub(l.at[begin]) < least {
		return
	}
	p.again, p.faster = end, false
	if l.at[again].Sub(l.at[end]) >= endedWindow && p.resident[last]-p.resident[end] < clearPages {
		p.again = again // It may have gone on at any time between these looks. The next one shows its rate.
	}
}

// stillFrom returns the index of the first of the looks at a pod from which until another one it stood still.
func (l *looks) stillFrom(p *podLooks, to int) (from int) {
	for from = to; from > max(p.since, l.first) && p.resident[from-1] != unknown; from-- {
		if diff := p.resident[to] - p.resident[from-1]; max(diff, -diff) >= littleGrowth {
			break
		}
	}
	return from
}

// rateOf returns the rate of a pod since it last stopped growing, or since it went on after a pause if that is higher,
// and the index of the look with which it begins. It is not measured unless the pod was read twice without its page
// cache since it stopped.
func (l *looks) rateOf(p *podLooks) (r snapshot.Rate, from int, ok bool) {
	r, from, ok = l.rateFrom(p, max(l.first, p.since))
	if !ok || p.again <= from {
		return r, from, ok
	}
	again, begin, measured := l.rateFrom(p, p.again)
	if measured && again.PerSecond > r.PerSecond && (again.Window >= stepWindow || !l.oneHugePage(p, p.again-1)) {
		return again, begin, true
	}
	return r, from, ok
}

// mayGrowFaster reports whether a pod that went on after a pause may grow at more than twice its measured rate. A pod
// grows by whole huge pages: until the next one would be due at twice the rate, looks do not show that it is slower. It
// is false if other pods account for what was used up meanwhile.
func (l *looks) mayGrowFaster(p *podLooks) bool {
	r, from, ok := l.rateOf(p)
	if !ok || p.again <= from || p.resident[p.again] == unknown {
		return false
	}
	last, end := l.n-1, p.again-1
	window, grown := l.at[last].Sub(l.at[p.again]), p.resident[last]-p.resident[p.again]
	if window >= stepWindow || (window > 0 && perSecond(max(grown, hugePage), window) <= 2*r.PerSecond) {
		return false
	}
	used := l.usedUp(end)
	return used < leastGrowth || l.othersGrown(p, end) < used/explainedShare
}

// othersGrown returns by how much the other pods of the head have grown since a look.
func (l *looks) othersGrown(p *podLooks, look int) (sum int64) {
	for _, o := range l.head {
		if o != p && o.resident[look] != unknown {
			sum += max(0, o.resident[l.n-1]-o.resident[look])
		}
	}
	return sum
}

// rateFrom returns the rate of a pod since the first look from an index on from which it was read with each look:
// before that it may have grown and stopped.
func (l *looks) rateFrom(p *podLooks, first int) (r snapshot.Rate, from int, ok bool) {
	last := l.n - 1
	if last < 0 || p.resident[last] == unknown {
		return r, 0, false
	}
	begin := last
	for begin > first && p.resident[begin-1] != unknown {
		begin--
	}
	for i := begin; i < last; i++ {
		window := l.at[last].Sub(l.at[i])
		if window < leastWindow {
			continue
		}
		grown := p.resident[last] - p.resident[i]
		if max(grown, -grown) < l.leastRise() || (l.hardMet && window < stepWindow && l.oneHugePage(p, i)) {
			if window < endedWindow {
				continue // Counters may lag by that much.
			}
			grown = 0
		}
		return snapshot.Rate{PerSecond: perSecond(grown, window), Window: window}, i, true
	}
	return r, 0, false
}

// still returns for how long the counter of a pod has not changed by leastGrowth.
func (l *looks) still(p *podLooks) time.Duration {
	last := l.n - 1
	i := last
	for ; i > l.first && p.usage[i-1] != unknown; i-- {
		if diff := p.usage[last] - p.usage[i-1]; max(diff, -diff) >= leastGrowth {
			break
		}
	}
	return l.at[last].Sub(l.at[i])
}

// oneHugePage reports whether a pod has grown by no more than a huge page since the look at an index, and that at once.
func (l *looks) oneHugePage(p *podLooks, from int) bool {
	last, most := l.n-1, int64(0)
	for i := from; i < last; i++ {
		most = max(most, p.resident[i+1]-p.resident[i])
	}
	grown := p.resident[last] - p.resident[from]
	return grown > 0 && grown <= hugePage+littleGrowth && grown-most < littleGrowth
}

// usedUp returns what was used up since the look at an index: of the node, or of all pods together if they have less.
// Page cache of pods that was freed meanwhile was available before; that which was added counts as used up, since what
// is spare is not read with each look.
func (l *looks) usedUp(from int) int64 {
	then, now := &l.state[from], &l.state[l.n-1]
	if !now.pods {
		return then.free - now.free
	}
	return now.used - then.used + max(0, then.spare-now.spare)
}

// endedSince returns how much of that was used by pods that have stopped growing since.
func (l *looks) endedSince(from int) (sum int64) {
	for i := range l.pods {
		p := &l.pods[i]
		for j := from; j < p.since; j++ {
			if p.resident[j] != unknown {
				sum += max(0, p.resident[p.since]-p.resident[j])
				break
			}
		}
	}
	return sum
}

// totalRate returns how fast that was used up.
func (l *looks) totalRate(from int) snapshot.Rate {
	window := l.at[l.n-1].Sub(l.at[from])
	return snapshot.Rate{PerSecond: perSecond(l.usedUp(from), window), Window: window}
}

// rateUntil returns how fast memory was used up from a look until a reading that was taken after the last look; zero if
// the reading does not show that.
func (l *looks) rateUntil(r *snapshot.MemoryReading, from int) snapshot.Bytes {
	then := &l.state[from]
	o, used := &r.Node, then.free-r.Node.Available
	if l.state[l.n-1].pods {
		o = &r.Pods
		used = o.Capacity - o.Available - (then.used - then.spare)
	}
	if !o.Known() || o.At.Before(l.state[l.n-1].date) {
		return 0
	}
	return perSecond(used, o.At.Sub(then.date))
}

func perSecond(n int64, window time.Duration) snapshot.Bytes {
	if window <= 0 {
		return 0
	}
	const bound = 1 << 52
	return snapshot.Bytes(max(-bound, min(bound, float64(n)/window.Seconds())))
}

// measure adds the rates to a reading. The rate of the node has the same window as that of the pod that grows fastest,
// so that one is comparable with the other. Where the growth of the node is explained, a pod whose counter stands still
// does not grow either; it might otherwise use up its own page cache.
func (l *looks) measure(r *snapshot.MemoryReading, explained bool) {
	last := l.n - 1
	if last < 1 {
		return
	}
	r.PodRates = make(map[types.UID]*snapshot.Rate, len(l.pods))
	var fastest, ofPods, growth snapshot.Bytes
	from := l.first
	for i := range l.pods {
		p := &l.pods[i]
		rate, begin, ok := l.rateOf(p)
		still := l.still(p)
		if !ok && explained && still > 0 {
			r.PodRates[p.uid] = &snapshot.Rate{Window: still, Still: true}
		}
		if !ok {
			continue
		}
		if l.mayLag(p, begin) {
			rate.PerSecond = 0
		}
		if rate.Still = still >= rate.Window; rate.Still {
			rate.Window = still // It may have stood still before its growth was last measured.
		}
		r.PodRates[p.uid] = &rate
		ofPods += rate.PerSecond
		if !slices.Contains(l.evicted, p.uid) {
			growth += max(0, rate.PerSecond)
		}
		if rate.PerSecond > fastest {
			fastest, from = rate.PerSecond, begin
		}
	}
	rate := func(from int) *snapshot.Rate { return l.nodeRate(r, from, ofPods, growth) }
	r.Rate, r.LongRate = rate(from), rate(l.before(snapshot.LongRateWindow))
}

// nodeRate returns how fast memory was used up since a look, or all that pods grow by if a reading shows it; nil if the
// look is too near. What pods free that are being evicted does not slow the growth of the others.
func (l *looks) nodeRate(r *snapshot.MemoryReading, from int, ofPods, growth snapshot.Bytes) *snapshot.Rate {
	total := l.totalRate(from)
	if total.Window < leastWindow {
		return nil
	}
	ended := perSecond(l.endedSince(from), total.Window)
	if total.PerSecond > 0 {
		total.PerSecond = max(0, total.PerSecond-ended)
	}
	total.PerSecond = max(total.PerSecond, min(ofPods, l.rateSinceFreed(from)))
	released := l.state[l.n-1].released - l.state[from].released
	total.PerSecond = max(total.PerSecond, min(growth, perSecond(l.usedUp(from)+released, total.Window)-ended))
	// Pods are read after the counters, and may have grown by a huge page in between.
	page := perSecond(hugePage, total.Window)
	total.PerSecond = max(total.PerSecond, min(ofPods, l.rateUntil(r, from)-ended, total.PerSecond+page))
	return &total
}

// rateSinceFreed returns how fast memory was used up after some was freed since a look: that does not slow growth
// which goes on. It is the greatest rate since a later look, at least twice endedWindow ago, after which more was used
// up than since the first; zero if there is none.
func (l *looks) rateSinceFreed(from int) (most snapshot.Bytes) {
	last, used := l.n-1, max(l.usedUp(from), 2*leastGrowth-1)
	for i := from + 1; i < last && l.at[last].Sub(l.at[i]) >= 2*endedWindow; i++ {
		if l.usedUp(i) > used {
			most = max(most, l.totalRate(i).PerSecond)
		}
	}
	return most
}

// before returns the index of the last look that is at least so much older than the newest, or of the oldest one that
// is used.
func (l *looks) before(window time.Duration) int {
	i := l.n - 1
	for i > l.first && l.at[l.n-1].Sub(l.at[i]) < window {
		i--
	}
	return i
}

// explained reports whether the pods that were measured account for what was used up since the oldest look that is
// used.
func (l *looks) explained() bool {
	if l.n < 2 {
		return false
	}
	var sum int64
	from := l.n
	for i := range l.pods {
		if rate, begin, ok := l.rateFrom(&l.pods[i], l.first); ok && rate.PerSecond > 0 {
			sum, from = sum+int64(rate.PerSecond), min(from, begin)
		}
	}
	if from == l.n {
		from = l.first
	}
	return l.usedUp(from) < leastGrowth || sum >= int64(l.totalRate(from).PerSecond)/explainedShare
}

// explainedLately reports whether the pods that were read account for what was used up in endedWindow or a little more.
func (l *looks) explainedLately() bool {
	last, recent := l.n-1, l.recent()
	var sum int64
	for i := range l.pods {
		if p := &l.pods[i]; p.resident[last] != unknown && p.resident[recent] != unknown {
			sum += max(0, p.resident[last]-p.resident[recent])
		}
	}
	used := l.usedUp(recent)
	return used < leastGrowth || sum >= used/explainedShare
}

// unmeasured reports whether the next looks will show which pod accounts for the growth of the node, which these do
// not: less has grown than counters lag, or nothing while the looks span less than that may take (endedWindow); a pod
// has just begun to grow, or gone on, or may have become faster; the pod that seems to grow fastest may be at rest;
// those that grew before do not account for what is used up now; or a pod that may account for it could not be read, or
// was first read without its page cache less than within ago, and either the growth is not explained, or the counter of
// the latter has grown more than those of the pods that are growing. postponed is for how long the decision has waited.
func (l *looks) unmeasured(within, postponed time.Duration) bool {
	if l.n == 0 {
		return false
	}
	last, first, growing := l.n-1, l.first, false
	var most int64
	for i := range l.pods {
		p := &l.pods[i]
		if rate, _, ok := l.rateOf(p); ok && rate.PerSecond > 0 {
			growing, most = true, max(most, l.grown(p, first))
		}
	}
	used, span := l.usedUp(first), l.at[last].Sub(l.at[first])
	if !growing && used < leastGrowth && (used > 0 || span < endedWindow) {
		return true
	}
	if l.justBegun(postponed) || (growing && !l.growsNow()) || l.unclear() || l.jumped() {
		return true
	}
	explained := l.explained()
	for i := range l.pods {
		p := &l.pods[i]
		if l.mayGrowFaster(p) || l.mayHaveBecomeFaster(p) {
			return true
		}
		if p.resident[last] == unknown {
			if p.unread && !explained {
				return true
			}
			continue
		}
		rate, from, ok := l.rateOf(p)
		if !ok || rate.PerSecond != 0 || l.at[last].Sub(l.at[from]) >= within {
			continue
		}
		// Page cache is no growth.
		if !explained || (p.resident[last]-p.resident[from] >= littleGrowth/4 && l.grown(p, first) > most) {
			return true
		}
	}
	return false
}

// justBegun reports whether a pod was read without its page cache for the first time, so that the next look shows its
// rate; or whether a pod that grows was measured for less than endedWindow, and another one that counts as growing for
// longer. The other may have stopped when this one began, or it may grow slowly beside it. While others account for
// what is used up, a pod that has gained less than a batch of pages has not begun: counters of pods at rest vary by
// that, and while a hard threshold is met most of them by just that. Nor has one that has gained less than leastGrowth,
// once the decision was postponed for endedWindow, or if it is slow beside the others.
func (l *looks) justBegun(postponed time.Duration) bool {
	var shortest, longest time.Duration
	least, small := batch, false
	switch {
	case postponed >= endedWindow:
		least = leastGrowth
	case l.hardMet:
		least = l.leastRise()/4 + 1
	}
	for i := range l.pods {
		p := &l.pods[i]
		rate, _, ok := l.rateOf(p)
		switch {
		case !ok && p.resident[l.n-1] != unknown:
			if risen := l.risen(p); risen >= least && l.matters(risen) {
				return true
			}
			small = true
		case ok && rate.PerSecond > 0:
			longest = max(longest, rate.Window)
			if shortest == 0 || rate.Window < shortest {
				shortest = rate.Window
			}
		}
	}
	if small && (!l.explained() || !l.explainedLately()) {
		return true
	}
	return longest >= endedWindow && shortest < endedWindow
}

// matters reports whether a pod that has just risen by an amount may grow fast beside those that were measured: by
// leastGrowth, or at one begunShare-th of the rate of the fastest at least.
func (l *looks) matters(risen int64) bool {
	_, fastest := l.fastest()
	lately := l.at[l.n-1].Sub(l.at[l.recent()])
	return risen >= leastGrowth || perSecond(risen, lately) >= fastest/begunShare
}

// risen returns by how much the counter of a pod has grown since it was lowest. The pod may have freed memory before it
// began to grow.
func (l *looks) risen(p *podLooks) int64 {
	lowest := p.usage[l.n-1]
	for _, usage := range p.usage[l.first:l.n] {
		if usage != unknown {
			lowest = min(lowest, usage)
		}
	}
	return p.usage[l.n-1] - lowest
}

// growsNow reports whether the pods that count as growing have grown in endedWindow or a little more as before, or
// account for what was used up then. Otherwise they may have stopped when another one began, which has grown by less
// than counters lag, or by a huge page.
func (l *looks) growsNow() bool {
	last, recent := l.n-1, l.recent()
	var grown, expected int64
	for i := range l.pods {
		p := &l.pods[i]
		rate, _, ok := l.rateOf(p)
		if !ok || rate.PerSecond <= 0 {
			continue
		}
		more := int64(float64(rate.PerSecond) * l.at[last].Sub(l.at[recent]).Seconds())
		expected += more
		if p.resident[recent] != unknown { // Otherwise it was read for less than that.
			more = max(0, p.resident[last]-p.resident[recent])
		}
		grown += more
	}
	used := l.usedUp(recent)
	if expected >= littleGrowth {
		used = max(used, littleGrowth) // They must have grown, also if nothing was used up.
	}
	return grown >= min(expected, used)/explainedShare
}

// fastest returns the pod that grows fastest, and its rate; "" and zero if none is known to grow.
func (l *looks) fastest() (uid types.UID, most snapshot.Bytes) {
	for _, p := range l.head {
		if rate, _, ok := l.rateOf(p); ok && rate.PerSecond > most {
			uid, most = p.uid, rate.PerSecond
		}
	}
	return uid, most
}

// growsAnew reports whether a pod uses up what is left within a time, which the last round has not shown: it was not
// growing then, or much slower; or, if again, it has grown on without a fence, since memory was freed at that moment,
// say.
func (l *looks) growsAnew(left int64, within time.Duration, again bool) bool {
	for i := range l.pods {
		p := &l.pods[i]
		rate := l.clearRate(p)
		if rate > 0 && float64(rate)*within.Seconds() > float64(max(0, left)) && !l.isServed(p, rate, again) {
			return true
		}
	}
	return false
}

// isServed reports whether a pod that grows at a rate has a fence, or the last round has shown that it grows. If again,
// or if it grows much faster now, it must have used little since then too.
func (l *looks) isServed(p *podLooks, rate snapshot.Bytes, again bool) bool {
	if slices.Contains(l.victims, p.uid) {
		return true
	}
	i := slices.IndexFunc(l.served, func(s servedPod) bool { return s.uid == p.uid })
	if i < 0 {
		return false
	}
	served := &l.served[i]
	again = again || rate > servedFaster*served.rate
	return !again || p.usage[l.n-1]-served.usage < max(leastGrowth, l.servedLeft/servedShare)
}

// serve records which pods are growing at a round, and what remained then. One whose counter may just lag then is found
// once it is clear that it grows.
func (l *looks) serve() {
	l.served, l.servedLeft = l.served[:0], l.left
	for i := range l.pods {
		p := &l.pods[i]
		if rate := l.clearRate(p); rate > 0 {
			l.served = append(l.served, servedPod{p.uid, p.usage[l.n-1], rate})
		}
	}
}

// decided records which pods are being evicted after a decision, and those of its victims that are fenced as long as a
// hard threshold is met: one without a fence may need one later.
func (l *looks) decided(d *policy.Decision, inFlight []snapshot.InFlight, hardMet bool) {
	l.evicted = l.evicted[:0]
	for i := range inFlight {
		if f := &inFlight[i]; f.State != snapshot.Failed {
			l.evicted = append(l.evicted, f.UID)
		}
	}
	for i := range d.Victims {
		if d.Victims[i].Killer == snapshot.PodWorker { // Others are in flight once the API server has accepted that.
			l.evicted = append(l.evicted, d.Victims[i].Pod.UID)
		}
	}
	if !hardMet {
		l.victims = l.victims[:0]
		return
	}
	for i := range d.Victims {
		if uid := d.Victims[i].Pod.UID; d.Victims[i].Fence != nil && !slices.Contains(l.victims, uid) {
			l.victims = append(l.victims, uid)
		}
	}
}
