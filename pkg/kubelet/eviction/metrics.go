package eviction

import (
	"context"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	stockmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Metrics of our own, beside stock's. docs/metrics.md explains them.
var (
	decisionsTotal = counterVec("plimsoll_eviction_decisions_total",
		"Decisions about starved resources by outcome; Nothing when no resource was starved.", "outcome")
	roundsTotal = counterVec("plimsoll_eviction_rounds_total",
		"Rounds of observing and deciding by what triggered them: timer, event, counters or kernel.", "trigger")
	releasedTotal = counterVec("plimsoll_eviction_released_bytes_total",
		"Upper bound of what evicted pods have given back, counted when all of a pod was cleaned up.", "resource")
	pendingRelease = gaugeVec("plimsoll_eviction_pending_release_bytes",
		"Upper bound of what pods that are being evicted have not given back yet.", "resource")
	signalBlind = gaugeVec("plimsoll_eviction_signal_blind",
		"1 while there are no figures for a signal that has a threshold.", "signal")
	runtimeSilent = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_eviction_runtime_silent",
		Help:           "1 while the container runtime reports no pod stats, so that no pod is evicted for file systems.",
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

	sinkFailures = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_sink_failures_total",
		Help: "Rounds and results that a sink (events, log, metrics, ...) has not handled: its queue was full, or it " +
			"panicked.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"sink", "reason"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(decisionsTotal, roundsTotal, releasedTotal, pendingRelease, signalBlind,
			runtimeSilent, countersFailed, reactionSeconds, sinkFailures)
	})
)

func counterVec(name, help string, label string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA},
		[]string{label})
}

func gaugeVec(name, help string, label string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{label})
}

// outcomeNothing is counted for a decision with no resource scarce.
const outcomeNothing = "Nothing"

// metricsSink measures rounds and results.
type metricsSink struct {
	// Metrics of quiet rounds are looked up once, and set when they have changed.
	quiet   metrics.CounterMetric
	rounds  map[Trigger]metrics.CounterMetric
	pending [len(releasedResources)]int64
	blind   [snapshot.NumSignals]bool
	silent  bool
	failed  bool
	dryRun  dryRunCounter
}

func newMetricsSink() *metricsSink {
	registerMetrics()
	m := &metricsSink{quiet: decisionsTotal.WithLabelValues(outcomeNothing), rounds: map[Trigger]metrics.CounterMetric{}}
	for _, t := range []Trigger{TriggerTimer, TriggerEvent, TriggerCounters, TriggerKernel} {
		m.rounds[t] = roundsTotal.WithLabelValues(string(t))
	}
	return m
}

// Name implements Sink.
func (*metricsSink) Name() string { return "metrics" }

// Round implements Sink.
func (m *metricsSink) Round(_ context.Context, r *Round) {
	d := &r.Decision
	m.rounds[r.Trigger].Inc()
	if len(d.Starved) == 0 {
		m.quiet.Inc()
	}
	for i := range d.Starved {
		st := &d.Starved[i]
		decisionsTotal.WithLabelValues(string(st.Outcome)).Inc()
		if o := r.Snapshot.Signals[st.Signal]; st.Outcome == policy.Evict && !o.At.IsZero() {
			stockmetrics.EvictionStatsAge.WithLabelValues(st.Signal.String()).Observe(max(0, d.WallTime.Sub(o.At).Seconds()))
		}
	}
	m.inFlight(r.Snapshot.InFlight)
	m.signals(d)
	set(runtimeSilent, &m.silent, r.Snapshot.RuntimeSilent)
	set(countersFailed, &m.failed, r.CountersErr != nil)
	m.dryRun.count(&d.DryRun)
}

// Result implements Sink.
func (m *metricsSink) Result(_ context.Context, r *Result) {
	v := r.Victim
	switch r.Kind {
	case KillAccepted:
		if !v.Since.IsZero() {
			reactionSeconds.WithLabelValues(v.Cause.Signal.String()).Observe(max(0, r.At.Sub(v.Since).Seconds()))
		}
	case PodStopped:
		if r.Evicted {
			stockmetrics.Evictions.WithLabelValues(v.Cause.Name()).Inc()
		}
	case PodReleased:
		for j, amount := range amounts(&r.Released) {
			if amount > 0 {
				releasedTotal.WithLabelValues(releasedResources[j]).Add(float64(amount))
			}
		}
	case PodGone, KillRefused, PodOverdue, KillFailed, ReclaimEnded:
	}
}

// set sets a gauge to 1 or 0 when its value has changed.
func set(gauge metrics.GaugeMetric, shown *bool, value bool) {
	if value == *shown {
		return
	}
	*shown = value
	if value {
		gauge.Set(1)
	} else {
		gauge.Set(0)
	}
}

func (m *metricsSink) signals(d *policy.Decision) {
	var blind [snapshot.NumSignals]bool
	for i := range d.Conditions {
		for _, sig := range d.Conditions[i].Blind {
			blind[sig] = true
		}
	}
	for sig := range blind {
		if blind[sig] != m.blind[sig] {
			set(signalBlind.WithLabelValues(snapshot.Signal(sig).String()), &m.blind[sig], blind[sig])
		}
	}
}

func (m *metricsSink) inFlight(list []snapshot.InFlight) {
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
	return [...]int64{int64(r.Memory), int64(r.Devices[snapshot.NodeDevice].Bytes),
		int64(r.Devices[snapshot.ImageDevice].Bytes)}
}
