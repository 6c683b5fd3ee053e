package eviction

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	stockmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Metrics of our own, beside stock's. docs/metrics.md explains them.
var (
	decisionsTotal = counterVec("plimsoll_eviction_decisions_total",
		"Decisions about resources below an eviction threshold, by outcome; Nothing if there was none.", "outcome")
	roundsTotal = counterVec("plimsoll_eviction_rounds_total",
		"Rounds of observing and deciding by what triggered them: timer, event, counters or kernel.", "trigger")
	releasedTotal = counterVec("plimsoll_eviction_released_bytes_total",
		"Upper bound of what evicted pods have released, counted when the pod was cleaned up.", "resource")
	pendingRelease = gaugeVec("plimsoll_eviction_pending_release_bytes",
		"Upper bound of what pods that are being evicted have not released yet.", "resource")
	signalUnknown = gaugeVec("plimsoll_eviction_signal_blind",
		"1 while a signal that has a threshold is unknown.", "signal")
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
		Help:           "Time from the first round in which a threshold could act to the request to stop a pod for it.",
		Buckets:        []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"signal"})

	fencesTotal = counterVec("plimsoll_eviction_fences_total",
		"Evicted pods whose growth was to be stopped by a fence, by how they ended: Exited, Killed, OOMKilled; NotSet if "+
			"the fence could not be set.", "outcome")

	sinkFailures = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_sink_failures_total",
		Help: "Rounds and results that a sink (events, log, metrics, ...) has not handled: its queue was full, or it " +
			"panicked.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"sink", "reason"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(decisionsTotal, roundsTotal, releasedTotal, pendingRelease, signalUnknown,
			runtimeSilent, countersFailed, reactionSeconds, fencesTotal, sinkFailures)
		legacyregistry.MustRegister(memorywatch.Metrics()...)
	})
)

func counterVec(name, help string, label string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA},
		[]string{label})
}

func gaugeVec(name, help string, label string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{label})
}

// outcomeNone is counted for a decision without a need.
const outcomeNone = "Nothing"

// metricsSink updates metrics from rounds and results.
type metricsSink struct {
	// Metrics are looked up once, and gauges are set only when they have changed, since most rounds change none.
	quiet   metrics.CounterMetric
	rounds  map[Trigger]metrics.CounterMetric
	pending [len(releasedResources)]int64
	unknown [snapshot.NumSignals]bool
	silent  bool
	failed  bool
	dryRun  dryRunCounter
	// begun: the counters of evictions have begun at 0.
	begun bool
	// idle is true when the last round that Round received was idle, so that every gauge is 0.
	idle atomic.Bool
}

func newMetricsSink() *metricsSink {
	registerMetrics()
	m := &metricsSink{quiet: decisionsTotal.WithLabelValues(outcomeNone), rounds: map[Trigger]metrics.CounterMetric{}}
	for _, t := range []Trigger{TriggerTimer, TriggerEvent, TriggerCounters, TriggerKernel} {
		m.rounds[t] = roundsTotal.WithLabelValues(string(t))
	}
	return m
}

// Name implements Sink.
func (*metricsSink) Name() string { return "metrics" }

// NeedsRound implements roundFilter. Nearly all rounds of a node are idle. It counts those itself, since two counters
// take less time than waking the sink.
func (m *metricsSink) NeedsRound(r *Round) bool {
	switch {
	case !isIdle(r):
		m.idle.Store(false)
		return true
	case m.idle.Load():
		m.count(r)
		return false
	}
	return true
}

// isIdle reports whether a round has nothing to show but that it took place.
func isIdle(r *Round) bool {
	d, s := &r.Decision, r.Snapshot
	unknown := func(c policy.Condition) bool { return len(c.UnknownSignals) > 0 }
	return len(d.Needs) == 0 && len(d.DryRun.Needs) == 0 && len(d.DryRun.Victims) == 0 && len(s.InFlight) == 0 &&
		!s.RuntimeSilent && r.CountersErr == nil && !slices.ContainsFunc(d.Conditions[:], unknown)
}

// count counts the round, and that no resource was scarce.
func (m *metricsSink) count(r *Round) {
	m.rounds[r.Trigger].Inc()
	if len(r.Decision.Needs) == 0 {
		m.quiet.Inc()
	}
}

// Round implements Sink.
func (m *metricsSink) Round(_ context.Context, r *Round) {
	d := &r.Decision
	m.count(r)
	if !m.begun {
		m.begun = true
		beginEvictions(r.Rules)
	}
	for i := range d.Needs {
		st := &d.Needs[i]
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
	m.idle.Store(isIdle(r))
}

// beginEvictions has the counters of evictions begin at 0: to Prometheus a counter that begins at 1 has not increased,
// so that no alert would fire for the first eviction.
func beginEvictions(rules *policy.Rules) {
	names := []string{string(policy.PluginRequest)}
	for i := range rules.Thresholds {
		names = append(names, rules.Thresholds[i].Signal.String())
	}
	if rules.LocalStorageLimits {
		names = append(names, policy.EmptyDirLimit, policy.PodStorageLimit, policy.ContainerStorageLimit)
	}
	for _, name := range names {
		stockmetrics.Evictions.WithLabelValues(name)
	}
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
	case FenceEnded:
		fencesTotal.WithLabelValues(string(r.Fence.Outcome)).Inc()
	case KillBlocked, KillWithdrawn, PodGone, KillRefused, PodFenced, PodOverdue, KillFailed, ReclaimEnded:
	}
}

// set sets a gauge to 1 or 0 if its value has changed; shown is its last value.
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
	var unknown [snapshot.NumSignals]bool
	for i := range d.Conditions {
		for _, sig := range d.Conditions[i].UnknownSignals {
			unknown[sig] = true
		}
	}
	for sig := range unknown {
		if unknown[sig] != m.unknown[sig] {
			set(signalUnknown.WithLabelValues(snapshot.Signal(sig).String()), &m.unknown[sig], unknown[sig])
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

// amounts returns the memory and the bytes on each device of a release, in the order of releasedResources.
func amounts(r *snapshot.Release) [len(releasedResources)]int64 {
	return [...]int64{int64(r.Memory), int64(r.Devices[snapshot.NodeDevice].Bytes),
		int64(r.Devices[snapshot.ImageDevice].Bytes)}
}
