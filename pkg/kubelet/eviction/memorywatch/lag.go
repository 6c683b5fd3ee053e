package memorywatch

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"

// This file says by how much counters lag behind what pods use, and which growth may be nothing but that.

// batch is what each CPU charges to a cgroup in advance: 64 pages (MEMCG_CHARGE_BATCH in the kernel's
// include/linux/memcontrol.h).
const batch = int64(64 * 4096)

// lagOf returns by how much the counter of a pod at rest may vary: its threads run on every CPU now and then.
func lagOf(reader Reader) int64 {
	cpus := 0
	if counter, ok := reader.(CPUCounter); ok {
		cpus = counter.CPUs()
	}
	return max(leastGrowth, int64(cpus)*batch)
}

// leastRise returns the growth below which a pod counts as not growing. While a hard threshold is met that is what its
// counter may lag by, or one PostponeShare-th of what is left if that is less: the pod that caused it has its fence,
// and then pods at rest would seem to grow fastest.
func (l *looks) leastRise() int64 {
	if !l.hardMet {
		return leastGrowth
	}
	return max(leastGrowth, min(l.lag, l.left/PostponeShare))
}

// mayLag reports whether a pod that counts as growing since a look may be at rest: it has grown by no more than its
// counter may lag, and pods that have grown by more account for what was used up meanwhile; or they have grown by half
// as much as the pod (explainedShare), since what it seems to use is missing where the counter of the node lags too.
func (l *looks) mayLag(p *podLooks, from int) bool {
	last := l.n - 1
	grown := p.resident[last] - p.resident[from]
	if grown <= 0 || grown > l.lag {
		return false
	}
	var others int64
	for _, o := range l.head {
		_, begin, ok := l.rateOf(o)
		if o == p || !ok || o.resident[last]-o.resident[begin] <= l.lag {
			continue
		}
		if o.resident[from] != unknown {
			begin = from
		}
		others += max(0, o.resident[last]-o.resident[begin])
	}
	return others > 0 && others >= min(grown, l.usedUp(from))/explainedShare
}

// clearRate returns how fast a pod grows, zero if it does not or if its counter may just lag.
func (l *looks) clearRate(p *podLooks) snapshot.Bytes {
	rate, from, ok := l.rateOf(p)
	if !ok || rate.PerSecond <= 0 || l.mayLag(p, from) {
		return 0
	}
	return rate.PerSecond
}

// unclear reports whether, of several pods that count as growing, the fastest has grown by no more than its counter may
// lag. It may be at rest: then it grows no further, and soon counts as slower than the others.
func (l *looks) unclear() bool {
	last, growing := l.n-1, 0
	var sure, unsure snapshot.Bytes
	for _, p := range l.head {
		rate, begin, ok := l.rateOf(p)
		if !ok || rate.PerSecond <= 0 {
			continue
		}
		growing++
		switch {
		case p.resident[last]-p.resident[begin] > l.lag:
			sure = max(sure, rate.PerSecond)
		case !l.mayLag(p, begin):
			unsure = max(unsure, rate.PerSecond)
		}
	}
	return growing > 1 && unsure > sure
}
