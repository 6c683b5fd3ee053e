package collect

import (
	"slices"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var podCgroupsUnrecognized = metrics.NewGauge(&metrics.GaugeOpts{
	Name:           "plimsoll_pod_cgroups_unrecognized",
	Help:           "Cgroups below that of all pods which cannot be assigned to a pod while none can.",
	StabilityLevel: metrics.ALPHA,
})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(podCgroupsUnrecognized) })

// logged is how many names of cgroups a log line has at most.
const logged = 5

// reportUnrecognized logs the unrecognized cgroups of a reading when they are not those of the reading before. Where
// cgroups of pods are recognized, the others are foreign; where there are only others, the cgroups of pods have other
// names than expected.
func (m *Memory) reportUnrecognized() {
	if m.recognized > 0 {
		m.unrecognized = m.unrecognized[:0]
	}
	if slices.Equal(m.unrecognized, m.reported) {
		return
	}
	count := len(m.unrecognized)
	podCgroupsUnrecognized.Set(float64(count))
	if count > 0 {
		m.logger.Error(nil, "No cgroup of a pod is recognized, so memory of pods is known from statistics only",
			"podsCgroup", m.pods, "count", count, "unrecognized", m.unrecognized[:min(count, logged)])
	} else {
		m.logger.Info("Cgroups of pods are recognized again", "podsCgroup", m.pods)
	}
	m.reported = slices.Clone(m.unrecognized)
}
