package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// MemoryGrowth is how fast memory usage grows, by the same samples and rates with which Decide forecasts needs. Pods
// that are terminating are not part of it: their growth ends.
type MemoryGrowth struct {
	// Pods are the pods whose usage grows steadily, in the order of UIDs. While all thresholds are farther than
	// reportHorizon, samples may be too few to name any.
	Pods []PodGrowth
	// Thresholds has one entry for each of memory.available and allocatableMemory.available that is observed and has a
	// hard threshold: the one that is met first. Thresholds in dry run do not count.
	Thresholds []ThresholdGrowth
}

// PodGrowth is a pod whose memory usage has grown steadily for steadySpan.
type PodGrowth struct {
	// Pod is shared with the snapshot.
	Pod *snapshot.Pod
	// Rate is the steady growth, in bytes per second. It is greater than 0.
	Rate float64
	// AboveRequest: the pod uses more memory than it requests.
	AboveRequest bool
}

// ThresholdGrowth is a hard threshold, and the growth of what is used of its signal.
type ThresholdGrowth struct {
	Signal snapshot.Signal
	// Threshold is the value of the threshold as it was configured.
	Threshold *resource.Quantity
	// Distance is how much more than that is available, in bytes; negative if the threshold is met.
	Distance int64
	// Rate is the growth of all that uses the resource and grows steadily, in bytes per second, at least 0.
	Rate float64
}

