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
	most := int64(0)
	for i := last - 1; i > max(p.since, l.first) && p.resident[i] != unknown; i-- {
		most = max(most, p.resident[i+1]-p.resident[i])
		grown, window := p.resident[last]-p.resident[i], l.at[last].Sub(l.at[i])
		if grown < fasterGrowth || grown-most < leastGrowth {
			continue
		}
		before, _ := l.rateBefore(p, i)
		if slowly := int64(float64(before) * window.Seconds()); grown-most-slowly < leastGrowth {
			continue
		}
		if l.isFaster(p, i, perSecond(grown, window)) {
			p.again, p.faster = i, true
		}
		return
	}
}

// jumped reports whether a pod has taken so much since the look before the last one that it may have become several
// times as fast: only the next look shows whether it has, or has taken all at once.
func (l *looks) jumped() bool {
	last := l.n - 1
	return last > 0 && slices.ContainsFunc(l.head, func(p *podLooks) bool {
		if p.resident[last-1] == unknown || p.again == last-1 {
			return false
		}
		grown := p.resident[last] - p.resident[last-1]
		return grown >= fasterGrowth && l.isFaster(p, last-1, perSecond(grown, l.at[last].Sub(l.at[last-1])))
	})
}

// isFaster reports whether the rate of a pod since a look is several times that until then, and much higher than the
// one that is known.
func (l *looks) isFaster(p *podLooks, look int, lately snapshot.Bytes) bool {
	before, ok := l.rateBefore(p, look)
	rate, _, _ := l.rateOf(p)
	return ok && lately >= fasterTimes*before && lately > 2*rate.PerSecond
}

// rateBefore returns how fast a pod grew until a look since it stopped. What it has freed meanwhile does not make it
// slower: one that uses memory and frees it again and again grows no faster each time. It returns false if that was for
// less than stepWindow, or if the pod was not read then.
func (l *looks) rateBefore(p *podLooks, look int) (snapshot.Bytes, bool) {
	begin, rises := look, int64(0)
	for begin > max(p.since, l.first) && p.resident[begin-1] != unknown {
		if rise := p.resident[begin] - p.resident[begin-1]; rise >= littleGrowth {
			rises += rise
		}
		begin--
	}
	window := l.at[look].Sub(l.at[begin])
	if p.resident[look] == unknown || window < stepWindow {
		return 0, false
	}
	return perSecond(max(rises, p.resident[look]-p.resident[begin]), window), true
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
