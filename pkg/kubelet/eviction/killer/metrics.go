package killer

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// resultBlocked is counted for an attempt that the API server refuses for the time being. It is counted again with its
// outcome.
const resultBlocked = "Blocked"

var (
	killsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_plugin_api_kills_total",
		Help: "Attempts to evict a pod through the API server, by killer and result. An attempt that the API server " +
			"refuses for the time being is counted as Blocked once, and at its end with its outcome.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"killer", "result"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(killsTotal) })
)

func count(killer snapshot.Killer, result string) {
	killsTotal.WithLabelValues(killer.String(), result).Inc()
}
