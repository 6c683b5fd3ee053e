package checkpoint

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	writes = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "plimsoll_reporter_checkpoint_writes_total",
		Help:           "Attempts to write the checkpoint of reporter plugins, by result: ok, error.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(writes) })
)

func countWrite(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	writes.WithLabelValues(result).Inc()
}
