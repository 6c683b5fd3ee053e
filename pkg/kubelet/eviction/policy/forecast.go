package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// The ages that samples are kept for: about 1, 3, 9 and 27 seconds when there is a look every second. With a look every ten
// seconds they are 10 to 40 seconds old. Either way the oldest is older than the slowest source of pod figures takes.
const (
	sampleEvery = time.Second
	sampleCount = 4
)

// history holds a few samples of memory usage, the newest first. Growth is worked out from it only when something is starved.
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

// with is the history after one more snapshot. While there is plenty of room nothing is kept: a leak that is fast enough to
// use it up leaves enough samples on its way.
func (h history) with(s *snapshot.Snapshot, thresholds []Threshold) history {
	if !nearby(s, thresholds) {
		return history{}
	}
	if newest := h.samples[0]; newest != nil && s.Taken.Sub(newest.taken) < sampleEvery {
		return h
	}
	// Each place hands its sample on when the next one's is old enough to be replaced by it.
	moving, distance := newSample(s), sampleEvery
	for i := range h.samples {
		have := h.samples[i]
		if have != nil && moving.taken.Sub(have.taken) < distance {
			break
		}
		h.samples[i], moving = moving, have
		if moving == nil {
			break
		}
		distance *= 3
	}
	return h
}

// nearby tells whether less than a quarter of the capacity lies between what is available and a memory threshold.
func nearby(s *snapshot.Snapshot, thresholds []Threshold) bool {
	for i := range thresholds {
		t := &thresholds[i]
		if t.Signal != snapshot.MemoryAvailable && t.Signal != snapshot.AllocatableMemoryAvailable {
			continue
		}
		o := &s.Signals[t.Signal]
		if !o.Known() || saturatingAdd(o.Available, -t.target(o.Capacity)) < o.Capacity/4 {
			return true
		}
	}
	return false
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
	// node is how fast the node's available memory shrinks over the long run, worst over the worst stretch of it. Either may be
	// less than the pods' sum (something else gives back) or more.
	node, worst float64
}

// growthAt measures against the oldest sample that knows the pod. A pod's rate is the smaller one of the long and the short
// window: a burst at its start, and a leak that has stopped, are not extrapolated.
func (h history) growthAt(s *snapshot.Snapshot) growth {
	g := growth{pods: map[types.UID]float64{}}
	current, first := newSample(s), true
	for _, then := range h.samples {
		if then == nil || !then.taken.Before(s.Taken) {
			continue
		}
		if a, b := then.available, current.available; a.Known() && b.Known() {
			rate := max(0, -rateOf(b.Available-a.Available, b.Time(current.taken).Sub(a.Time(then.taken))))
			if first || rate < g.node {
				g.node = rate
			}
			g.worst, first = max(g.worst, rate), false
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
