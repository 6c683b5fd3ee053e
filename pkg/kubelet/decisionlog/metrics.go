package decisionlog

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Reasons for which records are lost.
const (
	lostQueueFull    = "disk_queue_full"
	lostDiskError    = "disk_error"
	lostDecisionGone = "decision_gone"
	lostEncoding     = "encoding"
)

// docs/metrics.md explains these.
var (
	logBytes = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_decision_log_bytes",
		Help:           "Memory that the records of the decision log occupy.",
		StabilityLevel: metrics.ALPHA,
	})
	logRecords = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_decision_log_records",
		Help:           "Records of the decision log in memory.",
		StabilityLevel: metrics.ALPHA,
	})
	logWatchers = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "plimsoll_decision_log_watchers",
		Help:           "Clients that watch the decision log.",
		StabilityLevel: metrics.ALPHA,
	})
	watchersDropped = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "plimsoll_decision_log_watchers_dropped_total",
		Help:           "Clients that watched the decision log and were dropped since they did not read.",
		StabilityLevel: metrics.ALPHA,
	})
	recordsLost = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_decision_log_lost_total",
		Help: "Records that the decision log does not have, by reason: disk_queue_full and disk_error for lines of its " +
			"files, decision_gone for results of decisions that were dropped before, encoding.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(logBytes, logRecords, logWatchers, watchersDropped, recordsLost)
		// They begin at 0: to Prometheus a counter that begins later has not increased.
		for _, reason := range []string{lostQueueFull, lostDiskError, lostDecisionGone, lostEncoding} {
			recordsLost.WithLabelValues(reason)
		}
	})
)

// measure sets the gauges. mu must be held.
func (l *Log) measure() {
	logBytes.Set(float64(l.ring.size))
	logRecords.Set(float64(len(l.ring.records)))
	logWatchers.Set(float64(len(l.watchers.list)))
}
