package policy

import (
	"cmp"
	"slices"
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
	// at is the time in nanoseconds since 1970: samples are kept of every pod.
	at int64
}

// with is the history after one more snapshot. While there is plenty of room nothing is kept: a leak that is fast enough to
// use it up leaves enough samples on its way.
func (h history) with(s *snapshot.Snapshot, thresholds []Threshold, readings []reading) history {
	if !nearby(s, thresholds) {
		return history{}
	}
	if newest := h.samples[0]; newest != nil && s.Taken.Sub(newest.taken) < sampleEvery {
		return h
	}
	if readings == nil {
		readings = readingsOf(s)
	}
	// Each place hands its sample on when the next one's is old enough to be replaced by it.
	moving, distance := newSample(s, readings), sampleEvery
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

// Calm tells, of a snapshot that may have no pods, whether a decision about it can do without all pods but those with limits of
// their own: no threshold is met or waits for its minimum reclaim, and memory is far from all.
func Calm(s *snapshot.Snapshot, rules *Rules) bool {
	for i := range rules.Thresholds {
		t := &rules.Thresholds[i]
		if o := &s.Signals[t.Signal]; o.Known() && t.met(*o, true) {
			return false
		}
	}
	return !nearby(s, rules.Thresholds)
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

func newSample(s *snapshot.Snapshot, readings []reading) *sample {
	n := &sample{taken: s.Taken, available: s.Signals[snapshot.MemoryAvailable], pods: make([]podSample, 0, len(readings))}
	for i := range readings {
		n.pods = append(n.pods, readings[i].podSample)
	}
	return n
}

// reading is a sample of a pod and its place in the snapshot.
type reading struct {
	podSample
	index int
}

// readingsOf are the pods with a figure, in the order of UIDs. That is mostly the order in which they are given.
func readingsOf(s *snapshot.Snapshot) []reading {
	list := make([]reading, 0, len(s.Pods))
	for i := range s.Pods {
		if v := s.Pods[i].Memory(); v.Known {
			list = append(list, reading{podSample{s.Pods[i].UID, int64(v.Amount), timeOr(v.At, s.Taken).UnixNano()}, i})
		}
	}
	byUID := func(a, b reading) int { return cmp.Compare(a.uid, b.uid) }
	if !slices.IsSortedFunc(list, byUID) {
		slices.SortFunc(list, byUID)
	}
	return list
}

func timeOr(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

// growth is how fast memory is being used up, in bytes per second, never negative.
type growth struct {
	// pods has a rate per pod of the snapshot, at the same place; nil when none is known.
	pods []float64
	// node is how fast the node's available memory shrinks over the long run, worst over the worst stretch of it. Either may be
	// less than the pods' sum (something else gives back) or more.
	node, worst float64
}

// of is the rate of the pod at a place in the snapshot.
func (g *growth) of(i int) float64 {
	if g.pods == nil {
		return 0
	}
	return max(0, g.pods[i])
}

// unmeasured is the rate of a pod for which there is no earlier sample.
const unmeasured = -1

// growthAt measures against the oldest sample that knows the pod. A pod's rate is the smaller one of the long and the short
// window: a burst at its start, and a leak that has stopped, are not extrapolated.
func (h history) growthAt(s *snapshot.Snapshot, current []reading) growth {
	g := growth{pods: make([]float64, len(s.Pods))}
	for i := range g.pods {
		g.pods[i] = unmeasured
	}
	available, first := s.Signals[snapshot.MemoryAvailable], true
	for _, then := range h.samples {
		if then == nil || !then.taken.Before(s.Taken) {
			continue
		}
		if a, b := then.available, available; a.Known() && b.Known() {
			rate := max(0, -rateOf(b.Available-a.Available, b.Time(s.Taken).Sub(a.Time(then.taken))))
			if first || rate < g.node {
				g.node = rate
			}
			g.worst, first = max(g.worst, rate), false
		}
		then.fold(current, g.pods)
	}
	return g
}

// fold merges the rates since this sample into rates, keeping the smaller one. Both lists are in the order of UIDs.
func (n *sample) fold(current []reading, rates []float64) {
	old := n.pods
	for i := range current {
		p := &current[i]
		// Mostly the pods are the same, so that the first comparison is enough.
		for len(old) > 0 && old[0].uid != p.uid && old[0].uid < p.uid {
			old = old[1:]
		}
		if len(old) == 0 {
			return
		}
		before := &old[0]
		if before.uid != p.uid {
			continue
		}
		old = old[1:]
		if p.at <= before.at {
			continue
		}
		rate := max(0, rateOf(p.usage-before.usage, time.Duration(p.at-before.at)))
		if have := rates[p.index]; have == unmeasured || rate < have {
			rates[p.index] = rate
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
