package reporter

import (
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// maxLabels is the number of names of plugins that metrics distinguish; further ones are otherPlugins.
	maxLabels    = 64
	otherPlugins = "other"
)

var (
	startsTotal = counter("starts_total", "How often the reporter plugin began to be called: it has registered, or was "+
		"enabled.", "plugin")
	endsTotal = counter("ends_total", "How often the reporter plugin ceased to be called: it has deregistered, was "+
		"disabled, or has registered anew.", "plugin")
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

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(startsTotal, endsTotal, callsTotal, refusedTotal, callDuration, refusedFields, conflicts)
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

// countCall counts a call that has ended.
func countCall(plugin, method string, err error) {
	result := "error"
	var p *panicError
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
	callsTotal.WithLabelValues(label(plugin), method, result).Inc()
}

// labels are the names of plugins that metrics distinguish. Plugins choose their names, so that the number is bounded.
var labels = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// label returns the label of metrics for a plugin.
func label(plugin string) string {
	labels.Lock()
	defer labels.Unlock()
	if !labels.names[plugin] {
		if len(labels.names) >= maxLabels {
			return otherPlugins
		}
		labels.names[plugin] = true
	}
	return plugin
}
