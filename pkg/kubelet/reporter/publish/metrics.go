package publish

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The values of the label object.
const (
	objectLabel  = "CustomNodeResource"
	statusLabel  = objectLabel + "/status"
	taintsLabel  = objectLabel + "/taints"
	written      = "written"
	metricPrefix = "plimsoll_reporter_"
)

var (
	writesTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: metricPrefix + "writes_total",
		Help: "Requests that write what reporter plugins report, by object, or part of it, and result: written; conflict " +
			"(repeated with the newest object); refused by the API server; forbidden; no_kind (the API server does not have " +
			"the kind); unrecorded (the record of taints could not be stored, so that none is added); error.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"object", "result"})
	answerToObject = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: metricPrefix + "answer_to_object_seconds",
		Help: "Seconds from the answer of a plugin to the object that has it; of several answers that are written " +
			"together, the oldest.",
		Buckets:        []float64{0.25, 0.5, 1, 1.25, 1.5, 2, 2.5, 4, 8, 12, 20, 60, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"object"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(writesTotal, answerToObject) })
)

// countWrite counts a request that has ended.
func countWrite(object string, err error) {
	result := written
	if p := problemOf(err); p != noProblem {
		result = string(p)
	}
	writesTotal.WithLabelValues(object, result).Inc()
}
