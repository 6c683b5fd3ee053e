package memorywatch

import "k8s.io/component-base/metrics"

var (
	readsTotal = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "plimsoll_eviction_memory_reads_total",
		Help:           "Reads of the kernel's memory counters between the rounds of the eviction manager.",
		StabilityLevel: metrics.ALPHA,
	})
	readsCPUSeconds = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "plimsoll_eviction_memory_reads_cpu_seconds_total",
		Help:           "CPU time of these reads, those of single pods included, and an estimate of what waking up costs.",
		StabilityLevel: metrics.ALPHA,
	})
)

// Metrics returns the metrics of all watchers of this process, to be registered.
func Metrics() []metrics.Registerable { return []metrics.Registerable{readsTotal, readsCPUSeconds} }
