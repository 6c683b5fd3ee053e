package pluginhost

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_plugin_refusals_total",
		Help: "Registrations of plugins that were refused, by type of plugin and reason. " +
			"A registration that is tried again is counted again.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"type", "reason"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(refusals) })
)
