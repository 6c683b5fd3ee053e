package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pacing is what determines how many of the chosen pods are evicted in one round.
type pacing struct {
	// available is the least memory that a signal of the need has available, inFlight an upper bound of what terminations
	// in progress release, both in bytes.
	available, inFlight int64
	// imminent: at their rate of growth, candidates use up the available memory before a kill takes effect, so that there
	// is no time to evict them one by one.
	imminent bool
	// lately is how fast everything has grown in the last moments, in bytes per second.
	lately float64
	// significant is the least growth of candidates, in bytes per second, that is more than a fluctuation in comparison
	// with the growth of everything else.
	significant float64
	// growing: candidates have grown in total, significantly and in every window.
	growing bool
	// wait: an eviction is in progress, or one has failed a moment ago. Evictions are made one after the other, so that
	// the effect of each is observed.
	wait bool
	// paced: most of the growth is of memory that no candidate can release, that of the system or of critical pods.
	// Evictions do not end such growth, so that pods within their requests are evicted one in a monitoring period, no
	// faster than by stock.
	paced bool
	// due: the last eviction for the need was at least a monitoring period ago.
	due bool
}

// significantShare: growth of candidates counts as significant from this fraction (one tenth) of the growth of
// everything else on. Usage always fluctuates a little, and once no memory is left any rate would exhaust it.
const significantShare = 10

func (r *round) pacingOf(n *need, p *pending, list []candidate) pacing {
	now, timing := r.snapshot.Taken, &r.rules.Timing
	t := pacing{wait: r.mustWait(p), due: true, inFlight: p.amount}
	if n.group != memoryGroup {
		return t
	}
	t.available = r.snapshot.Signals[n.signal].Available
	for _, sig := range n.signals {
		t.available = min(t.available, r.snapshot.Signals[sig].Available)
	}
	candidates, others := r.growthRates(n, p, list)
	t.imminent = n.hard && usedUp(t.available, candidates.peak(), timing.KillTime) && !r.standsStill(t.available)
	t.lately = candidates.lately() + others.lately()
	t.significant = others.peak() / significantShare
	t.growing = candidates.steady() > 0 && combinedGrowth(list) >= t.significant
	// The peak of the others counts: on a node whose memory is used up their growth stops.
	t.paced = others.peak() > combinedGrowth(list) && !r.rules.dryRun
	if last := r.last.Needs[n.group].LastEviction; !last.IsZero() {
		t.due = now.Sub(last) >= timing.Period
	}
	return t
}

// standsStill reports whether neither the growth of the last moments nor that of the last quarter of a second uses up
// what is available before a kill takes effect: a burst that is over is in the samples of the last half minute.
func (r *round) standsStill(available int64) bool {
	now, long := r.snapshot.MemoryRate, r.snapshot.LongMemoryRate
	return now != nil && long != nil && long.Window >= snapshot.LongRateWindow &&
		!usedUp(available, float64(max(now.PerSecond, long.PerSecond)), r.rules.Timing.KillTime)
}

// growthRates returns the total growth of the candidates, and that of everything which no candidate can release: the
// system, critical pods, and pods that could not be stopped. The growth of a pod that is terminating is part of
// neither.
func (r *round) growthRates(n *need, p *pending, list []candidate) (candidates, others rate) {
	g := r.growthOf(n)
	candidates, others = unmeasured, unmeasured
	for i := range list {
		candidates.add(list[i].growth)
	}
	if n.has(snapshot.MemoryAvailable) {
		others = g.system
	}
	for i := range r.snapshot.Pods {
		if pod := &r.snapshot.Pods[i]; pod.Critical || p.excluded[pod.UID] == uncounted {
			others.add(g.of(i))
		}
	}
	return candidates, others
}

// usedUp reports whether the available memory is used up within a time at a rate in bytes per second.
func usedUp(available int64, rate float64, within time.Duration) bool {
	return rate > 0 && float64(available) < rate*within.Seconds()
}

// mustWait reports whether evictions have to wait for the effect of earlier ones. After a failed kill the next pod is
// evicted, but only after the time that a kill takes, so that a persistent failure does not involve all pods at once.
func (r *round) mustWait(p *pending) bool {
	t, now := &r.rules.Timing, r.snapshot.Taken
	return (!p.lastStarted.IsZero() && now.Sub(p.lastStarted) < t.Patience) ||
		(!p.lastFailed.IsZero() && now.Sub(p.lastFailed) < t.KillTime)
}

// victims returns the pods that are evicted in this round: the first one of those that were chosen, or, if exhaustion
// is imminent, those whose growth exhausts what is left; or else, or beside them if they release too little and the
// rest exhausts it very soon, as many of the chosen ones as cover the demand until a kill takes effect. Pods that are
// terminating already are lost in any case, so that the fewest of those that were chosen which cover that demand are
// hastened together. list has all candidates.
func (t *pacing) victims(c choice, list []candidate, d demand) []candidate {
	now := c.pods[:min(1, len(c.pods))]
	if n := hastened(c.pods); n > 1 {
		now = fewest(c.pods[:n], c.urgent, d.killTime)
	}
	if t.imminent {
		now = coveringPrefix(c.pods, c.urgent, d.killTime)
		exhausting := t.exhausting(list, d.killTime, d.killTime)
		if len(exhausting) == 0 && len(now) > 1 {
			// Several would go, of which those that do not grow end no growth, so that more would go in the next round.
			exhausting = t.fastest(list, d.killTime, d.killTime, func(*candidate) bool { return true })
		}
		switch {
		case len(exhausting) == 0:
		case t.restExhausts(list, exhausting) && !covers(exhausting, c.urgent, d.killTime):
			now = joined(now, exhausting)
		default:
			now = joined(now[:hastened(now)], exhausting)
		}
	}
	if !t.paced {
		return now
	}
	return t.limitPace(now, c.urgent-d.base, d.killTime)
}

