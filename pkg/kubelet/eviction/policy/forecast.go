package policy

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// The ages that samples are kept for: about 1, 3, 9 and 27 seconds when there is a look every second. With a look every
// ten seconds they are 10 to 40 seconds old. Either way the oldest is older than the slowest source of pod figures
// takes.
const (
	sampleEvery = time.Second
	sampleCount = 4
)

// history holds a few samples of memory usage, the newest first. Growth is derived from it only when something is
// starved. Samples are not modified.
type history [sampleCount]*sample

// sample is the memory usage of one snapshot.
type sample struct {
	Taken  time.Time    `json:"taken"`
	System systemSample `json:"system,omitzero"`
	// Pods are the pods whose usage is known, in the order of UIDs.
	Pods []podSample `json:"pods,omitzero"`
}

// systemSample is what is used of the node and by none of the pods.
type systemSample struct {
	// Known is false if the memory of the node was unknown.
	Known bool `json:"known"`
	// Usage is in bytes. It is derived from memory.available, whose date and age these are.
	Usage int64 `json:"usageBytes"`
	dated
}

type podSample struct {
	UID types.UID `json:"uid"`
	// Usage is the working set in bytes.
	Usage int64 `json:"usageBytes"`
	// Lasting is the part of Usage that may outlast the pod's processes, in bytes: page cache and files in memory.
	Lasting int64 `json:"lastingBytes,omitempty"`
	dated
}

// compare orders samples by UID.
func (p podSample) compare(o podSample) int { return cmp.Compare(p.UID, o.UID) }

// dated says when something was observed. There is one for each pod of a sample, so it is small.
type dated struct {
	// Date is the date by the source, in nanoseconds since 1970, zero if the source does not say. It only serves to see
	// whether two observations are the same.
	Date int64 `json:"dateUnixNanoseconds,omitempty"`
	// Age is how old the observation was when the sample was taken, by the source's date.
	Age time.Duration `json:"ageNanoseconds,omitempty"`
}

// dateOf compares the date of an observation with the wall time of the snapshot.
func dateOf(date, wallTime time.Time) dated {
	if date.IsZero() {
		return dated{}
	}
	return dated{Date: date.UnixNano(), Age: wallTime.Sub(date)}
}

// same reports whether two observations of one thing are the same observation.
func (d dated) same(o dated) bool { return d.Date != 0 && d.Date == o.Date }

// with is the history after one more snapshot. While there is plenty of room nothing is kept: a leak that is fast
// enough to use it up leaves enough samples on its way. g is the growth until the snapshot, nil if it was not needed.
func (h history) with(s *snapshot.Snapshot, thresholds []Threshold, g *growth) history {
	if !nearby(s, thresholds) {
		return history{}
	}
	if newest := h[0]; newest != nil && s.Taken.Sub(newest.Taken) < sampleEvery {
		return h
	}
	// Each place hands its sample on when the next one's is old enough to be replaced by it.
	moving, distance := newSample(s, g), sampleEvery
	for i := range h {
		have := h[i]
		if have != nil && moving.Taken.Sub(have.Taken) < distance {
			break
		}
		h[i], moving = moving, have
		if moving == nil {
			break
		}
		distance *= 3
	}
	return h
}

// Calm tells, of a snapshot that may have no pods, whether a decision about it can do without all pods but those with
// limits of their own: no threshold is met or waits for its minimum reclaim, and memory is far from all.
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

func newSample(s *snapshot.Snapshot, g *growth) *sample {
	var current readings
	if g != nil {
		current = g.readings
	} else {
		current = readingsOf(s)
	}
	return &sample{Taken: s.Taken, System: newSystemSample(s, &current), Pods: current.pods}
}

func newSystemSample(s *snapshot.Snapshot, current *readings) systemSample {
	available := &s.Signals[snapshot.MemoryAvailable]
	if !available.Known() {
		return systemSample{}
	}
	usage := saturatingAdd(available.Capacity, -available.Available)
	for i := range current.pods {
		usage = saturatingAdd(usage, -current.pods[i].Usage)
	}
	return systemSample{Known: true, Usage: usage - leftBehind(s), dated: dateOf(available.At, s.WallTime)}
}

// readings are the pods of a snapshot whose usage is known, in the order of UIDs. A sample may share them.
type readings struct {
	pods []podSample
	// index has the place of each of them in the snapshot.
	index []int32
}

// Len, Less and Swap implement sort.Interface.
func (r readings) Len() int           { return len(r.pods) }
func (r readings) Less(i, j int) bool { return r.pods[i].compare(r.pods[j]) < 0 }
func (r readings) Swap(i, j int) {
	r.pods[i], r.pods[j] = r.pods[j], r.pods[i]
	r.index[i], r.index[j] = r.index[j], r.index[i]
}

