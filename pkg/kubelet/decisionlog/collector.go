package decisionlog

import (
	"k8s.io/component-base/metrics"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// Gauges of signals are computed from the last round when they are collected, so that rounds do not set them.
var (
	availableDesc = metrics.NewDesc("plimsoll_eviction_signal_available",
		"Available amount of a signal in the last round, in bytes, inodes or processes.", []string{"signal"}, nil,
		metrics.ALPHA, "")
	capacityDesc = metrics.NewDesc("plimsoll_eviction_signal_capacity",
		"Capacity of a signal in the last round, in bytes, inodes or processes.", []string{"signal"}, nil, metrics.ALPHA, "")
	thresholdDesc = metrics.NewDesc("plimsoll_eviction_signal_threshold",
		"Amount below which the hard threshold of a signal is met, in bytes, inodes or processes.", []string{"signal"}, nil,
		metrics.ALPHA, "")
	headroomDesc = metrics.NewDesc("plimsoll_eviction_signal_headroom_ratio",
		"What is available of a signal above its hard threshold, as a share of its capacity; negative while it is met.",
		[]string{"signal"}, nil, metrics.ALPHA, "")
)

// Collector returns a collector of gauges about the signals. It must be registered once per registry.
func (l *Log) Collector() metrics.StableCollector { return &collector{log: l} }

type collector struct {
	metrics.BaseStableCollector
	log *Log
}

// DescribeWithStability implements metrics.StableCollector.
func (*collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{availableDesc, capacityDesc, thresholdDesc, headroomDesc} {
		ch <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	status := c.log.Status(false)
	for i := range status.Signals {
		collectSignal(&status.Signals[i], ch)
	}
}

func collectSignal(s *debugv1alpha1.PressureSignal, ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value float64) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, s.Signal)
	}
	if s.Available == nil || s.Capacity == nil {
		return
	}
	gauge(availableDesc, float64(*s.Available))
	gauge(capacityDesc, float64(*s.Capacity))
	if s.Threshold == nil || s.Headroom == nil {
		return
	}
	gauge(thresholdDesc, float64(*s.Threshold))
	if *s.Capacity > 0 {
		gauge(headroomDesc, float64(*s.Headroom)/float64(*s.Capacity))
	}
}
