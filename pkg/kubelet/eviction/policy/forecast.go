package policy

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// The samples that are kept have about the ages 1, 3, 9 and 27 seconds with a round every second, and 10 to 40 seconds
// with a round every ten. In both cases the oldest one is older than the interval at which the slowest source of pod
// stats measures.
//
// While growth is reported there is one more, and the last three are about 10 s apart: a pod that has just been started
// is in a sample that is older than steadySpan soon after that time, also when rounds are of varying length.
const (
	sampleEvery = time.Second
	sampleCount = 5
)

// The least distances between a sample and the next older one.
var (
	sampleDistances         = []time.Duration{sampleEvery, 3 * sampleEvery, 9 * sampleEvery, 27 * sampleEvery}
	reportedSampleDistances = []time.Duration{sampleEvery, 3 * sampleEvery, 9 * sampleEvery, 9 * sampleEvery,
		9 * sampleEvery}
)

// history holds a few samples of memory usage, the newest first. Growth is computed from them only while there is a
// need. Samples are not modified.
type history [sampleCount]*sample

// sample is the memory usage of one snapshot.
type sample struct {
	Taken  time.Time    `json:"taken"`
	System systemSample `json:"system,omitzero"`
	// Pods are the pods whose usage is known, in the order of UIDs.
	Pods []podSample `json:"pods,omitzero"`
}

// systemSample is the memory of the node that no pod uses.
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

// dated is the date of an observation. Each pod of a sample has one, so it is kept small.
type dated struct {
	// Date is the date by the source, in nanoseconds since 1970; zero if the source reports none. It serves only to
	// compare whether two observations are the same.
	Date int64 `json:"dateUnixNanoseconds,omitempty"`
	// Age is how old the observation was when the sample was taken, by the source's date.
	Age time.Duration `json:"ageNanoseconds,omitempty"`
}

// dateOf returns the date of an observation with its age at the wall time of the snapshot.
func dateOf(date, wallTime time.Time) dated {
	if date.IsZero() {
		return dated{}
	}
	return dated{Date: date.UnixNano(), Age: wallTime.Sub(date)}
}

// same reports whether two observations of one thing are the same observation.
func (d dated) same(o dated) bool { return d.Date != 0 && d.Date == o.Date }

// with returns the history after one more snapshot. Unless growth is reported, it is empty while memory is far from all
// thresholds: a leak is sampled often enough on its way to one. g is the growth until the snapshot, nil if it was not
// computed.
func (h history) with(s *snapshot.Snapshot, rules *Rules, g *growth) history {
	if !rules.reportGrowth() && !nearMemoryThreshold(s, rules.Thresholds) {
		return history{}
	}
	if newest := h[0]; newest != nil && s.Taken.Sub(newest.Taken) < sampleEvery {
		return h
	}
	distances := sampleDistances
	if rules.reportGrowth() {
		distances = reportedSampleDistances
	}
	// A sample moves to the next place when the sample there is old enough to be replaced.
	moving := newSample(s, g)
	for i, distance := range distances {
		have := h[i]
		if have != nil && moving.Taken.Sub(have.Taken) < distance {
			break
		}
		h[i], moving = moving, have
		if moving == nil {
			break
		}
	}
	clear(h[len(distances):])
	return h
}

// Calm reports whether the decision about a snapshot, which may have no pods yet, is the same without all pods
// except those with limits on local storage: no threshold is met or waits for its minimum reclaim, available memory is
// far above all thresholds, no eviction is requested, and neither the growth of memory nor the outlook is reported.
func Calm(s *snapshot.Snapshot, rules *Rules) bool {
	if len(s.Requests) > 0 || rules.reportGrowth() {
		return false
	}
	for i := range rules.Thresholds {
		t := &rules.Thresholds[i]
		if o := &s.Signals[t.Signal]; o.Known() && t.met(*o, true) {
			return false
		}
	}
	return !nearMemoryThreshold(s, rules.Thresholds)
}

// Stats of pods are kept until this share of what was left above a threshold is used up: half, or an eighth of a disk,
// since only stats say how much of a disk is released when a pod ends.
const (
	keptShare     = 2
	keptDiskShare = 8
)

// NeedsPodStats reports whether the decision about a snapshot, which may have no pods yet, needs newer pod stats than
// those that were read when the signals were before, except those of pods with limits on local storage. Memory and
// processes of pods are not among these stats, since they are read from cgroups. They are needed if a threshold is met
// or waits for its minimum reclaim, if more of what was left above a threshold is used up than a share, if a signal is
// not known any more, if an eviction is requested, and if growth or the outlook is reported.
func NeedsPodStats(s *snapshot.Snapshot, rules *Rules, before *[snapshot.NumSignals]snapshot.Observation) bool {
	if len(s.Requests) > 0 || rules.reportGrowth() {
		return true
	}
	return slices.ContainsFunc(rules.Thresholds, func(t Threshold) bool {
		o, b := &s.Signals[t.Signal], &before[t.Signal]
		switch {
		case !o.Known():
			return b.Known()
		case t.met(*o, true):
			return true
		}
		share := int64(keptShare)
		if t.Signal.Condition() == v1.NodeDiskPressure {
			share = keptDiskShare
		}
		return b.Known() && t.left(*b)-t.left(*o) > t.left(*b)/share
	})
}

