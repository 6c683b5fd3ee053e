package podworkers

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// terminatingSeconds has one observation for each termination, at its end.
var terminatingSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Name: "plimsoll_pod_terminating_seconds",
	Help: "How long terminations of pods took, from the first request to the end of their containers, by " +
		"what began them.",
	Buckets:        []float64{0.5, 1, 2, 5, 10, 20, 30, 45, 60, 120, 300, 600, 1800, 3600},
	StabilityLevel: metrics.ALPHA,
}, []string{"cause"})

// The gauges are computed from the store when they are collected.
var (
	workersDesc = metrics.NewDesc("plimsoll_pod_workers",
		"Number of pod workers by the phase of their pods.", []string{"phase"}, nil, metrics.ALPHA, "")
	stuckDesc = metrics.NewDesc("plimsoll_pod_workers_stuck",
		"Number of pod workers that are terminating pods whose containers should have ended by now.", nil, nil, metrics.ALPHA,
		"")
	oldestDesc = metrics.NewDesc("plimsoll_pod_terminating_oldest_seconds",
		"How long the oldest termination of a pod that is under way has taken so far, 0 if there is none.", nil, nil,
		metrics.ALPHA, "")
)

var registerOnce sync.Once

// RegisterMetrics registers the metrics that Collector does not return. It may be called more than once.
func RegisterMetrics() {
	registerOnce.Do(func() { legacyregistry.MustRegister(terminatingSeconds) })
}

// observeTermination records the duration of a termination that has ended.
func observeTermination(cause podlifecycle.Cause, took time.Duration) {
	terminatingSeconds.WithLabelValues(cause.String()).Observe(took.Seconds())
}

// Collector returns a collector of gauges about the workers. It computes them at each collection. It must be registered
// once per registry.
func (w *Workers) Collector() metrics.StableCollector { return &collector{workers: w} }

type collector struct {
	metrics.BaseStableCollector
	workers *Workers
}

func (*collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{workersDesc, stuckDesc, oldestDesc} {
		ch <- desc
	}
}

func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	n := c.workers.count()
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	for phase := podlifecycle.Known; phase <= podlifecycle.Finished; phase++ {
		gauge(workersDesc, float64(n.phases[phase]), phase.String())
	}
	gauge(stuckDesc, float64(n.stuck))
	gauge(oldestDesc, n.oldest.Seconds())
}

// counts are the gauges.
type counts struct {
	phases map[podlifecycle.Phase]int
	stuck  int
	// oldest is how long the oldest termination has taken so far.
	oldest time.Duration
}

func (w *Workers) count() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	n := counts{phases: map[podlifecycle.Phase]int{}}
	for uid, p := range w.workers {
		s, known := w.cfg.Store.State(uid)
		if !known {
			continue
		}
		n.phases[s.Phase]++
		if p.stuck(s, now) {
			n.stuck++
		}
		if s.Phase == podlifecycle.Terminating {
			n.oldest = max(n.oldest, now.Sub(s.Times.Requested))
		}
	}
	return n
}