// MetWithin returns the time until the threshold is met at the rate of growth, and whether that is greater than 0 and
// at most the horizon. A threshold that is met already is not met within any time.
func (t *ThresholdGrowth) MetWithin(horizon time.Duration) (time.Duration, bool) {
	if t.Distance < 0 || t.Rate <= 0 {
		return 0, false
	}
	seconds := float64(t.Distance) / t.Rate
	if seconds > horizon.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

const (
	// steadySpan is the time over which usage must have grown, from each sample to the next, to count as growing
	// steadily. The burst at the start of most pods is shorter.
	steadySpan = 20 * time.Second
	// denseSpan is the time that has at least denseSamples earlier samples, before growth is reported. Samples with a
	// fixed interval show a usage that goes up and down in about that interval as one that grows slowly; samples with a
	// second interval do not.
	denseSpan    = 10 * time.Second
	denseSamples = 2
	// denseInterval is the time until the next round while there are too few such samples. The intervals of most periods,
	// whole seconds, are not close to a multiple of it.
	denseInterval = 3820 * time.Millisecond
	// reportHorizon bounds how far ahead a threshold may be for which rounds are made in that interval.
	reportHorizon = 10 * time.Minute
)

// steadyGrowth is the growth of all memory usage that grows steadily.
type steadyGrowth struct {
	// pods is the growth of pods, less what other pods give back, system that of the memory that no pod uses, both in
	// bytes per second.
	pods, system float64
	// any: a pod grows steadily.
	any bool
	// list are the pods that MemoryGrowth has.
	list []PodGrowth
}

// steadyGrowth computes the growth at most once in a round.
func (r *round) steadyGrowth() *steadyGrowth {
	if r.steady != nil {
		return r.steady
	}
	g, ending := r.allGrowth(), terminating(r.snapshot)
	var sum float64
	var list []PodGrowth
	net := unmeasured
	for at := range g.readings.pods {
		i := int(g.readings.index[at])
		pod, rate := &r.snapshot.Pods[i], g.of(i)
		if ending[pod.UID] {
			continue
		}
		net.add(rate)
		steady, dense := r.last.MemorySamples.trackOf(&g.readings.pods[at], r.snapshot.Taken).steady()
		if !steady || rate.sampled() <= 0 {
			continue
		}
		sum += rate.sampled()
		if dense {
			usage, _ := pod.MemoryAmount()
			list = append(list, PodGrowth{Pod: pod, Rate: rate.sampled(), AboveRequest: usage > pod.MemoryRequest})
		}
	}
	net[momentary] = math.NaN()
	r.steady = &steadyGrowth{pods: min(sum, net.peak()), system: r.last.MemorySamples.steadySystem(g, r.snapshot.Taken),
		any: sum > 0, list: list}
	return r.steady
}

// reportGrowth adds the growth of memory to the decision. When a threshold is near and a pod grows steadily, it
// requests an earlier round, so that the growth is measured at more times.
func (r *round) reportGrowth() {
	g := r.steadyGrowth()
	report := &MemoryGrowth{Pods: g.list}
	r.addThreshold(report, snapshot.MemoryAvailable, g.pods+g.system)
	r.addThreshold(report, snapshot.AllocatableMemoryAvailable, g.pods)
	near := func(t ThresholdGrowth) bool { _, ok := t.MetWithin(reportHorizon); return ok }
	if g.any && slices.ContainsFunc(report.Thresholds, near) {
		r.syncAfter(denseInterval)
	}
	r.decision.Growth = report
}

// steadySystem returns the steady growth of the memory that no pod uses. It is zero unless that has grown from each
// sample to the next for steadySpan.
func (h *history) steadySystem(g *growth, now time.Time) float64 {
	var grown float64
	for i, then := range h {
		if then == nil {
			return 0
		}
		ago := now.Sub(then.Taken)
		since := g.system[i] * ago.Seconds()
		if !(since > grown) {
			return 0
		}
		if grown = since; ago >= steadySpan {
			break
		}
	}
	return g.system.sampled()
}

// terminating returns the pods whose growth ends, since they are evicted or terminate for another reason.
func terminating(s *snapshot.Snapshot) map[types.UID]bool {
	ending := map[types.UID]bool{}
	for i := range s.InFlight {
		if s.InFlight[i].State != snapshot.Failed {
			ending[s.InFlight[i].UID] = true
		}
	}
	for i := range s.Pods {
		if s.Pods[i].Terminating != nil {
			ending[s.Pods[i].UID] = true
		}
	}
	return ending
}

// addThreshold adds the nearest hard threshold of a signal to the report, with the growth of what is used of it.
func (r *round) addThreshold(report *MemoryGrowth, signal snapshot.Signal, rate float64) {
	o := &r.snapshot.Signals[signal]
	if t := nearestHard(r.rules.Thresholds, signal, o); t != nil {
		report.Thresholds = append(report.Thresholds, ThresholdGrowth{Signal: signal, Threshold: t.Quantity(o.Capacity),
			Distance: saturatingAdd(o.Available, -t.floor(o.Capacity)), Rate: rate})
	}
}

// nearestHard returns the hard threshold of a signal, nil if there is none or the observation is unknown.
func nearestHard(thresholds []Threshold, signal snapshot.Signal, o *snapshot.Observation) (nearest *Threshold) {
	if !o.Known() {
		return nil
	}
	for i := range thresholds {
		t := &thresholds[i]
		if t.Signal == signal && t.Hard() &&
			(nearest == nil || t.floor(o.Capacity) > nearest.floor(o.Capacity)) {
			nearest = t
		}
	}
	return nearest
}

// track are the observations of one pod's memory usage, the newest first.
type track []observedUsage

type observedUsage struct {
	// ago is the time from this observation to the newest one.
	ago   time.Duration
	usage int64
}

// trackOf returns the observations of a pod, of which the newest was made in a snapshot taken now. An observation that
// several samples have is in it once. It ends at a time at which a clock was set.
func (h *history) trackOf(newest *podSample, now time.Time) track {
	list := make(track, 1, len(h)+1)
	list[0].usage = newest.Usage
	last := newest.dated
	for _, then := range h {
		if then == nil || !then.Taken.Before(now) {
			continue
		}
		i, ok := slices.BinarySearchFunc(then.Pods, newest.UID, func(p podSample, uid types.UID) int {
			return cmp.Compare(p.UID, uid)
		})
		if !ok {
			break
		}
		p := &then.Pods[i]
		if p.same(last) {
			continue
		}
		ago, ok := elapsed(now.Sub(then.Taken), p.dated, newest.dated)
		if !ok || ago <= list[len(list)-1].ago {
			break
		}
		list, last = append(list, observedUsage{ago, p.Usage}), p.dated
	}
	return list
}

// steady reports whether usage has grown from each observation to the next for steadySpan, and whether there are
// enough observations among them that are not older than denseSpan.
func (t track) steady() (steady, dense bool) {
	recent := 0
	for i := 1; i < len(t); i++ {
		if t[i].usage >= t[i-1].usage {
			return false, false
		}
		if t[i].ago < denseSpan {
			recent++
		}
		if t[i].ago >= steadySpan {
			return true, recent >= denseSamples
		}
	}
	return false, false
}