func readingsOf(s *snapshot.Snapshot) readings {
	r := readings{make([]podSample, 0, len(s.Pods)), make([]int32, 0, len(s.Pods))}
	sorted := true
	for i := range s.Pods {
		v := s.Pods[i].Memory()
		if !v.Known {
			continue
		}
		uid, n := s.Pods[i].UID, len(r.pods)
		sorted = sorted && (n == 0 || r.pods[n-1].UID < uid)
		sample := podSample{UID: uid, Usage: int64(v.Amount), dated: dateOf(v.At, s.WallTime)}
		if a := s.Pods[i].AnonymousMemory(); a.Known {
			sample.Lasting = max(0, sample.Usage-int64(a.Amount))
		}
		r.pods = append(r.pods, sample)
		r.index = append(r.index, int32(i))
	}
	if !sorted {
		sort.Sort(r)
	}
	return r
}

// rate is how fast memory comes to be used, in bytes per second, measured over windows that end now and begin with a
// sample each. It is negative where memory was given back, so that fluctuations of several pods do not add up. A window
// without a sample of the pod is not a number. Nil is a rate of which nothing is known.
type rate [sampleCount]float64

var unmeasured = rate{math.NaN(), math.NaN(), math.NaN(), math.NaN()}

// steady is the smallest of the windows: a burst at its start, and a leak that has stopped, are not extrapolated.
func (r *rate) steady() float64 {
	if r == nil {
		return 0
	}
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
	if o == nil {
		return
	}
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
	// readings are those of the snapshot.
	readings readings
}

// of is the rate of the pod at a place in the snapshot, nil when none is known.
func (g *growth) of(i int) *rate {
	if g.pods == nil {
		return nil
	}
	return &g.pods[i]
}

// growthAt measures against every sample that has the pod.
func (h history) growthAt(s *snapshot.Snapshot) *growth {
	g := &growth{pods: make([]rate, len(s.Pods)), system: unmeasured, readings: readingsOf(s)}
	for i := range g.pods {
		g.pods[i] = unmeasured
	}
	system := newSystemSample(s, &g.readings)
	for window, then := range h {
		if then == nil || !then.Taken.Before(s.Taken) {
			continue
		}
		ago := s.Taken.Sub(then.Taken)
		if before := &then.System; before.Known && system.Known {
			if between, ok := elapsed(ago, before.dated, system.dated); ok || system.same(before.dated) {
				g.system[window] = max(0, rateOf(system.Usage-before.Usage-then.outlasting(g.readings.pods, s), between))
			}
		}
		then.fold(&g.readings, ago, func(i int, grown float64) { g.pods[i][window] = grown })
	}
	return g
}

// elapsed returns the time between two observations whose samples were taken this far apart. Each age is a difference
// of times of day at one moment, so it does not matter whether the clock was set between the samples. ok is false if
// it was set between an observation and its sample.
func elapsed(samples time.Duration, first, second dated) (between time.Duration, ok bool) {
	older := second.Age - first.Age
	between = samples - older
	return between, between > 0 && older >= -maxObservationAge
}

// fold reports the rate of each pod since this sample, which was taken that long ago, with its place in the snapshot.
// Both lists are in the order of UIDs.
func (n *sample) fold(current *readings, ago time.Duration, report func(index int, grown float64)) {
	old := n.Pods
	for i := range current.pods {
		p := &current.pods[i]
		// Mostly the pods are the same, so that the first comparison is enough.
		for len(old) > 0 && old[0].UID != p.UID && old[0].UID < p.UID {
			old = old[1:]
		}
		if len(old) == 0 {
			return
		}
		before := &old[0]
		if before.UID != p.UID {
			continue
		}
		old = old[1:]
		between, ok := elapsed(ago, before.dated, p.dated)
		if !ok || p.same(before.dated) {
			continue
		}
		report(int(current.index[i]), rateOf(p.Usage-before.Usage, between))
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

// outlasting returns the most that the pods of this sample which are not in the snapshot may have left, in bytes. The
// system uses that now, but it has not grown by it. What leftBehind returns is no part of it.
func (n *sample) outlasting(current []podSample, s *snapshot.Snapshot) (sum int64) {
	for i := range n.Pods {
		p := &n.Pods[i]
		for len(current) > 0 && current[0].UID < p.UID {
			current = current[1:]
		}
		if p.Lasting == 0 || len(current) > 0 && current[0].UID == p.UID {
			continue
		}
		left := p.Lasting
		if j := slices.IndexFunc(s.InFlight, func(f snapshot.InFlight) bool { return f.UID == p.UID }); j >= 0 {
			left -= filesLeft(&s.InFlight[j])
		}
		sum = saturatingAdd(sum, max(0, left))
	}
	return sum
}

// filesLeft returns what a victim whose containers have ended keeps in files in memory, in bytes.
func filesLeft(f *snapshot.InFlight) int64 {
	if f.State != snapshot.Stopped {
		return 0
	}
	return max(0, int64(f.Expected.CertainMemory-f.Expected.AnonymousMemory))
}

// leftBehind is what victims whose containers have ended still keep in files in memory, until their volumes are gone.
// They are no pods of the snapshot any more.
func leftBehind(s *snapshot.Snapshot) (sum int64) {
	for i := range s.InFlight {
		f := &s.InFlight[i]
		isHere := func(p snapshot.Pod) bool { return p.UID == f.UID }
		if left := filesLeft(f); left > 0 && !slices.ContainsFunc(s.Pods, isHere) {
			sum = saturatingAdd(sum, left)
		}
	}
	return sum
}