// nearMemoryThreshold reports whether available memory exceeds a threshold by less than a quarter of the capacity.
func nearMemoryThreshold(s *snapshot.Snapshot, thresholds []Threshold) bool {
	for i := range thresholds {
		t := &thresholds[i]
		if t.Signal != snapshot.MemoryAvailable && t.Signal != snapshot.AllocatableMemoryAvailable {
			continue
		}
		o := &s.Signals[t.Signal]
		if !o.Known() || t.left(*o) < o.Capacity/4 {
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
	return systemSample{Known: true, Usage: usage - tmpfsOfStoppedPods(s), dated: dateOf(available.At, s.WallTime)}
}

// readings are the pods of a snapshot whose usage is known, in the order of UIDs. Samples may share them.
type readings struct {
	pods []podSample
	// index has the index of each of them in Snapshot.Pods.
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

// rate is the growth of memory usage in bytes per second, measured over one window for each sample; a window begins
// with the sample and ends now. Rates are negative where usage has decreased, so that fluctuations of several pods
// cancel out. A window without data is NaN. A nil rate is unknown.
//
// The last window is that of snapshot.Rate: the last moments before the snapshot. It has data only near a threshold.
type rate [sampleCount + 1]float64

const momentary = sampleCount

var unmeasured = rate{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}

// steady returns the smallest rate of the windows of samples, at least 0: a burst at the start of a pod, and growth
// that has stopped, are not extrapolated. It returns the momentary growth if that is greater: a pod that has begun to
// use up what is left has grown in no sample yet.
func (r *rate) steady() float64 {
	if r == nil {
		return 0
	}
	return max(r.sampled(), r.lately())
}

// lately returns the growth of the last moments, 0 if it was not measured.
func (r *rate) lately() float64 {
	if r == nil {
		return 0
	}
	return orZero(r[momentary])
}

// sampled returns the smallest rate of the windows of samples, at least 0.
func (r *rate) sampled() float64 {
	if r == nil {
		return 0
	}
	least := math.Inf(1)
	for _, window := range r[:sampleCount] {
		if window < least {
			least = window
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return max(0, least)
}

// orZero returns a rate, 0 if it was not measured.
func orZero(window float64) float64 {
	if math.IsNaN(window) {
		return 0
	}
	return window
}

// peak returns the greatest rate of all windows, at least 0.
func (r *rate) peak() (most float64) {
	for _, window := range r {
		if window > most {
			most = window
		}
	}
	return most
}

// add adds another rate, window by window.
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

// growth is how fast memory usage grows.
type growth struct {
	// pods has a rate for each pod, in the order of the snapshot; nil if none is known.
	pods []rate
	// system is the growth of the memory that no pod uses. Memory that ended pods have left does not count.
	system rate
	// readings are those of the snapshot.
	readings readings
}

// of returns the rate of the pod with index i in the snapshot, nil if it is unknown.
func (g *growth) of(i int) *rate {
	if g.pods == nil {
		return nil
	}
	return &g.pods[i]
}

// growthAt returns the growth from each sample to the snapshot; killTime is the time until a kill takes effect.
func (h history) growthAt(s *snapshot.Snapshot, killTime time.Duration) *growth {
	g := &growth{pods: make([]rate, len(s.Pods)), system: unmeasured, readings: readingsOf(s)}
	for i := range g.pods {
		g.pods[i] = unmeasured
	}
	g.addMomentary(s)
	system := newSystemSample(s, &g.readings)
	for window, then := range h {
		if then == nil || !then.Taken.Before(s.Taken) {
			continue
		}
		ago := s.Taken.Sub(then.Taken)
		var left int64
		then.eachRate(&g.readings, ago,
			func(i int, grown float64) { g.pods[i][window] = grown },
			func(ended *podSample) { left = saturatingAdd(left, ended.leftByEndedPod(s)) })
		if before := &then.System; before.Known && system.Known {
			if between, ok := elapsed(ago, before.dated, system.dated); ok || system.same(before.dated) {
				g.system[window] = max(0, rateOf(system.Usage-before.Usage-left, between))
			}
		}
	}
	g.limitSampled(s, killTime)
	return g
}

// momentaryError is by how much a pod whose counter stands still may grow, in bytes: counters lag, and the next huge
// page may be due.
const momentaryError = 3 << 20

// limitSampled limits the growth since a sample of pods whose counters stand still: they may have used much since the
// sample, and have stopped growing. That is so only while others use up what is left before a kill takes effect: a pod
// that grows in steps stands still between them.
func (g *growth) limitSampled(s *snapshot.Snapshot, killTime time.Duration) {
	left, ok := memoryLeft(s)
	if !ok || s.MemoryRate == nil || !usedUp(left, float64(s.MemoryRate.PerSecond), killTime) {
		return
	}
	for i := range s.Pods {
		r := s.Pods[i].MemoryRate
		if r == nil || !r.Still || r.Window <= 0 {
			continue
		}
		most := rateOf(momentaryError, r.Window)
		for window := range sampleCount {
			if g.pods[i][window] > most {
				g.pods[i][window] = most
			}
		}
	}
}

// addMomentary adds the growth of the last moments. Pods do not grow faster together than Snapshot.MemoryRate: if some
// grow while others shrink, or while page cache that counted as used is freed, that is no growth. Memory by which the
// node grows and no measured pod does is that of the system, or of pods whose growth was too small to be measured.
func (g *growth) addMomentary(s *snapshot.Snapshot) {
	if s.MemoryRate == nil || s.MemoryRate.Window <= 0 {
		return
	}
	total, grown := max(0, float64(s.MemoryRate.PerSecond)), 0.0
	for i := range s.Pods {
		if r := s.Pods[i].MemoryRate; r != nil && r.Window > 0 {
			grown += max(0, float64(r.PerSecond))
		}
	}
	share := 1.0
	if grown > total {
		share = total / grown
	}
	for i := range s.Pods {
		if r := s.Pods[i].MemoryRate; r != nil && r.Window > 0 {
			g.pods[i][momentary] = max(0, float64(r.PerSecond)) * share
		}
	}
	g.system[momentary] = max(0, total-grown)
}

// elapsed returns the time between two observations, from the time between their samples and from their ages. Ages were
// computed at one instant each, so that setting a clock between the samples has no effect. ok is false if a clock was
// set between an observation and its sample.
func elapsed(samples time.Duration, first, second dated) (between time.Duration, ok bool) {
	older := second.Age - first.Age
	between = samples - older
	return between, between > 0 && older >= -maxObservationAge
}

// eachRate calls report with the rate of each pod since this sample, which was taken that long ago, and the index of
// the pod in the snapshot. It calls ended with each pod of the sample that is not in the snapshot. Both lists are in
// the order of UIDs.
func (n *sample) eachRate(current *readings, ago time.Duration, report func(index int, grown float64),
	ended func(*podSample)) {
	old := n.Pods
	for i := range current.pods {
		p := &current.pods[i]
		// Mostly the pods are the same, so that the first comparison is enough.
		for len(old) > 0 && old[0].UID != p.UID && old[0].UID < p.UID {
			ended(&old[0])
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
	for i := range old {
		ended(&old[i])
	}
}

func rateOf(delta int64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(delta) / elapsed.Seconds()
}

// growthIn returns the growth at a rate in a time, in bytes. It is bounded so that sums do not overflow.
func growthIn(rate float64, d time.Duration) int64 {
	const bound = 1 << 52
	return int64(min(rate*d.Seconds(), bound))
}

// leftByEndedPod returns an upper bound of the memory that a pod of an earlier sample which is not in the snapshot may
// have left, in bytes. It is part of the memory that no pod uses, but no growth of the system. What tmpfsOfStoppedPods
// returns is not included.
func (p *podSample) leftByEndedPod(s *snapshot.Snapshot) int64 {
	left := p.Lasting
	if left == 0 {
		return 0
	}
	if i := slices.IndexFunc(s.InFlight, func(f snapshot.InFlight) bool { return f.UID == p.UID }); i >= 0 {
		left -= tmpfsLeft(&s.InFlight[i])
	}
	return max(0, left)
}

// tmpfsLeft returns how many bytes in memory-backed volumes (tmpfs) a victim whose containers have stopped still
// occupies.
func tmpfsLeft(f *snapshot.InFlight) int64 {
	if f.State != snapshot.Stopped {
		return 0
	}
	return max(0, int64(f.Expected.CertainMemory-f.Expected.AnonymousMemory))
}

// tmpfsOfStoppedPods returns how many bytes in memory-backed volumes the victims occupy whose containers have stopped
// and that are no longer in the snapshot. They are free when the volumes are unmounted.
func tmpfsOfStoppedPods(s *snapshot.Snapshot) (sum int64) {
	for i := range s.InFlight {
		f := &s.InFlight[i]
		isHere := func(p snapshot.Pod) bool { return p.UID == f.UID }
		if left := tmpfsLeft(f); left > 0 && !slices.ContainsFunc(s.Pods, isHere) {
			sum = saturatingAdd(sum, left)
		}
	}
	return sum
}
