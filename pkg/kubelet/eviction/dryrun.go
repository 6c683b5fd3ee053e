package eviction

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// maxCountedPods limits the number of pods that are recorded for one cause. Beyond it recording starts again, and pods
// are counted twice.
const maxCountedPods = 4096

var (
	dryRunTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_eviction_dry_run_total",
		Help: "Pods that would have been evicted if their cause were not in dry run. A pod counts once for as long as the " +
			"cause lasts.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"signal", "kind"})

	registerDryRunMetric = sync.OnceFunc(func() { legacyregistry.MustRegister(dryRunTotal) })
)

// dryRunCounter counts the victims of causes in dry run, each once for as long as the cause lasts: since they are not
// evicted, each round has them again.
type dryRunCounter struct {
	counted map[policy.Cause]map[types.UID]bool
}

func (c *dryRunCounter) count(dry *policy.DryRun) {
	if len(dry.Needs) == 0 && len(dry.Victims) == 0 && len(c.counted) == 0 {
		return
	}
	registerDryRunMetric()
	c.dropEnded(dry)
	for i := range dry.Victims {
		c.add(dry.Victims[i].Cause, dry.Victims[i].Pod.UID)
	}
}

// dropEnded deletes the causes that have ended: signals without a need, and limits that no pod exceeds.
func (c *dryRunCounter) dropEnded(dry *policy.DryRun) {
	lasts := map[policy.Cause]bool{}
	for i := range dry.Needs {
		lasts[dry.Needs[i].Cause()] = true
	}
	for i := range dry.Victims {
		lasts[dry.Victims[i].Cause] = true
	}
	for cause := range c.counted {
		if !lasts[cause] {
			delete(c.counted, cause)
		}
	}
}

func (c *dryRunCounter) add(cause policy.Cause, uid types.UID) {
	if c.counted[cause][uid] {
		return
	}
	if c.counted == nil {
		c.counted = map[policy.Cause]map[types.UID]bool{}
	}
	if c.counted[cause] == nil || len(c.counted[cause]) >= maxCountedPods {
		c.counted[cause] = map[types.UID]bool{}
	}
	c.counted[cause][uid] = true
	dryRunTotal.WithLabelValues(cause.Name(), string(cause.Kind)).Inc()
}
