package nodestatus

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The results of an attempt to change the taints of the Node.
const (
	taintsWritten  = "written"
	taintsConflict = "conflict"
	// taintsRefused: the API server has received the request and rejects it.
	taintsRefused = "refused"
	taintsError   = "error"
	// taintsUnavailable: there is no identity that may change taints.
	taintsUnavailable = "unavailable"
	// taintsUnrecorded: the record could not be stored, so that the Node was not changed.
	taintsUnrecorded = "unrecorded"
)

var (
	taintWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "plimsoll_node_taint_writes_total",
		Help: "Attempts to change the taints of the Node for conditions of eviction plugins, by result: written; conflict " +
			"(repeated at once); refused by the API server; error; unavailable (no usable kubeconfig file); unrecorded " +
			"(the record could not be stored).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	registerTaintMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(taintWrites) })
)
