package eviction

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Metrics of our own, beside stock's. docs/metrics.md explains them.
var (
	decisionsTotal = counterVec("plimsoll_eviction_decisions_total",
		"Decisions about starved resources by outcome; Nothing when no resource was starved.", "outcome")
	looksTotal = counterVec("plimsoll_eviction_looks_total",
		"Looks at the node by what caused them: timer, event, counters or kernel.", "cause")
	releasedTotal = counterVec("plimsoll_eviction_released_bytes_total",
		"Upper bound of what evicted pods have given back, counted when all of a pod was cleaned up.", "resource")
	pendingRelease = gaugeVec("plimsoll_eviction_pending_release_bytes",
		"Upper bound of what pods that are being evicted have not given back yet.", "resource")
	signalBlind = gaugeVec("plimsoll_eviction_signal_blind",
		"1 while there are no figures for a signal that has a threshold.", "signal")
	runtimeSilent = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_eviction_runtime_silent",
		Help:           "1 while the container runtime does not tell what pods use, so that nobody is evicted for file systems.",
		StabilityLevel: metrics.ALPHA,
	})
	countersFailed = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_eviction_memory_counters_failed",
		Help:           "1 while the kernel's memory counters cannot be read, so that memory is read once in a period.",
		StabilityLevel: metrics.ALPHA,
	})
	reactionSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name:           "plimsoll_eviction_reaction_seconds",
		Help:           "Time from the first look at which a threshold could act to the request to stop a pod because of it.",
		Buckets:        []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"signal"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(decisionsTotal, looksTotal, releasedTotal, pendingRelease, signalBlind,
			runtimeSilent, countersFailed, reactionSeconds)
	})
)

func counterVec(name, help string, label string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{label})
}

func gaugeVec(name, help string, label string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{label})
}

// outcomeNothing is counted for a decision with no resource starved.
const outcomeNothing = "Nothing"

// What makes the manager look at the node.
const (
	byTimer    = "timer"    // the period, or the time a decision has named
	byEvent    = "event"    // a kill or a reclaim has ended, a pod was cleaned up, or somebody asked for it
	byCounters = "counters" // the memory counters have shown that a threshold was crossed
	byKernel   = "kernel"   // the same, seen because of a notification of the kernel
)

// meter keeps what makes measuring a quiet round free: metrics that are looked up once, and what they were last set to. It belongs
// to the loop.
type meter struct {
	quiet   metrics.CounterMetric
	looks   map[string]metrics.CounterMetric
	pending [len(releasedResources)]int64
}

func newMeter() meter {
	registerMetrics()
	m := meter{quiet: decisionsTotal.WithLabelValues(outcomeNothing), looks: map[string]metrics.CounterMetric{}}
	for _, cause := range []string{byTimer, byEvent, byCounters, byKernel} {
		m.looks[cause] = looksTotal.WithLabelValues(cause)
	}
	return m
}

// looked counts one look and what was decided.
func (m *meter) looked(cause string, s *snapshot.Snapshot, d *policy.Decision) {
	m.looks[cause].Inc()
	if len(d.Starved) == 0 {
		m.quiet.Inc()
	}
	for i := range d.Starved {
		decisionsTotal.WithLabelValues(string(d.Starved[i].Outcome)).Inc()
	}
	m.inFlight(s.InFlight)
}

func (m *meter) inFlight(list []snapshot.InFlight) {
	var sums [len(releasedResources)]int64
	for i := range list {
		if list[i].State == snapshot.Failed {
			continue
		}
		for j, r := range amounts(&list[i].Expected) {
			sums[j] += r
		}
	}
	for j, sum := range sums {
		if sum != m.pending[j] {
			m.pending[j] = sum
			pendingRelease.WithLabelValues(releasedResources[j]).Set(float64(sum))
		}
	}
}

// releasedResources are the values of the label "resource", in the order of amounts.
var releasedResources = [...]string{"memory", "nodefs", "imagefs"}

func amounts(r *snapshot.Release) [len(releasedResources)]int64 {
	return [...]int64{int64(r.Memory), int64(r.Devices[snapshot.NodeDevice].Bytes), int64(r.Devices[snapshot.ImageDevice].Bytes)}
}

// released counts a pod of which nothing is left.
func released(r *snapshot.Release) {
	for j, amount := range amounts(r) {
		if amount > 0 {
			releasedTotal.WithLabelValues(releasedResources[j]).Add(float64(amount))
		}
	}
}

// reacted measures one eviction for a signal.
func reacted(v *policy.Victim, now time.Time) {
	if !v.Since.IsZero() {
		reactionSeconds.WithLabelValues(v.Signal.String()).Observe(max(0, now.Sub(v.Since).Seconds()))
	}
}
