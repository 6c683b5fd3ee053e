package remote

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	podsOmitted = metrics.NewCounter(&metrics.CounterOpts{
		Name: "plimsoll_eviction_plugin_omitted_pods_total",
		Help: "Pods that were left out of the requests of a round to eviction plugins, which have at most 4 MiB: " +
			"the largest ones.",
		StabilityLevel: metrics.ALPHA,
	})
	partsLeftOut = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_plugin_answer_parts_left_out_total",
		Help: "Parts of answers of eviction plugins that were left out since they are invalid, or beyond the limit " +
			"of 500 pods.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"part"})

	register = sync.OnceFunc(func() { legacyregistry.MustRegister(podsOmitted, partsLeftOut) })
)
