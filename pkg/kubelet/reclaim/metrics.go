package reclaim

import (
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var reclaims = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "plimsoll_node_reclaims_total",
	Help: "Attempts to free space on a device of the node before pods are evicted, by device (node, image) " +
		"and outcome (enough, not_enough, failed).",
	StabilityLevel: metrics.ALPHA,
}, []string{"device", "outcome"})

// RegisterMetrics registers the metrics of this package. It may be called more than once.
var RegisterMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(reclaims) })

// countReclaim counts an attempt by its outcome.
func countReclaim(d snapshot.Device, enough bool, err error) {
	outcome := "not_enough"
	switch {
	case enough:
		outcome = "enough"
	case err != nil:
		outcome = "failed"
	}
	reclaims.WithLabelValues(strings.TrimSuffix(d.String(), " device"), outcome).Inc()
}
