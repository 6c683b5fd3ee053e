package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// sampleEvery is the distance between two remembered samples, sampleCount how many are kept. Together they are the window
	// over which growth is measured, long enough for the slowest source of pod figures (about 15 s between two of its own).
	sampleEvery = 8 * time.Second
	sampleCount = 4
)

// history holds a few samples of memory usage, the oldest first. Growth is worked out from it only when something is starved,
// so that a quiet round costs one small copy every few seconds.
type history struct {
	samples [sampleCount]*sample
}

type sample struct {
	taken     time.Time
	available snapshot.Observation
	pods      []podSample
}

type podSample struct {
	uid   types.UID
	usage int64
	at    time.Time
}

// with is the history after one more snapshot.
func (h history) with(s *snapshot.Snapshot) history {
	if last := h.samples[sampleCount-1]; last != nil && s.Taken.Sub(last.taken) < sampleEvery {
		return h
	}
	next := history{}
	copy(next.samples[:], h.samples[1:])
	next.samples[sampleCount-1] = newSample(s)
	return next
}

func newSample(s *snapshot.Snapshot) *sample {
	n := &sample{taken: s.Taken, available: s.Signals[snapshot.MemoryAvailable], pods: make([]podSample, 0, len(s.Pods))}
	for i := range s.Pods {
		if v := s.Pods[i].Memory(); v.Known {
			n.pods = append(n.pods, podSample{s.Pods[i].UID, int64(v.Amount), timeOr(v.At, s.Taken)})
		}
	}
	return n
}

func timeOr(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

// growth is how fast memory is being used up, in bytes per second, never negative.
type growth struct {
	pods map[types.UID]float64
	// node is how fast the node's available memory shrinks; it may be less than the pods' sum (something else gives back) or more.
	node float64
}

// growthAt measures against the oldest sample that knows the pod. A pod's rate is the smaller one of the long and the short
// window: a burst at its start, and a leak that has stopped, are not extrapolated.
func (h history) growthAt(s *snapshot.Snapshot) growth {
	g := growth{pods: map[types.UID]float64{}}
	current := newSample(s)
	for _, then := range h.samples {
		if then == nil || !then.taken.Before(s.Taken) {
			continue
		}
		if a, b := then.available, current.available; a.Known() && b.Known() {
			rate := -rateOf(b.Available-a.Available, b.Time(current.taken).Sub(a.Time(then.taken)))
			g.node = max(g.node, rate)
		}
		then.fold(current, g.pods)
	}
	return g
}

// fold merges the rates since this sample into rates, keeping the smaller one.
func (n *sample) fold(current *sample, rates map[types.UID]float64) {
	old := make(map[types.UID]podSample, len(n.pods))
	for _, p := range n.pods {
		old[p.uid] = p
	}
	for _, p := range current.pods {
		before, ok := old[p.uid]
		if !ok || !p.at.After(before.at) {
			continue
		}
		rate := max(0, rateOf(p.usage-before.usage, p.at.Sub(before.at)))
		if have, ok := rates[p.uid]; !ok || rate < have {
			rates[p.uid] = rate
		}
	}
}

func rateOf(delta int64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(delta) / elapsed.Seconds()
}

// over is how much comes to be used in a time at a rate, bounded so that sums stay far from overflowing.
func over(rate float64, d time.Duration) int64 {
	const bound = 1 << 52
	return int64(min(rate*d.Seconds(), bound))
}
