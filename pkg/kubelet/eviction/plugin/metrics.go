package plugin

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
)

// tooMany is the reason for which pods beyond maxPods of one answer are dropped.
const tooMany = "too_many"

var (
	activePlugins = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "plimsoll_eviction_plugin_active", StabilityLevel: metrics.ALPHA,
		Help: "1 while the eviction plugin is called, else 0.",
	}, []string{"plugin"})
	candidatePods = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "plimsoll_eviction_plugin_candidates", StabilityLevel: metrics.ALPHA,
		Help: "Pods whose eviction the plugin asks for now, without those that it may not name.",
	}, []string{"plugin"})
	victims           = counter("victims_total", "Evictions that the plugin has caused, alone or with others.", "plugin")
	dryRunVictims     = counter("dry_run_victims_total", "Pods that would be evicted but for dry run.", "plugin")
	callsTotal        = counter("calls_total", "Calls of the plugin.", "plugin", "method", "result")
	droppedPods       = counter("dropped_total", "Pods in answers that are ignored.", "plugin", "reason")
	refusedConditions = counter("refused_conditions_total", "Conditions in answers of the plugin that are not taken in.",
		"plugin")
	softNotices  = counter("soft_notices_total", "Pods that were given notice instead of being evicted.", "plugin")
	callDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "plimsoll_eviction_plugin_call_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of the calls of the plugin.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 8),
	}, []string{"plugin"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(activePlugins, candidatePods, victims, dryRunVictims, callsTotal, droppedPods,
			refusedConditions, softNotices, callDuration)
	})
)

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_plugin_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

// labels are those of plugins in metrics.
var labels plugincalls.Labels

// notCalled sets the gauges of a plugin that is no longer called.
func notCalled(plugin string) {
	activePlugins.WithLabelValues(labels.Of(plugin)).Set(0)
	candidatePods.WithLabelValues(labels.Of(plugin)).Set(0)
}

func countCandidates(plugins []string, asks []arbiter.Ask) {
	count := map[string]int{}
	for i := range asks {
		count[asks[i].Plugin]++
	}
	for _, plugin := range plugins {
		candidatePods.WithLabelValues(labels.Of(plugin)).Set(float64(count[plugin]))
	}
}

func (d *Driver) countDropped(plugin, reason string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countDroppedLocked(plugin, reason, n)
}

// countDroppedLocked counts parts of an answer that are ignored. The caller holds the lock.
func (d *Driver) countDroppedLocked(plugin, reason string, n int) {
	droppedPods.WithLabelValues(labels.Of(plugin), reason).Add(float64(n))
	if d.dropped[labels.Of(plugin)] == nil {
		d.dropped[labels.Of(plugin)] = map[string]int64{}
	}
	d.dropped[labels.Of(plugin)][reason] += int64(n)
}
