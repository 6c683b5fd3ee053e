package policy

import (
	"cmp"
	"math"
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
	// system is what is used of the node and by none of the pods.
	system int64
	pods   []podSample
}

type podSample struct {
	uid   types.UID
	usage int64
	// at is the figure's date in nanoseconds since 1970, which says no more than whether two figures are the same;
	// age is how old it was when the sample was taken. Samples are kept of every pod, so both are small.
	at  int64
	age time.Duration
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
	n.system = systemUsage(n.available, readings) - leftBehind(s)
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
			at := timeOr(v.At, s.Taken)
			list = append(list, reading{podSample{s.Pods[i].UID, int64(v.Amount), at.UnixNano(), s.Taken.Sub(at)}, i})
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

// rate is how fast memory comes to be used, in bytes per second, measured over windows that end now and begin with a sample each. It is
// negative where memory was given back, so that fluctuations of several pods do not add up. A window without a figure is not a number.
type rate [sampleCount]float64

var unmeasured = rate{math.NaN(), math.NaN(), math.NaN(), math.NaN()}

// steady is the smallest of the windows: a burst at its start, and a leak that has stopped, are not extrapolated.
func (r *rate) steady() float64 {
	least := math.Inf(1)
	for _, window := range r {
		if window < least {
			least = window
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return max(0, least)
}

// worst is the largest of the windows, at least 0.
func (r *rate) worst() (most float64) {
	for _, window := range r {
		if window > most {
			most = window
		}
	}
	return most
}

// add adds another rate window by window.
func (r *rate) add(o *rate) {
	for i, window := range o {
		switch {
		case math.IsNaN(window):
		case math.IsNaN(r[i]):
			r[i] = window
		default:
			r[i] += window
		}
	}
}

// growth is how fast memory is being used up.
type growth struct {
	// pods has a rate per pod of the snapshot, at the same place; nil when none is known.
	pods []rate
	// system is what all else takes: what is used of the node and by none of the pods. Pods that end do not count for it.
	system rate
}

// of is the rate of the pod at a place in the snapshot.
func (g *growth) of(i int) rate {
	if g.pods == nil {
		return unmeasured
	}
	return g.pods[i]
}

// growthAt measures against every sample that knows the pod.
func (h history) growthAt(s *snapshot.Snapshot, current []reading) growth {
	g := growth{pods: make([]rate, len(s.Pods)), system: unmeasured}
	for i := range g.pods {
		g.pods[i] = unmeasured
	}
	available := s.Signals[snapshot.MemoryAvailable]
	system := systemUsage(available, current) - leftBehind(s)
	for window, then := range h.samples {
		if then == nil || !then.taken.Before(s.Taken) {
			continue
		}
		if a, b := then.available, available; a.Known() && b.Known() {
			older := s.Taken.Sub(b.Time(s.Taken)) - then.taken.Sub(a.Time(then.taken))
			if between, ok := elapsed(s.Taken.Sub(then.taken), older); ok || a.At.Equal(b.At) {
				g.system[window] = max(0, rateOf(system-then.system, between))
			}
		}
		then.fold(current, s.Taken.Sub(then.taken), func(i int, grown float64) { g.pods[i][window] = grown })
	}
	return g
}

// systemUsage is what is used of the node's memory and by none of the pods.
func systemUsage(available snapshot.Observation, pods []reading) int64 {
	used := saturatingAdd(available.Capacity, -available.Available)
	for i := range pods {
		used = saturatingAdd(used, -pods[i].usage)
	}
	return used
}

// elapsed is the time between two figures of samples that were taken this far apart, where the second figure was that
// much older at its sample than the first at its own. Each age is a difference of times of day at one moment, so it
// does not matter whether the clock was set between the samples. ok is false when it was set between a figure and its
// sample.
func elapsed(samples, older time.Duration) (between time.Duration, ok bool) {
	between = samples - older
	return between, between > 0 && older >= -oldest
}

// fold reports the rate of each pod since this sample, which was taken that long ago, with its place in the snapshot. Both lists are in
// the order of UIDs.
func (n *sample) fold(current []reading, ago time.Duration, report func(index int, grown float64)) {
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
		between, ok := elapsed(ago, p.age-before.age)
		if !ok || p.at == before.at {
			continue
		}
		report(p.index, rateOf(p.usage-before.usage, between))
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

// leftBehind is what victims whose containers have ended still keep in files in memory, until their volumes are gone. They are no pods of
// the snapshot any more.
func leftBehind(s *snapshot.Snapshot) (sum int64) {
	for i := range s.InFlight {
		f := &s.InFlight[i]
		isHere := func(p snapshot.Pod) bool { return p.UID == f.UID }
		if f.State == snapshot.Stopped && !slices.ContainsFunc(s.Pods, isHere) {
			sum = saturatingAdd(sum, max(0, int64(f.Expected.CertainMemory-f.Expected.AnonymousMemory)))
		}
	}
	return sum
}
