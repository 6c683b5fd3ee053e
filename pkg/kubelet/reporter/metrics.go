package reporter

import (
	"errors"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

var (
	startsTotal = counter("starts_total", "How often the reporter plugin began to be called: it has registered, or was "+
		"enabled.", "plugin")
	endsTotal = counter("ends_total", "How often the reporter plugin ceased to be called: it has deregistered, was "+
		"disabled, or has registered again.", "plugin")
	callsTotal = counter("calls_total", "Calls of the reporter plugin that have ended, streams included.",
		"plugin", "method", "result")
	refusedTotal = counter("refused_answers_total", "Answers of the reporter plugin that were refused whole, since they "+
		"are beyond a limit.", "plugin")
	callDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "plimsoll_reporter_plugin_poll_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Duration of the polls of the reporter plugin.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 8),
	}, []string{"plugin"})
	refusedFields = gauge("refused_fields", "Fields, and kinds of objects, of the last answers of reporter plugins that "+
		"are left out since they are not valid.")
	conflicts = gauge("conflicts", "Values that differ between reporter plugins. That of the plugin whose name sorts "+
		"first is published.")
	writesTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_reporter_writes_total",
		Help: "Requests that write what reporter plugins report, by object, or part of it, and result: written; conflict " +
			"(repeated with the newest object); refused by the API server; forbidden; no_kind (the API server does not have " +
			"the kind); unrecorded (the record of what is the agent's could not be stored); error.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"object", "result"})
	answerToObject = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "plimsoll_reporter_answer_to_object_seconds",
		Help: "Seconds from the answer of a plugin to the object that has it; of several answers that are written " +
			"together, the oldest.",
		Buckets:        []float64{0.25, 0.5, 1, 1.25, 1.5, 2, 2.5, 4, 8, 12, 20, 60, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"object"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(startsTotal, endsTotal, callsTotal, refusedTotal, callDuration,
			refusedFields, conflicts, writesTotal, answerToObject)
	})
)

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_reporter_plugin_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func gauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{
		Name: "plimsoll_reporter_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	})
}

// countMerge sets the metrics of a merge.
func countMerge(r *merge.Result) {
	refusedFields.Set(float64(len(r.Refusals)))
	conflicts.Set(float64(len(r.Conflicts) + r.MoreConflicts))
}

// CountWrite counts a request that writes what plugins report. The object is CustomNodeResource, a part of it, or Node;
// the results are in the help of the metric.
func CountWrite(object, result string) {
	registerMetrics()
	writesTotal.WithLabelValues(object, result).Inc()
}

// ObserveWritten records how long it took from the answer of a plugin to the object that has it.
func ObserveWritten(object string, d time.Duration) {
	registerMetrics()
	answerToObject.WithLabelValues(object).Observe(max(0, d.Seconds()))
}

// countCall counts a call that has ended.
func countCall(plugin, method string, err error) {
	result := "error"
	var p *plugincalls.PanicError
	switch {
	case err == nil:
		result = "ok"
	case errors.Is(err, ErrUnimplemented):
		result = "unimplemented"
	case errors.Is(err, ErrNotCalled):
		result = "not_called"
	case errors.Is(err, ErrUnreachable):
		result = "unreachable"
	case errors.Is(err, ErrTooLarge):
		result = "too_large"
	case errors.As(err, &p):
		result = "panic"
	}
	callsTotal.WithLabelValues(labels.Of(plugin), method, result).Inc()
}

// labels are those of plugins in metrics.
var labels plugincalls.Labels