// restExhausts reports whether the growth of the candidates that do not go is significant, and uses up what is left so
// soon that there may be no time for another decision.
func (t *pacing) restExhausts(list, going []candidate) bool {
	all := growthLately(list)
	rest := all - growthLately(going)
	return rest >= all/significantShare && usedUp(t.available, rest, hasteTime)
}

// joined returns the first list, and those of the second that are not in it.
func joined(first, second []candidate) []candidate {
	all := slices.Clone(first)
	for i := range second {
		if !slices.ContainsFunc(first, func(c candidate) bool { return c.pod == second[i].pod }) {
			all = append(all, second[i])
		}
	}
	return all
}

// hastened returns how many pods at the beginning of the list are terminating already.
func hastened(list []candidate) int {
	if n := slices.IndexFunc(list, func(c candidate) bool { return !c.hasten }); n >= 0 {
		return n
	}
	return len(list)
}

// limitPace leaves out pods within their requests, except for one in a monitoring period. If exhaustion is imminent, it
// keeps as many of them as cover what the candidates themselves grow by until a kill takes effect, less what
// terminations in progress release.
func (t *pacing) limitPace(now []candidate, grown int64, killTime time.Duration) (kept []candidate) {
	slot := t.due && !t.wait
	open := saturatingAdd(grown, -t.inFlight)
	for i := range now {
		c := &now[i]
		switch {
		case !c.isWithin():
		case t.imminent && t.growing && (open > 0 || (c.growth.steady() >= t.significant &&
			usedUp(t.available, c.growth.steady(), killTime))):
		case slot:
			slot = false
		default:
			continue
		}
		kept, open = append(kept, *c), saturatingAdd(open, -c.gain(killTime))
	}
	return kept
}

// firstOverRequest returns the pod to evict while all chosen ones have to await their turn because of their pace: the
// first of the ranking that exceeds its request. It was not chosen because its release is not enough.
func (t *pacing) firstOverRequest(list []candidate, killTime time.Duration) []candidate {
	if t.wait {
		return nil
	}
	for i := range list {
		if c := &list[i]; !c.isWithin() && !c.optedOut && c.gain(killTime) > 0 {
			return list[i : i+1]
		}
	}
	return nil
}

// mostShare: pods account for most of the growth if the others account for this fraction (one quarter) of it at most.
const mostShare = 4

// exhausting returns pods that use up what is available within a time, and whose growth a fence ends: so there are none
// that cannot be fenced, or whose growth is insignificant. A larger pod that ranks before them covers more, but too
// late: what is left is used up while it is killed.
func (t *pacing) exhausting(list []candidate, within, killTime time.Duration) []candidate {
	if t.available < 0 {
		return nil
	}
	return t.fastest(list, within, killTime, func(c *candidate) bool {
		return c.mayBeFenced() && c.growth.lately() >= t.lately/significantShare
	})
}

// fastest returns those of the candidates above their requests that grow fastest, of those that qualify: as many that
// without their growth the others do not use up what is available within a time; or if the others do that too, as many
// that account for most of the growth. There are none if what is left outlasts a kill of them. Only growth of the last
// moments counts: a burst that is over uses up nothing.
func (t *pacing) fastest(
	list []candidate, within, killTime time.Duration, qualifies func(*candidate) bool,
) []candidate {
	var fastest []candidate
	all := growthLately(list)
	for i := range list {
		c := &list[i]
		if c.growth.lately() >= 1 && !c.isWithin() && !c.optedOut && qualifies(c) {
			fastest = append(fastest, *c)
		}
	}
	if !usedUp(t.available, all, within) {
		return nil
	}
	slices.SortStableFunc(fastest, func(a, b candidate) int { return cmp.Compare(b.growth.lately(), a.growth.lately()) })
	chosen := fewestExhausting(fastest, all, func(rest float64) bool { return usedUp(t.available, rest, within) })
	if !usedUp(t.available, growthLately(chosen), killTime) {
		return nil
	}
	return chosen
}

// fewestExhausting returns so many of the fastest candidates that the rest of all growth, total, does not exhaust what
// is left any more; or else so many that the rest is a quarter of it at most; or else so many that the rest of theirs
// is a tenth of it at most, if theirs is at least half of all: then what is left lasts longer.
func fewestExhausting(fastest []candidate, total float64, exhausts func(rest float64) bool) []candidate {
	own := growthLately(fastest)
	rest, mostOfAll, mostOfOwn := own, 0, 0
	for i := range fastest {
		rest -= fastest[i].growth.lately()
		switch all := rest + total - own; {
		case !exhausts(all):
			return fastest[:i+1]
		case mostOfAll == 0 && all <= total/mostShare:
			mostOfAll = i + 1
		}
		if mostOfOwn == 0 && own >= total/2 && rest <= own/significantShare {
			mostOfOwn = i + 1
		}
	}
	return fastest[:cmp.Or(mostOfAll, mostOfOwn)]
}

// growthLately returns how fast candidates have grown together in the last moments, in bytes per second.
func growthLately(list []candidate) (sum float64) {
	for i := range list {
		sum += list[i].growth.lately()
	}
	return sum
}

// coveringPrefix returns the shortest prefix of the list that covers the need, or all of the list.
func coveringPrefix(list []candidate, need int64, horizon time.Duration) []candidate {
	var sum int64
	for i := range list {
		if sum = saturatingAdd(sum, list[i].gain(horizon)); sum >= need {
			return list[:i+1]
		}
	}
	return list
}
