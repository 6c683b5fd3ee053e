package memorywatch

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file has pods that grow, and become several times as fast.

// observeFaster finds out whether a pod grows several times as fast as before, which its rate does not show. Until it
// has grown by several huge pages, a pod that grows slowly may just have got one; and until it has done so in more than
// one step, beside what it has gained slowly, it may have taken all at once. It does not any more when it has stood
// still for a moment.
func (l *looks) observeFaster(p *podLooks) {
	last := l.n - 1
	if p.faster && l.at[last].Sub(l.at[l.stillFrom(p, last)]) >= 2*endedWindow {
		p.again, p.faster = 0, false
	}
	most, from := int64(0), -1
	for i := last - 1; i > max(p.since, l.first) && p.resident[i] != unknown; i-- {
		most = max(most, p.resident[i+1]-p.resident[i])
		grown, window := p.resident[last]-p.resident[i], l.at[last].Sub(l.at[i])
		if grown < fasterGrowth || grown-most < leastGrowth {
			continue
		}
		if from < 0 {
			from = l.sumClimbs(p, i)
		}
		before, ok := l.rateBetween(p, from, i)
		if slowly := int64(float64(before) * window.Seconds()); grown-most-slowly < leastGrowth {
			continue
		}
		if ok && l.isFaster(p, before, perSecond(grown, window)) {
			p.again, p.faster = i, true
		}
		return
	}
}

// jumped reports whether a pod without a fence has taken so much since the look before the last one that it may have
// become several times as fast: only the next look shows whether it has, or has taken all at once. Beside pods that
// have grown much more that does not matter.
func (l *looks) jumped() bool {
	last := l.n - 1
	return last > 0 && slices.ContainsFunc(l.head, func(p *podLooks) bool {
		if p.resident[last-1] == unknown || p.again == last-1 || slices.Contains(l.victims, p.uid) {
			return false
		}
		grown := p.resident[last] - p.resident[last-1]
		if grown < fasterGrowth || grown < l.othersGrown(p, last-1)/begunShare {
			return false
		}
		before, ok := l.rateBefore(p, last-1)
		return ok && l.isFaster(p, before, perSecond(grown, l.at[last].Sub(l.at[last-1])))
	})
}

// isFaster reports whether the rate of a pod is several times the one before, and much higher than the one that is
// known.
func (l *looks) isFaster(p *podLooks, before, lately snapshot.Bytes) bool {
	rate, _, _ := l.rateOf(p)
	return lately >= fasterTimes*before && lately > 2*rate.PerSecond
}

// rateBefore returns how fast a pod grew until a look since it stopped. It returns false if that was for less than
// stepWindow, or if the pod was not read then.
func (l *looks) rateBefore(p *podLooks, look int) (snapshot.Bytes, bool) {
	if p.resident[look] == unknown {
		return 0, false
	}
	return l.rateBetween(p, l.sumClimbs(p, look), look)
}

// rateBetween is rateBefore after sumClimbs.
func (l *looks) rateBetween(p *podLooks, from, look int) (snapshot.Bytes, bool) {
	window := l.at[look].Sub(l.at[from])
	if window < stepWindow {
		return 0, false
	}
	return perSecond(max(l.climbs[look], p.resident[look]-p.resident[from]), window), true
}

// sumClimbs sets climbs for a pod and the looks since it stopped, up to one at which it was read. It returns the first
// of these looks. One that uses memory and frees it again and again grows no faster each time: what it has freed is not
// subtracted. Less than leastGrowth is neither a climb nor the end of one, since counters of pods at rest go up and
// down as well.
func (l *looks) sumClimbs(p *podLooks, to int) (from int) {
	for from = to; from > max(p.since, l.first) && p.resident[from-1] != unknown; from-- {
	}
	sum, low, high := int64(0), p.resident[from], p.resident[from]
	for i := from; i <= to; i++ {
		now, climb := p.resident[i], high-low
		switch {
		case now > high:
			high = now
		case now <= high-leastGrowth:
			if climb >= leastGrowth {
				sum += climb
			}
			low, high = now, now
		case now < low:
			low, high = now, now
		}
		if l.climbs[i] = sum; high-low >= leastGrowth {
			l.climbs[i] += high - low
		}
	}
	return from
}

// mayHaveBecomeFaster reports whether a pod that grows has lately grown by more than before, which the counters of one
// CPU do not account for, but not by so much that its rate is certain: several times as much in endedWindow or a little
// more, which its rate does not show; or any more if it was not read for so long, since it may have used all that in
// the last moment. Beside pods that have grown much more that does not matter.
func (l *looks) mayHaveBecomeFaster(p *podLooks) bool {
	last, recent := l.n-1, l.recent()
	before, ok := l.rateBefore(p, recent)
	if !ok || p.resident[last] == unknown || recent < p.since {
		return false
	}
	grown, window := p.resident[last]-p.resident[recent], l.at[last].Sub(l.at[recent])
	expected := int64(float64(before) * window.Seconds())
	more := grown - expected
	if more < littleGrowth || more < l.othersGrown(p, recent)/begunShare {
		return false
	}
	if window >= 2*endedWindow {
		return grown < clearPages
	}
	rate, _, _ := l.rateOf(p)
	return grown < fasterGrowth && grown >= fasterTimes*expected && perSecond(grown, window) > 2*rate.PerSecond
}
